"""Advantages of groups, of turns, whitening, and the filters: slow obvious loops, identities, rounding."""

import random
from dataclasses import dataclass
from statistics import stdev
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.filtering import group_std, most_uncertain_groups, top_mass_groups
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from tests.support.ragen_trl.trainers import double

BASELINES = ("mean", "leave_one_out")
SCALES = ("group", "batch", "none")

each_option = pytest.mark.parametrize(("baseline", "scale"), [(b, s) for b in BASELINES for s in SCALES])


@each_option
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_of_equal_returns_is_exactly_zero(baseline: Any, scale: Any, dtype: torch.dtype) -> None:
    """Regression: a standard deviation of pure rounding, 1e-17, would blow the rounding up to advantages of one."""
    returns = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3, 0.0, 1.0, 0.0, 0.0], dtype=dtype)
    found = group_advantages(returns, 4, baseline, scale, eps=0.0)
    assert found[:4].tolist() == [0.0] * 4
    assert (found[4:] != 0).all()


@each_option
def test_a_group_is_compared_with_itself_alone(baseline: Any, scale: Any) -> None:
    one, other = double([1.0, 0.0, 0.0, 2.0]), double([5.0, 1.0, 0.0, 0.0])
    apart = torch.cat([group_advantages(group, 4, baseline, scale) for group in (one, other)])
    both = group_advantages(torch.cat([one, other]), 4, baseline, scale)
    assert torch.allclose(both, apart) == (scale != "batch")


some_numbers = st.lists(st.integers(-50, 50).map(lambda n: n / 10), min_size=2, max_size=12)


@settings(max_examples=50, deadline=None)
@given(numbers=some_numbers, split=st.integers(0, 12))
def test_two_processes_whiten_as_one(numbers: list[float], split: int) -> None:
    """The sum of the moments is all that they exchange; one of them may hold nothing that counts."""
    values = double(numbers)
    mask = torch.arange(len(numbers)) % 3 != 1
    shares = [(values[:split], mask[:split]), (values[split:], mask[split:])]
    moments: list[torch.Tensor] = []
    for share in shares:
        whiten(*share, lambda local: moments.append(local) or local)
    found = torch.cat([whiten(*share, lambda _: moments[0] + moments[1]) for share in shares])
    torch.testing.assert_close(found, whiten(values, mask), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_numbers_whiten_to_zero(count: int) -> None:
    """Regression: a sample variance of one number is 0 / 0, and a NaN advantage ends a run."""
    values = torch.tensor([5.0, 6.0])
    assert whiten(values, torch.arange(2) < count).tolist() == [0.0, 0.0]


def test_whitening_stays_exact_far_from_zero() -> None:
    """Sums of squares lose digits where the mean is large against the spread; in float64 enough are left."""
    numbers = [0.0, 1.0, 2.0, 5.0]
    near, far = (whiten(double(numbers) + shift, torch.ones(4)) for shift in (0.0, 1e4))
    torch.testing.assert_close(far, near, atol=1e-7, rtol=0)


# GiGPO and MT-GRPO: slow obvious loops over single turns, and identities

SEEDS = range(10)
GROUP = 4
each_seed = pytest.mark.parametrize("seed", SEEDS)


@dataclass
class Play:
    """One episode: (state, reward) of each turn, and an outcome."""

    turns: list[tuple[str, float]]
    outcome: float


def some_plays(seed: int) -> list[Play]:
    """Episodes of one to five turns in few states, which therefore recur, within an episode too."""
    rng = random.Random(seed)
    return [
        Play(
            [(rng.choice("abcd"), rng.choice([0.0, 0.5, 1.0, -0.1])) for _ in range(rng.randint(1, 5))],
            rng.choice([0.0, 1.0]),
        )
        for _ in range(3 * GROUP)
    ]


def tensors(plays: list[Play]) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, K) rewards and mask."""
    rewards = torch.zeros(len(plays), max(len(play.turns) for play in plays), dtype=torch.float64)
    mask = torch.zeros_like(rewards)
    for row, play in enumerate(plays):
        rewards[row, : len(play.turns)] = double([reward for _, reward in play.turns])
        mask[row, : len(play.turns)] = 1
    return rewards, mask


def anchors(plays: list[Play]) -> list[list[str]]:
    return [[state for state, _ in play.turns] for play in plays]


def gigpo(plays: list[Play], **options: Any) -> torch.Tensor:
    return gigpo_advantages(*tensors(plays), anchors(plays), GROUP, **options)


def mt_grpo(plays: list[Play], **options: Any) -> torch.Tensor:
    outcomes = torch.tensor([play.outcome for play in plays], dtype=torch.float64)
    return mt_grpo_advantages(*tensors(plays), outcomes, GROUP, **options)


def slow_compare(value: float, compared: list[float], eps: float | None) -> float:
    mean = sum(compared) / len(compared)
    if max(abs(other - mean) for other in compared) < 1e-9:
        return 0.0
    return (value - mean) / (1.0 if eps is None else stdev(compared) + eps)


def slow_gigpo(plays: list[Play], gamma: float, weight: float, eps: float | None) -> list[list[float]]:
    found = []
    for row, play in enumerate(plays):
        first = row // GROUP * GROUP
        group = plays[first : first + GROUP]
        totals = [sum(reward for _, reward in other.turns) for other in group]
        of_episode = slow_compare(totals[row - first], totals, eps)
        steps = []
        for k, (state, _) in enumerate(play.turns):
            alike = [
                step_return(other, j, gamma)
                for other in group
                for j, (met, _) in enumerate(other.turns)
                if met == state
            ]
            steps.append(of_episode + weight * slow_compare(step_return(play, k, gamma), alike, eps))
        found.append(steps)
    return found


def step_return(play: Play, start: int, gamma: float) -> float:
    return sum(gamma**j * reward for j, (_, reward) in enumerate(play.turns[start:]))


def slow_mt_grpo(plays: list[Play], weight: float, eps: float) -> list[list[float]]:
    found = []
    for row, play in enumerate(plays):
        group = plays[row // GROUP * GROUP :][:GROUP]
        of_outcome = slow_compare(play.outcome, [other.outcome for other in group], eps)
        turns = []
        for k, (_, reward) in enumerate(play.turns):
            alike = [other.turns[k][1] for other in group if k < len(other.turns)]
            turns.append(slow_compare(reward, alike, eps) + weight * of_outcome)
        found.append(turns)
    return found


def assert_turns(found: torch.Tensor, expected: list[list[float]]) -> None:
    for row, wanted in zip(found.tolist(), expected, strict=True):
        assert row == pytest.approx(wanted + [0.0] * (len(row) - len(wanted)), abs=1e-9)


@each_seed
@pytest.mark.parametrize(("scale", "eps"), [("group", 1e-6), ("group", 1e-4), ("none", 1e-6)])
def test_gigpo_agrees_with_a_slow_loop(seed: int, scale: Any, eps: float) -> None:
    plays = some_plays(seed)
    found = gigpo(plays, gamma=0.9, step_weight=0.7, scale=scale, eps=eps)
    assert_turns(found, slow_gigpo(plays, 0.9, 0.7, eps if scale == "group" else None))


@each_seed
def test_mt_grpo_agrees_with_a_slow_loop(seed: int) -> None:
    plays = some_plays(seed)
    assert_turns(mt_grpo(plays, weight=0.7), slow_mt_grpo(plays, 0.7, 1e-4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rewards_equal_up_to_rounding_give_exactly_zero(dtype: torch.dtype) -> None:
    """Regression: 0.1 + 0.2 against 0.3 is a spread of rounding alone, which a division would blow up to one."""
    rewards = torch.tensor([[0.1 + 0.2], [0.3], [0.3], [0.3]], dtype=dtype)
    mask, states = torch.ones(4, 1), [["s"]] * 4
    assert gigpo_advantages(rewards, mask, states, 4, eps=0.0).tolist() == [[0.0]] * 4
    assert mt_grpo_advantages(rewards, mask, rewards[:, 0], 4, eps=0.0).tolist() == [[0.0]] * 4
    assert gigpo_advantages(rewards, mask, states, 4).dtype == dtype
    assert mt_grpo_advantages(rewards, mask, rewards[:, 0], 4).dtype == dtype


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_an_episode_without_an_outcome_changes_no_other(baseline: Any, scale: Any) -> None:
    """Groups of four, of which one and all have no return: what is left is compared as if they had not been played."""
    nan = float("nan")
    returns = torch.tensor([1.0, nan, 0.0, 2.0, nan, nan, nan, nan])
    found = group_advantages(returns, 4, baseline, scale)
    expected = group_advantages(torch.tensor([1.0, 0.0, 2.0]), 3, baseline, scale)
    torch.testing.assert_close(found[[0, 2, 3]], expected)
    assert found[[1, 4, 5, 6, 7]].tolist() == [0.0] * 5
    assert group_std(returns, 4).tolist() == [1.0, 0.0]


# The filters, and faults of RAGEN's release that they must not have


@pytest.mark.parametrize(
    ("count", "ratio", "kept"),
    [
        *[(1, 0.25, 1), (3, 0.25, 1), (7, 0.25, 1), (8, 0.25, 2), (5, 0.99, 4)],
        *[(100, 0.29, 29), (100, 0.57, 57), (100, 0.07, 7), (10, 0.3, 3)],
    ],
)
def test_a_share_is_rounded_down_to_one_group_at_least(count: int, ratio: float, kept: int) -> None:
    """Regression: int(0.25 · 3) is 0, an empty batch, on which RAGEN's first version crashed; 0.29 · 100 is 28.99…."""
    assert len(most_uncertain_groups(torch.ones(count), ratio)) == kept


def test_groups_without_spread_are_never_kept() -> None:
    assert most_uncertain_groups(torch.zeros(4), 0.25) == []
    assert most_uncertain_groups(torch.tensor([0.0, 0.3, 0.0, 0.0]), 0.75) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_returns_have_no_spread_in_spite_of_rounding(dtype: torch.dtype) -> None:
    """Three times 0.1 added up in different orders differ in the last bit: rounding, not signal."""
    returns = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3], dtype=dtype)
    returns = torch.cat([returns, 1000 * returns])
    assert group_std(returns, 4).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("mass", "kept"), [(0.07, 7), (0.29, 29), (0.57, 57), (1.0, 100)])
def test_rounding_of_the_mass_takes_no_further_group(mass: float, kept: int) -> None:
    """Regression: 0.07 · 100 is 7.000000000000001; and the sum of 0.1s depends on how it is added up."""
    for score in (1.0, 0.1):
        assert top_mass_groups(torch.full((100,), score), mass, eps=0.0) == list(range(kept))
