"""Group advantages and whitening: shared vectors, slow obvious loops, and identities that hold for any returns."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.algorithms.advantages import group_advantages, moments, whiten, whiten_with
from tests.support.project import VECTORS as VECTOR_FILE

VECTORS = json.loads(VECTOR_FILE.read_text())
TOLERANCE = VECTORS["meta"]["tol"]
CASES = {case["id"]: case for case in VECTORS["group_advantages"]}
# How our options spell the estimators of the vectors.
ESTIMATORS: dict[str, dict[str, Any]] = {
    "verl_ddof1_eps1e6": {},
    "trl_ddof1_eps1e4": {"eps": 1e-4},
    "ddof0_eps1e6": {"ddof": 0},
    "drgrpo_mean_only": {"scale": "none"},
    "rloo": {"baseline": "leave_one_out", "scale": "none"},
}
BASELINES = ("mean", "leave_one_out")
SCALES = ("group", "batch", "none")

each_option = pytest.mark.parametrize(("baseline", "scale"), [(b, s) for b in BASELINES for s in SCALES])
group_of_four = st.lists(st.integers(-20, 20).map(lambda n: n / 10), min_size=4, max_size=4)
some_groups = st.lists(group_of_four, min_size=1, max_size=5)


def double(values: list[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).flatten()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["ga1_sparse", "ga3_zero_var", "ga5_tiny_var"])
def test_single_groups_of_the_vectors(name: str, estimator: str) -> None:
    rewards, expected = CASES[name]["inputs"]["rewards"], CASES[name]["expected"][estimator]
    found = group_advantages(double(rewards), 4, **ESTIMATORS[estimator])
    torch.testing.assert_close(found, double(expected), atol=TOLERANCE, rtol=0)


def test_batch_scale_of_the_vectors() -> None:
    case = CASES["ga7_two_groups_batchstd"]
    found = group_advantages(double(case["inputs"]["rewards"]), 2, scale="batch", eps=1e-4)
    torch.testing.assert_close(found, double(case["expected"]["group_mean_batch_std"]), atol=TOLERANCE, rtol=0)


def slow_advantages(groups: list[list[float]], baseline: str, scale: str) -> list[float]:
    found = []
    everything = [value for group in groups for value in group]
    for group in groups:
        for index, value in enumerate(group):
            compared = group if baseline == "mean" else group[:index] + group[index + 1 :]
            divisor = 1.0 if scale == "none" else slow_std(group if scale == "group" else everything) + 1e-6
            flat = max(group) == min(group)
            found.append(0.0 if flat else (value - sum(compared) / len(compared)) / divisor)
    return found


def slow_std(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@each_option
@settings(max_examples=50, deadline=None)
@given(groups=some_groups)
def test_a_slow_loop_agrees(baseline: Any, scale: Any, groups: list[list[float]]) -> None:
    found = group_advantages(double(groups), 4, baseline, scale)
    torch.testing.assert_close(found, double(slow_advantages(groups, baseline, scale)), atol=1e-9, rtol=1e-9)


@each_option
@settings(max_examples=30, deadline=None)
@given(groups=some_groups)
def test_every_groups_advantages_sum_to_zero(baseline: Any, scale: Any, groups: list[list[float]]) -> None:
    sums = group_advantages(double(groups), 4, baseline, scale).reshape(-1, 4).sum(dim=1)
    torch.testing.assert_close(sums, torch.zeros_like(sums), atol=1e-9, rtol=0)


@each_option
@settings(max_examples=30, deadline=None)
@given(groups=some_groups, order=st.permutations(range(4)))
def test_reordering_a_groups_members_reorders_its_advantages(
    baseline: Any, scale: Any, groups: list[list[float]], order: list[int]
) -> None:
    reordered = [[group[index] for index in order] for group in groups]
    there = group_advantages(double(groups), 4, baseline, scale).reshape(-1, 4)[:, order]
    here = group_advantages(double(reordered), 4, baseline, scale).reshape(-1, 4)
    torch.testing.assert_close(here, there, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("scale", ["group", "none"])
@settings(max_examples=30, deadline=None)
@given(groups=some_groups)
def test_a_group_does_not_see_the_others(scale: Any, groups: list[list[float]]) -> None:
    together = group_advantages(double(groups), 4, scale=scale)
    alone = torch.cat([group_advantages(double(group), 4, scale=scale) for group in groups])
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("size", [2, 4, 16])
@pytest.mark.parametrize("scale", SCALES)
def test_leaving_oneself_out_stretches_by_n_over_n_minus_1(scale: Any, size: int) -> None:
    returns = torch.arange(size * 2, dtype=torch.float64).pow(2)
    mean = group_advantages(returns, size, "mean", scale)
    torch.testing.assert_close(group_advantages(returns, size, "leave_one_out", scale), mean * size / (size - 1))


@settings(max_examples=30, deadline=None)
@given(group=group_of_four, shift=st.integers(-3, 3), factor=st.integers(1, 9))
def test_only_differences_count_and_with_a_group_scale_only_their_ratios(
    group: list[float], shift: int, factor: int
) -> None:
    returns = double(group)
    plain = group_advantages(returns, 4, scale="none")
    torch.testing.assert_close(group_advantages(returns + shift, 4, scale="none"), plain, atol=1e-9, rtol=0)
    scaled = group_advantages(factor * returns, 4, eps=0.0)
    torch.testing.assert_close(scaled, group_advantages(returns, 4, eps=0.0), atol=1e-9, rtol=0)


@each_option
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_of_equal_returns_is_exactly_zero(baseline: Any, scale: Any, dtype: torch.dtype) -> None:
    """Regression: a standard deviation of pure rounding, 1e-17, would blow the rounding up to advantages of one."""
    returns = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3, 0.0, 1.0, 0.0, 0.0], dtype=dtype)
    found = group_advantages(returns, 4, baseline, scale, eps=0.0)
    assert found[:4].tolist() == [0.0] * 4
    assert (found[4:] != 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"baseline": "median"}, "baseline is 'median'; choose 'mean' or 'leave_one_out'"),
        ({"scale": "std"}, "scale is 'std'; choose 'group', 'batch' or 'none'"),
        ({"group_size": 1}, "group_size is 1"),
        ({"group_size": 3}, "4 returns do not divide into groups of 3"),
    ],
)
def test_unknown_options_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_advantages(torch.zeros(4), **{"group_size": 2, **arguments})


some_numbers = st.lists(st.integers(-50, 50).map(lambda n: n / 10), min_size=2, max_size=12)


@settings(max_examples=50, deadline=None)
@given(numbers=some_numbers)
def test_whitening_agrees_with_a_slow_loop(numbers: list[float]) -> None:
    mean, std = sum(numbers) / len(numbers), slow_std(numbers)
    slow = [(value - mean) / math.sqrt(std**2 + 1e-8) for value in numbers]
    found = whiten(double(numbers), torch.ones(len(numbers)))
    assert found.tolist() == pytest.approx(slow, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(numbers=some_numbers, split=st.integers(0, 12))
def test_two_processes_whiten_as_one(numbers: list[float], split: int) -> None:
    """The sum of the moments is all that they exchange; one of them may hold nothing that counts."""
    values = double(numbers)
    mask = torch.arange(len(numbers)) % 3 != 1
    shares = [(values[:split], mask[:split]), (values[split:], mask[split:])]
    reduced = moments(*shares[0]) + moments(*shares[1])
    found = torch.cat([whiten_with(*share, reduced) for share in shares])
    torch.testing.assert_close(found, whiten(values, mask), atol=1e-12, rtol=1e-12)


def test_whitened_advantages_have_mean_0_and_variance_1_whatever_is_masked_out() -> None:
    values = torch.tensor([[1.0, float("nan"), 4.0], [2.0, float("inf"), 9.0]])
    mask = torch.tensor([[1, 0, 1], [1, 0, 1]])
    found = whiten(values, mask)
    assert found[mask == 0].tolist() == [0.0, 0.0]
    assert found.sum().item() == pytest.approx(0.0, abs=1e-6)
    assert found[mask == 1].var().item() == pytest.approx(1.0, abs=1e-6)
    assert found.dtype == torch.float32
    torch.testing.assert_close(whiten(3 * values + 7, mask), found)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_numbers_whiten_to_zero(count: int) -> None:
    """Regression: a sample variance of one number is 0 / 0, and a NaN advantage ends a run."""
    values = torch.tensor([5.0, 6.0])
    assert whiten(values, torch.arange(2) < count).tolist() == [0.0, 0.0]


def test_a_share_of_one_is_whitened_by_the_whole_batch() -> None:
    found = whiten_with(double([3.0]), torch.ones(1), moments(double([1.0, 2.0, 3.0]), torch.ones(3)))
    assert found.tolist() == pytest.approx([1.0], abs=1e-7)


def test_equal_advantages_whiten_to_zero_and_rounding_stays_small() -> None:
    assert whiten(double([0.3] * 8), torch.ones(8)).abs().max().item() < 1e-11
    rounded = double([0.1 + 0.2, *[0.3] * 7])
    assert whiten(rounded, torch.ones(8)).abs().max().item() < 1e-11


@pytest.mark.parametrize("number", [1e3 + 0.1, 1e5 + 0.1, 1e6 + 0.3, -1e7 / 3])
def test_equal_numbers_far_from_zero_have_no_negative_variance(number: float) -> None:
    """Regression: rounding in the sum of squares may leave a variance under 0, whose root is NaN."""
    for count in range(2, 12):
        assert whiten(double([number] * count), torch.ones(count)).abs().max().item() < 1e-3


def test_whitening_stays_exact_far_from_zero() -> None:
    """Sums of squares lose digits where the mean is large against the spread; in float64 enough are left."""
    numbers = [0.0, 1.0, 2.0, 5.0]
    near, far = (whiten(double(numbers) + shift, torch.ones(4)) for shift in (0.0, 1e4))
    torch.testing.assert_close(far, near, atol=1e-7, rtol=0)


def test_masks_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"values have shape \(2, 3\), mask \(2, 1\)"):
        moments(torch.zeros(2, 3), torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"values have shape \(2, 3\), mask \(2, 1\)"):
        whiten_with(torch.zeros(2, 3), torch.ones(2, 1), torch.tensor([2.0, 0.0, 0.0]))
