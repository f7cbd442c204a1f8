"""Controls of an evaluation with pictures: blank ones, and those of other episodes."""

from pathlib import Path

import pytest

from ragen_trl import evaluate
from ragen_trl.evaluation.picture_controls import PictureControlError, WrongPictures
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.trajectory import Picture
from tests.support.ragen_trl.vision import frames, vision_config

ONE, OTHER, THIRD = (Picture(1, 1, bytes([value] * 3)) for value in (10, 20, 30))


class Watching(ScriptedPolicy):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__(lambda env, random: "anything")
        self.shown: list[dict[int, tuple[Picture, ...]]] = []

    def reply(self, requests: "list[Request]") -> list[Reply]:  # type: ignore[override]
        self.shown.append({request.row: request.pictures for request in requests})
        return super().reply(requests)


def ask(policy: Policy, shown: dict[int, Picture]) -> None:
    env = frames(1)
    policy.reply([Request(row, "Look.", (), env, pictures=(picture,)) for row, picture in shown.items()])


def test_each_row_sees_what_the_next_one_sees_or_saw_last() -> None:
    watching = Watching()
    policy = WrongPictures(watching, "other")
    policy.begin([1, 2, 3])
    ask(policy, {0: ONE, 1: OTHER, 2: THIRD})
    ask(policy, {0: THIRD, 2: OTHER})
    assert watching.shown == [{0: (OTHER,), 1: (THIRD,), 2: (ONE,)}, {0: (OTHER,), 2: (THIRD,)}]


def test_rows_that_begin_later_see_another_episode(tmp_path: Path) -> None:
    """With ``rollout_batch_size`` the row after the last one that plays has not begun: that was a KeyError."""
    watching = Watching()
    policy = WrongPictures(watching, "other")
    policy.begin([1, 2, 3])
    ask(policy, {0: ONE, 1: OTHER})
    policy.end([0, 1])
    ask(policy, {2: THIRD})
    assert watching.shown == [{0: (OTHER,), 1: (ONE,)}, {2: (ONE,)}]
    args = vision_config(tmp_path, max_turns=1, rollout_batch_size=2)
    assert evaluate(Watching(), frames, args, episodes=4, pictures="other").n == 4


def test_rows_that_look_the_same_are_passed_over() -> None:
    """Samples of one start state play side by side: each was shown its own picture as another episode's."""
    watching = Watching()
    policy = WrongPictures(watching, "other")
    policy.begin([1, 2, 3, 4])
    ask(policy, {0: ONE, 1: ONE, 2: OTHER, 3: OTHER})
    policy.begin([1, 2])
    ask(policy, {0: OTHER, 1: OTHER})
    assert watching.shown == [{0: (OTHER,), 1: (OTHER,), 2: (ONE,), 3: (ONE,)}, {0: (ONE,), 1: (ONE,)}]
    with pytest.raises(PictureControlError, match="no other episode has shown another picture"):
        ask(WrongPictures(watching, "other"), {0: ONE, 1: ONE})


def test_a_row_that_plays_alone_sees_an_episode_of_the_rollout_before(tmp_path: Path) -> None:
    """The last of five episodes, four at a time; the evaluation ended there, after four had been played."""
    args = vision_config(tmp_path, max_turns=1)
    assert evaluate(Watching(), frames, args, episodes=5, batch_size=4, pictures="other").n == 5
    watching = Watching()
    policy = WrongPictures(watching, "other")
    for episodes in ({0: ONE, 1: OTHER}, {0: THIRD}, {0: OTHER}):
        policy.begin([1] * len(episodes))
        ask(policy, episodes)
    assert watching.shown == [{0: (OTHER,), 1: (ONE,)}, {0: (ONE,)}, {0: (THIRD,)}]


def test_blank_pictures_have_the_same_size() -> None:
    watching = Watching()
    policy = WrongPictures(watching, "blank")
    policy.begin([1])
    ask(policy, {0: Picture(1, 2, bytes(range(6)))})
    assert watching.shown == [{0: (Picture(1, 2, bytes([128] * 6)),)}]


def test_an_evaluation_takes_the_controls(tmp_path: Path) -> None:
    args, watching = vision_config(tmp_path, max_turns=1), Watching()
    for pictures in ("own", "blank", "other"):
        assert evaluate(watching, frames, args, episodes=4, pictures=pictures).n == 4
    own, blank, other = watching.shown[0], watching.shown[3], watching.shown[6]
    assert {row: (own[(row + 1) % 4]) for row in own} == other
    assert {picture.pixels for (picture,) in blank.values()} == {bytes([128] * 56 * 56 * 3)}
    with pytest.raises(PictureControlError, match="pictures is 'none'"):
        evaluate(watching, frames, args, episodes=4, pictures="none")
    with pytest.raises(PictureControlError, match="no other episode"):
        evaluate(watching, frames, args, episodes=1, pictures="other")
