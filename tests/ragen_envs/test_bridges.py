"""The bridges to OpenEnv and GEM: with the real ones where they are installed, with a small stand-in elsewhere."""

import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest

from ragen_envs import AgentTurns, FrozenLake
from ragen_envs.bridges import GemEnvironment, openenv_environment
from tests.support.ragen_envs.toys import answer

# Start top left, goal bottom right, no holes, no slipping: Right and Down in any order.
SMALL_LAKE = functools.partial(
    gymnasium.make, "ragen/FrozenLake-v0", size=2, frozen_prob=1.0, is_slippery=False, random_start=False
)
RULES = (
    "Walk over the frozen lake to the goal. A hole ends the game.\n"
    "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal\n"
    "Actions: Left, Down, Right, Up\n"
)


def small_turns() -> AgentTurns:
    """The small lake for one reply."""
    return AgentTurns(SMALL_LAKE(), max_turns=1)


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


def test_openenv_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openenv.core", None)
    with pytest.raises(ImportError, match="pip install openenv-core"):
        openenv_environment("ragen/Bandit-v0")


def test_a_real_openenv_server_keeps_sessions_apart() -> None:
    server = pytest.importorskip("openenv.core.env_server", reason="pip install openenv-core runs this one")
    from fastapi.testclient import TestClient

    app = server.create_app(*openenv_environment(small_turns), max_concurrent_envs=4)

    def ask(socket: Any, kind: str, **data: Any) -> Any:
        socket.send_json({"type": kind, "data": data})
        return socket.receive_json()["data"]

    with TestClient(app) as client, client.websocket_connect("/ws") as one, client.websocket_connect("/ws") as other:
        assert ask(one, "reset", seed=0)["observation"]["text"].startswith(RULES)
        assert ask(other, "reset", seed=0, outcome_seed=4)["done"] is False
        won, lost = ask(one, "step", text=answer("Right", "Down")), ask(other, "step", text="nonsense")
        assert (won["reward"], won["done"], won["observation"]["success"]) == (1.0, True, True)
        assert (lost["reward"], lost["done"], lost["observation"]["truncated"]) == (-0.1, True, True)


def test_gem_style_reset_step_and_spawn() -> None:
    env = GemEnvironment(small_turns)
    message, _ = env.reset(seed=0)
    assert message.startswith(RULES) and env.unwrapped is env
    twin, fresh = env.spawn(same_state=True), env.spawn(seed=3)
    message, reward, terminated, truncated, info = env.step(answer("Right", "Down"))
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert twin.step(answer("Right", "Down"))[0] == message
    with pytest.raises(gymnasium.error.ResetNeeded):
        fresh.step(answer("Right"))


def test_gem_style_seeds() -> None:
    seeded = GemEnvironment("ragen/FrozenLake-v0", seed=5)
    first, second = seeded.reset()[0], seeded.reset()[0]
    assert first == AgentTurns(FrozenLake()).reset(seed=5)[0] != second
    other = GemEnvironment("ragen/FrozenLake-v0", seed=6)
    assert other.reset(seed=5)[0] == first
    assert other.reset()[0] == second  # the constructor's seed counts once, for the first reset


def test_gem_style_random_actions_are_valid_and_move_no_start() -> None:
    env, quiet = GemEnvironment("ragen/FrozenLake-v0", seed=1), GemEnvironment("ragen/FrozenLake-v0", seed=1)
    env.reset()
    replies = {env.sample_random_action() for _ in range(60)}
    assert replies == {f"<think></think><answer>{name}</answer>" for name in ("Left", "Down", "Right", "Up")}
    quiet.reset()
    assert env.reset()[0] == quiet.reset()[0]


def test_a_real_gem_makes_vectors_and_wraps() -> None:
    gem = pytest.importorskip("gem", reason="pip install gem-llm runs this one")
    from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
    from gem.wrappers.observation_wrapper import ObservationWrapper

    gem.register("ragen:SmallLake", GemEnvironment, env=small_turns)
    concatenate = functools.partial(ObservationWrapper, include_chat_template=False)
    for async_mode in (False, True):
        wrappers = [concatenate, EpisodeTrackingWrapper]
        envs = gem.make_vec(["ragen:SmallLake"] * 2, wrappers=wrappers, async_mode=async_mode)
        messages, _ = envs.reset(seed=0)
        assert all(message.startswith(RULES) for message in messages)
        _, rewards, terminated, truncated, infos = envs.step([answer("Right", "Down"), "nonsense"])
        assert rewards.tolist() == [1.0, -0.1]
        assert terminated.tolist() == [True, False] and truncated.tolist() == [False, True]
        assert [info["step_counter"] for info in infos] == [0, 0]  # GEM resets in the same step


@pytest.mark.parametrize(("env_id", "limits"), [("Bandit", (1, 1, 1)), ("Sokoban", (5, 5, 10))])
def test_gem_has_the_limits_of_ragen(env_id: str, limits: tuple[int, int, int]) -> None:
    turns, per_turn, total = limits
    message = GemEnvironment(f"ragen/{env_id}-v0").reset(seed=0)[0]
    assert f"Limits: actions per turn {per_turn}, actions in all {total}, turns {turns}\n" in message
