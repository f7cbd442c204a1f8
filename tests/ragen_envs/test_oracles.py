"""Policies, plans, demonstrations, thoughts and difficulties of any environment, and baselines measured with them."""

import copy
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, FrozenLake, ToyShop, best_action, demonstration, difficulty, explain, plan
from ragen_envs.baselines import measure, wilson_interval
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
        before = env.outcome_random.bit_generator.state
        assert plan(env, 4, 4, np.random.default_rng(seed)) == expected
        assert env.outcome_random.bit_generator.state == before  # no outcome of the environment's own is used up


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


DRY = [("ragen/FrozenLake-v0", {"is_slippery": False}), ("ragen/Sokoban-v0", {})]


@pytest.mark.parametrize(("env_id", "kwargs"), DRY)
def test_difficulty_is_how_many_actions_the_oracle_takes(env_id: str, kwargs: dict[str, Any]) -> None:
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


@every_id
def test_every_environment_explains_its_oracle(env_id: str) -> None:
    turns = AgentTurns(gymnasium.make(env_id))
    turns.reset(seed=3)
    best = best_action(turns, turns.actions_left)
    state = copy.deepcopy(turns.unwrapped.outcome_random.bit_generator.state)
    assert explain(turns, [best]) == explain(turns.env, [best]) == explain(turns, [best, best])
    said = {explain(turns, [best], np.random.default_rng(seed)) for seed in range(40)}
    assert len(said) >= 5
    shown = json.loads(best)["name"] if env_id == "ragen/Tools-v0" else best  # a call is too long to be spoken
    assert all(text.endswith(f" {shown}.") or env_id == "ragen/WebShop-v0" for text in said)
    assert turns.unwrapped.outcome_random.bit_generator.state == state
    assert best_action(turns, turns.actions_left) == best
    turns.close()


LAKE = "ragen/FrozenLake-v0"


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (51, 256, 0.1549, 0.2524),  # RAGEN's 0.5B result: 15.5 to 25.2 %, where the random policy is as well
        (5, 10, 0.2366, 0.7634),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_intervals_by_hand(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=6e-5)


def test_rows_agree_with_the_reference() -> None:
    """Slippery FrozenLake at ten actions on RAGEN's lakes: random 21.2 %, oracle 48.3 %."""
    random, oracle = measure(LAKE, "random"), measure(LAKE, "oracle", episodes=512)
    assert random["low"] < 0.212 < random["high"]
    assert oracle["low"] < 0.483 < oracle["high"]
    # A return is 0 or 1, so that its variance among n episodes is p (1 - p) n / (n - 1).
    for row in (random, oracle):
        assert row["mean_return"] == row["success"]
        assert row["return_stderr"] == pytest.approx(math.sqrt(row["success"] * (1 - row["success"]) / (row["n"] - 1)))


@pytest.mark.parametrize(("env_id", "random", "oracle"), [("Sokoban", 0.167, 0.99), ("SokobanLarge", 0.026, 0.993)])
def test_sokoban_rows_agree_with_the_original(env_id: str, random: float, oracle: float) -> None:
    """RAGEN's room code, over 2000 and 1000 rooms: random play 16.7 % (± 0.5) and 2.6 % (± 0.2) at ten actions."""
    row = measure(f"ragen/{env_id}-v0", "random", episodes=512)
    assert row["low"] < random < row["high"]
    row = measure(f"ragen/{env_id}-v0", "oracle", episodes=128)
    assert row["low"] < oracle < row["high"] or row["success"] > oracle


def thoughts(
    env_id: str, seeds: int, noise: float, limits: Mapping[str, int] | None = None, **kwargs: Any
) -> Iterator[tuple[Any, str, list[str]]]:
    """The game, thought and actions of each turn of an episode for each seed; the game goes on after each."""
    turns = AgentTurns(gymnasium.make(env_id, **kwargs), **(limits or {}))
    for seed in range(seeds):
        turns.reset(seed=seed)
        rng, over = np.random.default_rng(seed), False
        while not over:
            actions = demonstration(turns, turns.actions_left, 1, rng, noise)
            text = explain(turns, actions, rng)
            yield turns.unwrapped, text, actions
            reply = turns.format_reply(actions, text)
            assert turns.reply_format.read(reply) == tuple(actions)
            _, _, terminated, truncated, _ = turns.step(reply)
            over = terminated or truncated
    turns.close()


ONCE = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}
SHOPPING = {"max_turns": 9, "max_actions_per_turn": 1, "max_actions": 9}


@pytest.mark.parametrize(
    ("env_id", "limits", "kwargs"),
    [
        ("ragen/FrozenLake-v0", None, {}),
        ("ragen/Sokoban-v0", None, {"coordinates": True}),
        ("ragen/Bandit-v0", ONCE, {"names": "ragen2-train"}),
        ("ragen/ToyShop-v0", SHOPPING, {}),
        ("ragen/WebShop-v0", SHOPPING, {"observation_mode": "short"}),
    ],
)
def test_thoughts_are_short_and_end_with_the_action(
    env_id: str, limits: dict[str, int] | None, kwargs: dict[str, Any]
) -> None:
    texts = set()
    for _, text, actions in thoughts(env_id, 25, 0.4, limits=limits, **kwargs):
        assert text.endswith(" search." if actions[0].startswith("search[") else f" {actions[0]}."), text
        assert len(text) < 300
        texts.add(text)
    assert len(texts) > 20


@pytest.mark.parametrize(("env_id", "kwargs"), DRY)
def test_only_a_shortest_way_gets_a_reason(env_id: str, kwargs: dict[str, Any]) -> None:
    """What leads away from the goal, or into a hole or a corner, is tried."""
    kinds = Counter[bool]()
    for env, text, actions in thoughts(env_id, 40, 0.8, **kwargs):
        after = copy.deepcopy(env)
        after.step(actions[0])
        is_shortest = difficulty(env) - 1 == difficulty(after) < math.inf
        is_tried = re.search(r"\b(try|what happens)\b", text) is not None
        assert is_tried != is_shortest, text
        kinds[is_tried] += 1
    assert min(kinds.values()) > 15
