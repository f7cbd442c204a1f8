"""Bandit: pay-outs, names and order, sets of names, pictures, and thoughts about names alone."""

from collections import Counter

import gymnasium
import numpy as np
import pytest

from ragen_envs import Bandit
from ragen_envs.bandit import NAME_SETS


def pay(env: Bandit, arm: str, outcome_seed: int) -> float:
    """The reward of one pull, start state of seed 0."""
    env.reset(seed=0, options={"outcome_seed": outcome_seed})
    return float(env.step(arm)[1])


def test_low_arm_always_pays_a_tenth_and_high_arm_one_a_quarter_of_the_time() -> None:
    env = Bandit()
    assert {pay(env, "Phoenix", seed) for seed in range(200)} == {0.1}
    rewards = [pay(env, "Dragon", seed) for seed in range(4000)]
    assert set(rewards) == {0.0, 1.0}
    assert np.mean(rewards) == pytest.approx(0.25, abs=0.028)  # 4 standard errors


def test_episode_is_one_choice_and_success_is_the_high_arm_whatever_it_paid() -> None:
    env = Bandit()
    for seed in range(8):
        env.reset(seed=seed)
        observation, reward, terminated, truncated, info = env.step("dragon")
        assert observation == f"Dragon: {reward:g} points"
        assert (terminated, truncated) == (True, False)
        assert info == {"success": True, "action_is_valid": True, "action_is_effective": True, "arm": "Dragon"}
        env.reset(seed=seed)
        observation, _, terminated, _, info = env.step("PHOENIX ")
        assert (observation, terminated) == ("Phoenix: 0.1 points", True)
        assert (info["success"], info["arm"]) == (False, "Phoenix")


TRAIN_PAIRS, TEST_PAIRS = NAME_SETS["ragen2-train"], NAME_SETS["ragen2-test"]


def test_sets_of_names_have_no_name_in_common_and_draw_each_pair_as_often() -> None:
    assert (len(TRAIN_PAIRS), len(TEST_PAIRS)) == (12, 8)
    names = [name for pair in [*TRAIN_PAIRS, *TEST_PAIRS] for name in pair]
    assert len({name.casefold() for name in names}) == 40
    assert (TRAIN_PAIRS[0], TRAIN_PAIRS[-1]) == (["Teacher", "Trader"], ["Gardener", "Cryptominer"])
    assert TEST_PAIRS[0] == ["Receptionist", "Explorer"] and TEST_PAIRS[-1] == ["CivilServant", "StartupAccelerator"]
    # Each pair is drawn as often as another, and keeps its roles.
    env = gymnasium.make("ragen/Bandit-v0", names="ragen2-train").unwrapped
    assert isinstance(env, Bandit)
    drawn: Counter[tuple[str, str]] = Counter()
    firsts = 0
    for seed in range(2400):
        observation, _ = env.reset(seed=seed)
        assert observation == f"Machines: {env.actions[0]}, {env.actions[1]}"
        low = next(name for name in env.actions if name != env.high_name)
        drawn[low, env.high_name] += 1
        firsts += env.actions[0] == env.high_name
    assert set(drawn) == set(map(tuple, TRAIN_PAIRS))
    assert all(145 < count < 255 for count in drawn.values())  # 200 expected, 4 standard errors
    assert 1102 < firsts < 1298


def test_ragen_1_trains_on_one_pair_tests_on_another_and_rev_swaps_them() -> None:
    high = {}
    for key in ("ragen1-train", "ragen1-test", "ragen1-rev-train", "ragen1-rev-test"):
        env = Bandit(names=key)
        env.reset(seed=0)
        high[key] = env.high_name, *sorted(env.actions)
    assert high == {
        "ragen1-train": ("Teacher", "Engineer", "Teacher"),
        "ragen1-test": ("Librarian", "Librarian", "Trader"),
        "ragen1-rev-train": ("Engineer", "Engineer", "Teacher"),
        "ragen1-rev-test": ("Trader", "Librarian", "Trader"),
    }


def test_a_thought_does_not_know_which_arm_pays() -> None:
    """The same names and the same choice get the same words, whichever is the better arm."""
    texts = []
    for names in ("phoenix-dragon", "dragon-phoenix"):
        env = Bandit(names)  # before a reset the arms are sorted, so that their order is the same
        texts.append([env.explain([arm], np.random.default_rng(seed)) for seed in range(40) for arm in env.actions])
    assert texts[0] == texts[1]
