"""The lake's oracle: against breadth-first search, slow recursion, and RAGEN's measured baselines."""

import functools

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, FrozenLake, TextEnv, best_action, plan
from ragen_envs.frozen_lake.maps import ACTIONS, Lake, has_path, neighbours
from ragen_envs.frozen_lake.oracle import lake_policy
from ragen_envs.oracles import random_action


def steps_to_goal(lake: Lake, start: int) -> int:
    """Length of a shortest path, by breadth-first search."""
    layer, seen, steps = {start}, {start}, 0
    while not any(lake.tiles[tile] == "G" for tile in layer):
        layer = {n for tile in layer for n in neighbours(lake.size)[tile] if lake.tiles[n] != "O"} - seen
        seen |= layer
        steps += 1
    return steps


def success_probability(lake: Lake, start: int, actions: int, policy: str) -> float:
    """Probability of reaching the goal in time, by plain recursion on the transitions."""

    @functools.cache
    def value(tile: int, left: int) -> float:
        if lake.tiles[tile] != "_" or left == 0:
            return float(lake.tiles[tile] == "G")
        options = [sum(p * value(n, left - 1) for p, n in lake.transitions(tile, action)) for action in ACTIONS]
        if policy == "random":
            return sum(options) / len(options)
        if policy == "best":
            return max(options)
        return options[lake_policy(lake, 16)[left - 1, tile]]

    return value(start, actions)


def play(env: TextEnv, seed: int, actions: int, rng: np.random.Generator | None) -> tuple[bool, int]:
    """Success and length of one episode of the oracle, or of the random policy if it gets a generator."""
    env.reset(seed=seed)
    for done in range(actions):
        action = best_action(env, actions - done) if rng is None else random_action(env, rng)
        _, _, terminated, _, info = env.step(action)
        if terminated:
            return info["success"], done + 1
    return False, actions


def test_dry_lake_is_walked_by_a_shortest_path() -> None:
    env = FrozenLake(is_slippery=False)
    for seed in range(200):
        env.reset(seed=seed)
        shortest = steps_to_goal(env.lake, env.position)
        assert play(env, seed, 20, None) == (True, shortest)
        assert play(env, seed, shortest, None) == (True, shortest)  # not an action to spare


def test_slippery_policy_reaches_the_best_success_probability() -> None:
    for success_rate in (1 / 3, 0.8):
        env = FrozenLake(success_rate=success_rate)
        for seed in range(25):
            env.reset(seed=seed)
            best = success_probability(env.lake, env.position, 10, "best")
            assert success_probability(env.lake, env.position, 10, "oracle") == pytest.approx(best, abs=1e-9)


def test_horizon_is_the_true_one() -> None:
    lake = Lake(3, "__G" + "_O_" + "___", 0.8)
    assert [ACTIONS[lake_policy(lake, 16)[left - 1, 1]] for left in (1, 16)] == ["Right", "Up"]
    # By hand, on tile 1 with the hole below: Right reaches the goal with .8, but slips into the hole with .1.
    # Up cannot: it stays (.8) or slips to the goal or to the left (.1 each). With time, patience is better.
    assert success_probability(lake, 1, 1, "best") == pytest.approx(0.8)


def test_best_action_is_best_for_the_actions_left() -> None:
    env = FrozenLake(success_rate=0.8)
    for seed in range(40):
        env.reset(seed=seed)
        for left in range(1, 11):
            outcomes = env.lake.transitions(env.position, best_action(env, left))
            value = sum(p * success_probability(env.lake, tile, left - 1, "best") for p, tile in outcomes)
            assert value == pytest.approx(success_probability(env.lake, env.position, left, "best"), abs=1e-9)


def ragen_lakes(seeds: range) -> list[tuple[Lake, int]]:
    """RAGEN's own lakes for its environment seeds: the same draws in the same order."""
    lakes = []
    for seed in seeds:
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        while True:
            board = random.choice(["_", "O"], (4, 4), p=[0.8, 0.2])
            start, goal = tuple(random.integers(4, size=2)), tuple(random.integers(4, size=2))
            if start == goal:
                continue
            board[start], board[goal] = "_", "G"
            tiles, tile = "".join(board.ravel()), int(start[0] * 4 + start[1])
            if has_path(tiles, 4, tile, tiles.index("G")):
                break
        lakes.append((Lake(4, tiles, 1 / 3), tile))
    return lakes


def test_baselines_on_ragens_validation_lakes() -> None:
    # Reference, section 0.1: random 21.2 %, oracle 48.3 % with 10 actions on seeds 123 to 378. Here exactly.
    lakes = ragen_lakes(range(123, 379))
    means = {
        policy: np.mean([success_probability(*lake, 10, policy) for lake in lakes]) for policy in ("random", "best")
    }
    assert means == {"random": pytest.approx(0.212, abs=0.0005), "best": pytest.approx(0.483, abs=0.0005)}


def test_baselines_by_play_on_our_own_lakes() -> None:
    # All lakes, not RAGEN's 256: random 22.0 %, oracle 50.3 % (exact values over 6000 lakes, s.e. 0.2 and 0.3 %).
    env, n = FrozenLake(), 1024
    rng = np.random.default_rng(0)
    assert np.mean([play(env, seed, 10, rng)[0] for seed in range(n)]) == pytest.approx(0.220, abs=0.03)
    assert np.mean([play(env, seed, 10, None)[0] for seed in range(n)]) == pytest.approx(0.503, abs=0.04)


def test_plan_is_exact_without_slipping_and_leaves_the_environment_alone() -> None:
    env = AgentTurns(gymnasium.make("ragen/FrozenLake-v0", is_slippery=False), max_actions_per_turn=10)
    for seed in range(30):
        message, _ = env.reset(seed=seed)
        actions = plan(env, 10, 10, np.random.default_rng(seed))
        lake = env.unwrapped.lake
        assert len(actions) == steps_to_goal(lake, env.unwrapped.position)
        assert env.reset(seed=seed)[0] == message
        assert env.step(env.format_reply(actions))[-1]["success"]
