"""Environments that cannot be reset at once, or ever."""

from typing import Any

import pytest

from ragen_trl.rollout import resets
from ragen_trl.rollout.loop import EnvResetError, play
from tests.support.ragen_trl.fake_envs import Faulty, Quiz
from tests.support.ragen_trl.talkers import Shelf, Talker, starts


def test_a_reset_that_never_works_is_an_error_with_seed_and_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No episode, no turn: there is nothing that could be recorded."""
    monkeypatch.setattr(resets, "PAUSES", (0.0, 0.0))
    shelf = Shelf(Faulty(2, crashes=[0]))
    with pytest.raises(EnvResetError, match=r"reset\(seed=11\) in 3 attempts.*(?s:.*)nobody answers at 0") as caught:
        play([Quiz(2), Faulty(2, crashes=[0])], Talker(), starts(2), renew=shelf.renew)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_resets_are_tried_until_a_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor that cannot be made either is no end of it."""
    monkeypatch.setattr(resets, "PAUSES", (0.0, 0.0, 0.0))
    answers: list[Any] = [ConnectionError("nobody there"), Faulty(2, crashes=[0]), Quiz(4)]

    def renew(env: Any, failure: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    class StaysDown(Faulty):
        def reset(self, **options: Any) -> Any:
            raise ConnectionError("nobody answers")

    one, two = play([StaysDown(2), Quiz(2)], Talker(), starts(2), renew=renew)
    assert (len(one.turns), len(two.turns), answers) == (4, 2, [])


def test_without_a_way_to_renew_a_reset_is_not_repeated() -> None:
    with pytest.raises(EnvResetError, match=r"reset\(seed=10\) \(crash\)"):
        play([Faulty(2, crashes=[0])], Talker(), starts(1))
