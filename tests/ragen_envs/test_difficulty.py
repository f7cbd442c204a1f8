"""Difficulties: worked by hand, and true of the state as it is."""

import gymnasium
import pytest

from ragen_envs import AgentTurns, Bandit, FrozenLake, NoOracleError, Sokoban, WebShop, best_action, difficulty
from ragen_envs.frozen_lake.maps import Lake, distances
from ragen_envs.webshop.local_store import HiddenGoalError, local_store


def test_the_shortest_path_goes_around_holes() -> None:
    lake = Lake(3, "_O_" "_O_" "__G", 1.0)
    assert [distances(lake)[tile] for tile in (0, 2, 8)] == [4, 2, 0]
    assert 0 not in distances(Lake(2, "_OOG", 1.0))


@pytest.mark.parametrize("env_id", ["ragen/FrozenLake-v0", "ragen/Sokoban-v0"])
def test_it_is_how_many_actions_the_oracle_takes(env_id: str) -> None:
    kwargs = {"is_slippery": False} if "Lake" in env_id else {}
    env = gymnasium.make(env_id, **kwargs)
    found = set()
    for seed in range(12):
        env.reset(seed=seed)
        hardness = difficulty(env)
        taken, over = 0, False
        while not over:
            _, _, over, _, info = env.step(best_action(env, 30))
            taken += 1
        assert info["success"] and taken == hardness
        found.add(hardness)
    assert len(found) > 3


def test_a_step_changes_it() -> None:
    env = AgentTurns(FrozenLake(is_slippery=False))
    env.reset(seed=1)
    before = difficulty(env)
    env.step(env.format_reply([best_action(env, 10)], "x"))
    assert difficulty(env) == before - 1


def test_a_goal_asks_for_attributes_options_and_a_price() -> None:
    env = WebShop()
    goals = local_store(env.settings).shop().goals
    for number in (0, 5, 17):
        env.reset(options={"goal": number})
        goal = goals[number]
        priced = "price lower than" in goal.instruction
        assert difficulty(env) == len(goal.attributes) + len(goal.options) + priced
    with pytest.raises(HiddenGoalError, match="only the server at http://shop.test knows the goal"):
        difficulty(_reset_nothing(WebShop(base_url="http://shop.test")))


def _reset_nothing(env: WebShop) -> WebShop:
    env._session = type("Session", (), {"goal": 0})()
    return env


def test_toy_shop_and_countdown_have_one_and_bandits_none() -> None:
    for env_id, low, high in (("ragen/ToyShop-v0", 2, 6), ("ragen/Countdown-v0", 3, 4)):
        env = gymnasium.make(env_id)
        found = set()
        for seed in range(20):
            env.reset(seed=seed)
            found.add(difficulty(env))
        assert low <= min(found) < max(found) <= high, (env_id, found)
    with pytest.raises(NoOracleError, match="difficulty knows no Bandit; write one and register it with @difficulty"):
        difficulty(Bandit())
    stuck = Sokoban()
    stuck.reset(seed=0)
    assert difficulty(stuck) < float("inf")
