"""Policies for any environment: plans, demonstrations, random actions and errors."""

import contextlib
import copy
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen_envs import Bandit, FrozenLake, Sokoban, ToyShop, best_action, demonstration, difficulty, explain, plan
from ragen_envs.frozen_lake.maps import ACTIONS
from ragen_envs.oracles import NoOracleError, random_action
from tests.support.ragen_envs.registered import every_id


def test_plan_counts_the_actions_left_down() -> None:
    env = FrozenLake()
    for seed in range(60):
        env.reset(seed=seed)
        imagined = copy.deepcopy(env)
        imagined.outcome_random = np.random.default_rng(np.random.default_rng(seed).integers(2**63))
        expected = []
        for left in (4, 3, 2, 1):
            expected.append(best_action(imagined, left))
            if imagined.step(expected[-1])[2]:
                break
        assert plan(env, 4, 4, np.random.default_rng(seed)) == expected


def test_demonstrations_are_plans_but_for_the_noise_of_texts() -> None:
    lake, shop = FrozenLake(), ToyShop()
    for noise in (0.0, 0.5, 1.0):
        for seed in range(20):
            lake.reset(seed=seed)
            twice = [np.random.default_rng(seed) for _ in range(2)]
            assert demonstration(lake, 5, 4, twice[0], noise) == plan(lake, 5, 4, twice[1], noise)
            assert twice[0].random() == twice[1].random()
        shop.reset(seed=0)
        search, purchase = demonstration(shop, 5, 5, np.random.default_rng(0), noise)  # ends with the purchase
        assert len(search.removeprefix("search:").split()) in (3, 4) and purchase.startswith("buy:")
    shop.reset(seed=0)
    rng = np.random.default_rng(0)
    assert demonstration(shop, 5, 1, rng, 0.0) == plan(shop, 5, 1, rng, 0.0)
    lengths = {len(plan(shop, 1, 1, rng, 1.0)[0].removeprefix("search:").split()) for _ in range(200)}
    assert lengths == {1, 2, 3, 4}  # a random search is of any words of the request
    with pytest.raises(ValueError, match=r"noise=1\.5 is not a probability"):
        demonstration(shop, 5, 1, rng, 1.5)


def test_bandit_oracle_takes_the_better_mean() -> None:
    for seed in range(6):
        env = Bandit()
        env.reset(seed=seed)
        assert best_action(env, 1) == "Dragon"
        swapped = Bandit(low_name="Dragon", high_name="Phoenix")
        swapped.reset(seed=seed)
        assert best_action(swapped, 1) == "Phoenix"


def test_random_action_is_uniform() -> None:
    env, rng = FrozenLake(), np.random.default_rng(0)
    env.reset(seed=0)
    drawn = [random_action(env, rng) for _ in range(4000)]
    assert [drawn.count(action) / 4000 for action in ACTIONS] == pytest.approx([0.25] * 4, abs=0.03)


def test_plan_is_imagined_never_foreseen() -> None:
    env = FrozenLake()
    plans, outcomes = set(), set()
    for outcome in range(30):
        env.reset(seed=6, options={"outcome_seed": outcome})
        plans.add(tuple(plan(env, 10, 5, np.random.default_rng(1))))
        outcomes.add(tuple(env.step(action)[0] for action in ("Left", "Down", "Right", "Up")))
    assert len(plans) == 1 and len(outcomes) > 1  # the same plan, whatever the true outcomes will be
    env.reset(seed=6)
    assert len({tuple(plan(env, 10, 5, np.random.default_rng(seed))) for seed in range(30)}) > 1


def test_plan_does_not_consume_the_environments_outcomes() -> None:
    env, twin = FrozenLake(), FrozenLake()
    env.reset(seed=2)
    twin.reset(seed=2)
    plan(env, 10, 5, np.random.default_rng(0), noise=0.5)
    assert [env.step("Down") for _ in range(5)] == [twin.step("Down") for _ in range(5)]


def test_plan_length() -> None:
    env = FrozenLake(size=6, frozen_prob=1.0, random_start=False, is_slippery=False)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    assert [len(plan(env, left, length, rng)) for left, length in ((20, 3), (2, 5), (20, 20), (0, 5))] == [3, 2, 10, 0]


def test_plans_end_where_the_environment_truncates() -> None:
    """Regression: they went on with actions that would do nothing."""
    env, longer = Sokoban(max_steps=2), Sokoban()
    env.reset(seed=4)
    longer.reset(seed=4)
    whole = plan(longer, 10, 5, np.random.default_rng(0))
    for planned in (plan, demonstration):
        assert planned(env, 10, 5, np.random.default_rng(0)) == whole[:2] and len(whole) > 2


def test_noise_is_the_share_of_random_actions() -> None:
    env = FrozenLake(size=2, frozen_prob=0.0, random_start=False, is_slippery=False)
    env.reset(seed=0)  # the best first action is Down
    rng = np.random.default_rng(0)
    for noise, share in ((0.0, 1.0), (0.4, 0.7), (1.0, 0.25)):
        firsts = [plan(env, 10, 1, rng, noise)[0] for _ in range(400)]
        assert firsts.count("Down") / 400 == pytest.approx(share, abs=0.1)
    with pytest.raises(ValueError, match="noise=1.2"):
        plan(env, 10, 1, rng, noise=1.2)


@every_id
@pytest.mark.parametrize("asked", [best_action, random_action, difficulty, plan, demonstration, explain])
def test_before_a_reset_it_is_asked_for(env_id: str, asked: Any) -> None:
    """Regression: the oracles' errors were about attributes of the environment."""
    rng = np.random.default_rng(0)
    others = {best_action: (3,), random_action: (rng,), difficulty: (), explain: (["Up"], rng)}
    with contextlib.suppress(NoOracleError):
        try:
            asked(gymnasium.make(env_id), *others.get(asked, (3, 2, rng)))
        except gymnasium.error.ResetNeeded as error:
            assert str(error).endswith("; call reset first")


def test_a_reset_is_asked_for_only_where_there_was_none() -> None:
    env = gymnasium.make("ragen/Sokoban-v0")
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"difficulty was called before Sokoban\.reset; call reset"):
        difficulty(env)
    env.reset(seed=0)
    del env.unwrapped._board
    with pytest.raises(AttributeError, match="_board"):
        difficulty(env)


def test_unknown_environments_are_named_with_the_remedy() -> None:
    cart_pole = gymnasium.make("CartPole-v1")
    with pytest.raises(NoOracleError, match=r"CartPoleEnv.*@best_action.register\(CartPoleEnv\)"):
        best_action(cart_pole, 3)
    with pytest.raises(NoOracleError, match=r"@random_action.register\(CartPoleEnv\)"):
        random_action(cart_pole, np.random.default_rng(0))
    with pytest.raises(TypeError, match="CartPoleEnv"):
        plan(cart_pole, 3, 1, np.random.default_rng(0))
    env = FrozenLake()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions_left=0"):
        best_action(env, 0)
