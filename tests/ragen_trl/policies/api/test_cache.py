"""Answers on disk: what is asked again, what never is, and a process that is killed in the middle."""

from pathlib import Path
from typing import Any

from ragen_trl.policies.api.cache import ApiCache
from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.policy import ApiPolicy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.fake_envs import Quiz
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, Payload

KEY = "sk-very-secret-0123456789"


def played(server: OpenAIServer, path: Path, seed: int = 0, **sampling: Any) -> list[Trajectory]:
    """Two quizzes of two and three questions."""
    client = ApiClient(server.url, KEY, backoff=0.001, retries=0)
    with ApiPolicy("m", Sampling(**{"max_tokens": 50, **sampling}), client, cache=ApiCache(path)) as player:
        starts = [Start(row, None, seed + row) for row in range(2)]
        return play([Quiz(2, padding=3), Quiz(3, padding=13)], player, starts)


def counted() -> tuple[list[Payload], OpenAIServer]:
    """A server whose every answer is another one."""
    answered: list[Payload] = []

    def answer(payload: Payload) -> str:
        answered.append(payload)
        return f"answer {len(answered)}"

    return answered, OpenAIServer(answer, key=KEY)


def test_a_second_time_nothing_is_asked(tmp_path: Path) -> None:
    answered, server = counted()
    with server:
        first = played(server, tmp_path / "cache.sqlite")
        again = played(server, tmp_path / "cache.sqlite")
    assert first == again
    assert len(answered) == 5
    assert len({turn.reply for episode in first for turn in episode.turns}) == 5


def test_another_seed_or_sampling_or_server_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    answered, server = counted()
    with server:
        played(server, path)
        played(server, path, seed=7)
        assert len(answered) == 10
        played(server, path, temperature=0.5)
        assert len(answered) == 15
        played(server, path, max_tokens=49)
        assert len(answered) == 20
    others, other = counted()
    with other:
        played(other, path)
    assert len(others) == 5


def test_a_failure_is_asked_again(tmp_path: Path) -> None:
    broken = [True]

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(500) if broken[0] and len(payload["messages"]) == 5 else None

    with OpenAIServer(fault=fault) as server:
        assert [episode.limit for episode in played(server, tmp_path / "cache.sqlite")] == ["", "error"]
        broken[0] = False
        assert [episode.success for episode in played(server, tmp_path / "cache.sqlite")] == [True, True]
    assert len(server.asked) == 5 + 1
