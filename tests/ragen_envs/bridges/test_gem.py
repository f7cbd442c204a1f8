"""An environment here with the methods of GEM's; `test_gem_real.py` has the real GEM."""

import gymnasium
import pytest

from ragen_envs import AgentTurns, FrozenLake
from ragen_envs.bridges import GemEnvironment
from tests.support.ragen_envs.bridging import RULES, small_turns
from tests.support.ragen_envs.toys import answer


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


@pytest.mark.parametrize(("env_id", "limits"), [("Bandit", (1, 1, 1)), ("Sokoban", (5, 5, 10)), ("WebShop", (9, 1, 9))])
def test_gem_has_the_limits_of_ragen(env_id: str, limits: tuple[int, int, int]) -> None:
    turns, per_turn, total = limits
    message = GemEnvironment(f"ragen/{env_id}-v0").reset(seed=0)[0]
    assert f"Limits: actions per turn {per_turn}, actions in all {total}, turns {turns}\n" in message
