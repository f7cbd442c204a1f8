"""FrozenLake: physics worked by hand, starts, the oracle against slow recursion, and thoughts compared with the map."""

import functools

import numpy as np
import pytest

from ragen_envs import FrozenLake, best_action
from ragen_envs.frozen_lake.maps import ACTIONS, Lake, distances, draw_start, lake_policy

OPEN_LAKE = {"frozen_prob": 1.0, "random_start": False}


def test_slippery_transitions() -> None:
    lake = Lake(3, "_______OG", 0.8)
    aside = pytest.approx(0.1)
    assert lake.transitions(4, "Left") == [(0.8, 3), (aside, 1), (aside, 7)]
    assert lake.transitions(4, "Down") == [(0.8, 7), (aside, 3), (aside, 5)]
    assert lake.transitions(4, "Right") == [(0.8, 5), (aside, 7), (aside, 1)]
    assert lake.transitions(4, "Up") == [(0.8, 1), (aside, 5), (aside, 3)]
    assert lake.transitions(0, "Up") == [(0.8, 0), (aside, 1), (aside, 0)]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("success_rate", [1 / 3, 0.8])
def test_play_follows_the_transitions(action: str, success_rate: float) -> None:
    env = FrozenLake(size=3, success_rate=success_rate, **OPEN_LAKE)
    env.reset(seed=0)
    env.step("Down")
    n = 1500
    start, counts, expected = 0, np.zeros(9), np.zeros(9)
    for probability, tile in env.lake.transitions(start, action):
        expected[tile] += probability
    slips = 0
    for outcome in range(n):
        env.reset(seed=0, options={"outcome_seed": outcome})
        info = env.step(action)[-1]
        counts[env.position] += 1
        slips += info["slipped"]
        assert info["action_is_effective"] == (env.position != start)
    assert counts / n == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(n))
    assert slips / n == pytest.approx(1 - success_rate, abs=4 * 0.5 / np.sqrt(n))


def test_walk_to_the_goal_on_a_dry_lake() -> None:
    env = FrozenLake(size=3, is_slippery=False, **OPEN_LAKE)
    assert env.reset(seed=0)[0] == "P__\n___\n__G"
    observation, reward, terminated, _, info = env.step("left")  # the border: valid, no effect
    assert (observation, reward, terminated) == ("P__\n___\n__G", 0.0, False)
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, False)
    assert env.step("RIGHT")[0] == "_P_\n___\n__G"
    assert env.step("Right")[0] == "__P\n___\n__G"
    assert env.step("Down")[0] == "___\n__P\n__G"
    assert env.step("Down") == (
        *("___\n___\n__√", 1.0, True, False),
        {"success": True, "action_is_valid": True, "action_is_effective": True, "slipped": False},
    )


@pytest.mark.parametrize("random_start", [True, False])
def test_starts_are_solvable_and_as_described(random_start: bool) -> None:
    random = np.random.default_rng(0)
    holes = []
    pairs = set()
    for _ in range(2000):
        tiles, start = draw_start(random, 4, 0.8, random_start)
        goal = tiles.index("G")
        assert len(tiles) == 16 and tiles.count("G") == 1 and tiles[start] == "_"
        assert start in distances(tiles, 4)
        pairs.add((start, goal))
        holes.append(tiles.count("O"))
    if random_start:
        assert len(pairs) > 235  # nearly all of the 240 ordered pairs
        assert 2.6 < np.mean(holes) < 2.9  # RAGEN's lakes: 2.7 to 2.9, reference section 1
    else:
        assert pairs == {(0, 15)}


def success_probability(lake: Lake, start: int, actions: int) -> float:
    """Probability of reaching the goal in time with the best play, by plain recursion on the transitions."""

    @functools.cache
    def value(tile: int, left: int) -> float:
        if lake.tiles[tile] != "_" or left == 0:
            return float(lake.tiles[tile] == "G")
        return max(sum(p * value(n, left - 1) for p, n in lake.transitions(tile, action)) for action in ACTIONS)

    return value(start, actions)


def test_the_best_action_is_best_for_the_actions_left() -> None:
    lake = Lake(3, "__G" + "_O_" + "___", 0.8)
    assert [ACTIONS[lake_policy(lake, 16)[left - 1, 1]] for left in (1, 16)] == ["Right", "Up"]
    # By hand, on tile 1 with the hole below: Right reaches the goal with .8, but slips into the hole with .1.
    # Up cannot: it stays (.8) or slips to the goal or to the left (.1 each). With time, patience is better.
    assert success_probability(lake, 1, 1) == pytest.approx(0.8)
    # So for each number of actions left.
    env = FrozenLake(success_rate=0.8)
    for seed in range(40):
        env.reset(seed=seed)
        for left in range(1, 11):
            outcomes = env.lake.transitions(env.position, best_action(env, left))
            value = sum(p * success_probability(env.lake, tile, left - 1) for p, tile in outcomes)
            assert value == pytest.approx(success_probability(env.lake, env.position, left), abs=1e-9)
