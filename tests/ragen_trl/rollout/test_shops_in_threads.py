"""Sixteen shops that share the store in this process give the same episodes in threads as one after the other."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

from ragen_envs import AgentTurns, random_action
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.env_executor import EnvExecutor
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

SHOPS, TURNS = 16, 4


class Crowd(AgentTurns):
    """Enters the store only when all others are at its door, if there is a barrier."""

    door: threading.Barrier | None = None

    def reset(self, **arguments: Any) -> Any:
        """Wait, then begin."""
        self._wait()
        return super().reset(**arguments)

    def step(self, action: str) -> Any:
        """Wait, then play: nobody buys here, so that all are there in every turn."""
        self._wait()
        return super().step(action)

    def _wait(self) -> None:
        if self.door is not None:
            self.door.wait()


@pytest.fixture
def impatient_interpreter() -> Iterator[None]:
    """Threads take turns within microseconds, and meet wherever they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def browse(env: Any, rng: Any) -> str:
    """Random actions except purchases."""
    assert isinstance(env, Crowd)
    actions = [random_action(env, rng) for _ in range(2)]
    return env.format_reply([action for action in actions if action != "click[buy now]"] or ["search[mug]"])


def visits(executor: EnvExecutor, door: threading.Barrier | None) -> list[Trajectory]:
    envs = []
    for _ in range(SHOPS):
        shop = gymnasium.make("ragen/WebShop-v0", catalog="synthetic:200", disable_env_checker=True)
        envs.append(Crowd(shop, max_turns=TURNS, max_actions=99, think=False))
        envs[-1].door = door
    starts = [Start.drawn(seed, (seed,)) for seed in range(SHOPS)]
    trajectories = play(envs, ScriptedPolicy(browse), starts, None, executor)
    for env in envs:
        env.close()
    return trajectories


@pytest.mark.usefixtures("impatient_interpreter")
def test_shops_in_threads_play_as_they_do_alone() -> None:
    alone = visits(EnvExecutor(0), None)
    assert {len(trajectory.turns) for trajectory in alone} == {TURNS}
    assert sum(turn.info["num_actions"] for trajectory in alone for turn in trajectory.turns) > SHOPS * TURNS
    assert len({trajectory.turns[-1].observation for trajectory in alone}) > SHOPS / 2
    for _ in range(3):
        assert visits(EnvExecutor(SHOPS), threading.Barrier(SHOPS, timeout=60)) == alone
