"""An environment here as an OpenEnv server, with a stand-in for OpenEnv; `test_openenv_real.py` has the real one."""

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ragen_envs.bridges import openenv_environment
from tests.support.ragen_envs.bridging import RULES, small_turns
from tests.support.ragen_envs.toys import answer


class _Model:
    """As much of OpenEnv's pydantic models as a bridge may rely on: fields by keyword."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update({"done": False, "reward": None, **values})


@dataclass
class _State:
    episode_id: str | None = None
    step_count: int = 0


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for `openenv.core.env_server`."""
    base = type("Environment", (), {})
    server = types.SimpleNamespace(Action=_Model, Observation=_Model, Environment=base, State=_State)
    core = types.ModuleType("openenv.core")
    core.env_server = server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openenv", types.ModuleType("openenv"))
    monkeypatch.setitem(sys.modules, "openenv.core", core)
    yield


def test_openenv_plays_in_turns(stand_in: None) -> None:
    make, action, _ = openenv_environment(small_turns)
    env = make()
    seen = env.reset(seed=0, episode_id="first")
    assert seen.text.startswith(RULES) and seen.text.endswith("State:\nP_\n_G\nActions left: 10")
    assert (seen.done, seen.reward, seen.success) == (False, None, False)
    seen = env.step(action(text=answer("Right", "Down")))
    assert seen.text == "The end\nReward: 1\nState:\n__\n_√\nActions left: 8"
    assert (seen.done, seen.reward, seen.success, seen.truncated) == (True, 1.0, True, False)
    assert (env.state.episode_id, env.state.step_count) == ("first", 1)
    env.reset(seed=0)
    seen = env.step(action(text="nonsense"))
    assert (seen.done, seen.reward, seen.success, seen.truncated) == (True, -0.1, False, True)
    assert make.SUPPORTS_CONCURRENT_SESSIONS


def test_openenv_takes_an_outcome_seed(stand_in: None) -> None:
    make, action, _ = openenv_environment("ragen/Bandit-v0")
    env, texts, rewards = make(), set(), set()
    for outcome in range(40):
        texts.add(env.reset(seed=0, outcome_seed=outcome).text)
        rewards.add(env.step(action(text=answer("Dragon"))).reward)
    assert len(texts) == 1 and rewards == {0.0, 1.0}
