"""The filters: shared vectors, slow obvious loops, and faults of RAGEN's release that they must not have."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.algorithms.filtering import as_groups, dispersion, group_std, most_uncertain_groups, top_mass_groups
from tests.support.project import VECTORS as VECTOR_FILE

VECTORS = json.loads(VECTOR_FILE.read_text())
TOLERANCE = VECTORS["meta"]["tol"]
CASES = {case["id"]: case for case in VECTORS["filter"]}
TOP_K = ("fl_topk_0.25", "fl_topk_0.75", "fl_small_batch")


def double(values: list[Any]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def slow_std(returns: list[float]) -> float:
    mean = sum(returns) / len(returns)
    return math.sqrt(sum((value - mean) ** 2 for value in returns) / (len(returns) - 1))


def slow_filter(stds: list[float], ratio: float) -> list[int]:
    """Take the largest, the first of equals, one after the other."""
    left = dict(enumerate(stds))
    kept = []
    for _ in range(max(1, math.floor(ratio * len(stds) + 1e-9))):
        best = min(left, key=lambda index: (-left[index], index))
        if left.pop(best) > 0:
            kept.append(best)
    return sorted(kept)


@pytest.mark.parametrize("name", TOP_K)
def test_the_vectors_groups_are_kept(name: str) -> None:
    case = CASES[name]
    stds = group_std(double(case["inputs"]["groups"]).flatten(), 2)
    assert most_uncertain_groups(stds, case["inputs"]["ratio"]) == case["expected"]["kept"]
    if "std_ddof1" in case["expected"]:
        torch.testing.assert_close(stds, double(case["expected"]["std_ddof1"]), atol=TOLERANCE, rtol=0)


def test_the_deviation_is_the_sample_deviation() -> None:
    case = CASES["fl_ddof_unequal_groups"]
    stds = [group_std(double(group), len(group)).item() for group in case["inputs"]["groups"]]
    assert stds == pytest.approx(case["expected"]["std_ddof1"], abs=TOLERANCE)


@settings(max_examples=100, deadline=None)
@given(
    groups=st.lists(
        st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, -0.2]), min_size=4, max_size=4), min_size=1, max_size=9
    ),
    ratio=st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.99]),
)
def test_a_slow_loop_agrees(groups: list[list[float]], ratio: float) -> None:
    stds = group_std(double(groups).flatten(), 4)
    slow = [slow_std(group) for group in groups]
    assert stds.tolist() == pytest.approx(slow, abs=TOLERANCE)
    assert most_uncertain_groups(stds, ratio) == slow_filter(stds.tolist(), ratio)


def test_normalised_returns_would_rank_the_groups_by_noise() -> None:
    """Regression: RAGEN normalises within groups before it filters, so all groups look equally uncertain."""
    raw = double([[0.0, 1.0, 0.0, 1.0], [0.50, 0.51, 0.50, 0.50], [0.2, 0.2, 0.2, 0.2], [0.0, 0.0, 0.1, 0.0]]).flatten()
    assert most_uncertain_groups(group_std(raw, 4), 0.25) == [0]
    normalised = group_std(group_advantages(raw, 4), 4)
    assert normalised[[0, 1, 3]].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-3)
    order = group_std(raw, 4).argsort(descending=True).tolist()
    assert order[:3] == [0, 3, 1]


@pytest.mark.parametrize(
    ("count", "ratio", "kept"), [(1, 0.25, 1), (3, 0.25, 1), (7, 0.25, 1), (8, 0.25, 2), (5, 0.99, 4)]
)
def test_a_share_below_one_group_still_keeps_one(count: int, ratio: float, kept: int) -> None:
    """Regression: int(0.25 · 3) is 0, an empty batch, on which RAGEN's first version crashed."""
    assert len(most_uncertain_groups(torch.ones(count), ratio)) == kept


@pytest.mark.parametrize(("ratio", "count", "kept"), [(0.29, 100, 29), (0.57, 100, 57), (0.07, 100, 7), (0.3, 10, 3)])
def test_rounding_of_the_share_loses_no_group(ratio: float, count: int, kept: int) -> None:
    """Regression: 0.29 · 100 is 28.999999999999996."""
    assert len(most_uncertain_groups(torch.ones(count), ratio)) == kept


@pytest.mark.parametrize("count", [4, 40, 400])
def test_of_equal_groups_the_first_are_kept(count: int) -> None:
    assert most_uncertain_groups(torch.ones(count), 0.5) == list(range(count // 2))
    assert most_uncertain_groups(torch.tensor([0.5, 1.0, 0.5, 1.0]), 0.75) == [0, 1, 3]


def test_groups_without_spread_are_never_kept() -> None:
    assert most_uncertain_groups(torch.zeros(4), 0.25) == []
    assert most_uncertain_groups(torch.tensor([0.0, 0.3, 0.0, 0.0]), 0.75) == [1]


def test_a_ratio_of_one_filters_nothing() -> None:
    assert most_uncertain_groups(torch.tensor([0.0, 0.3, 0.0]), 1.0) == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_returns_have_no_spread_in_spite_of_rounding(dtype: torch.dtype) -> None:
    """Three times 0.1 added up in different orders differ in the last bit: rounding, not signal."""
    returns = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3], dtype=dtype)
    returns = torch.cat([returns, 1000 * returns])
    assert group_std(returns, 4).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("count", "size", "message"),
    [(4, 1, "group_size is 1; a group needs at least 2"), (5, 2, "5 returns do not divide into groups of 2")],
)
def test_groups_that_cannot_be_compared_are_refused(count: int, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_groups(torch.zeros(count), size)


def slow_top_mass(scores: list[float], mass: float, eps: float) -> list[int]:
    """Take the largest, the first of equals, until enough is taken."""
    left = {index: score for index, score in enumerate(scores) if score > 0}
    kept: list[int] = []
    while left and math.fsum(scores[index] for index in kept) < mass * math.fsum(scores) - eps - 1e-7:
        best = min(left, key=lambda index: (-left[index], index))
        del left[best]
        kept.append(best)
    return sorted(kept)


@settings(max_examples=200, deadline=None)
@given(
    scores=st.lists(st.integers(0, 12).map(lambda n: n / 8), min_size=1, max_size=9),
    mass=st.sampled_from([0.1, 0.5, 0.75, 0.9, 0.99, 1.0]),
    eps=st.sampled_from([0.0, 0.01, 0.5]),
)
def test_a_slow_loop_takes_the_same_mass(scores: list[float], mass: float, eps: float) -> None:
    assert top_mass_groups(double(scores), mass, eps) == slow_top_mass(scores, mass, eps)


def test_the_top_mass_by_hand() -> None:
    """Of the sum 2, 0.5 needs the first group alone, 0.6 a second, 0.9 two more; equal ones come in their order."""
    scores = double([0.25, 1.0, 0.25, 0.0, 0.5])
    assert top_mass_groups(scores, 0.5, eps=0.0) == [1]
    assert top_mass_groups(scores, 0.6, eps=0.0) == [1, 4]
    assert top_mass_groups(scores, 0.8, eps=0.0) == [0, 1, 4]
    assert top_mass_groups(scores, 0.9, eps=0.0) == [0, 1, 2, 4]


def test_variances_keep_fewer_groups_than_standard_deviations() -> None:
    """RAGEN-2's paper sums variances, its code standard deviations: the same mass is another filter."""
    stds = double([0.8, 0.1, 0.4])
    assert top_mass_groups(stds, 0.9, eps=0.0) == [0, 2]
    assert top_mass_groups(stds.square(), 0.75, eps=0.0) == [0]
    assert top_mass_groups(stds, 0.75, eps=0.0) == [0, 2]


def test_the_whole_mass_leaves_out_only_groups_without_spread() -> None:
    assert top_mass_groups(double([0.3, 0.0, 0.1, 0.0]), 1.0, eps=0.0) == [0, 2]
    assert top_mass_groups(torch.zeros(3), 1.0, eps=0.0) == []


def test_a_batch_whose_mass_is_within_eps_leaves_none() -> None:
    assert top_mass_groups(double([0.005, 0.004]), 1.0) == []


@pytest.mark.parametrize(("mass", "kept"), [(0.07, 7), (0.29, 29), (0.57, 57), (1.0, 100)])
def test_rounding_of_the_mass_takes_no_further_group(mass: float, kept: int) -> None:
    """Regression: 0.07 · 100 is 7.000000000000001; and the sum of 0.1s depends on how it is added up."""
    for score in (1.0, 0.1):
        assert top_mass_groups(torch.full((100,), score), mass, eps=0.0) == list(range(kept))


@settings(max_examples=50, deadline=None)
@given(scores=st.lists(st.integers(0, 20), min_size=1, max_size=9), factor=st.integers(2, 9))
def test_dispersion_has_no_unit_and_agrees_with_a_slow_loop(scores: list[int], factor: int) -> None:
    mean = sum(scores) / len(scores)
    slow = math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores)) / mean if mean else 0.0
    assert dispersion(double(scores)) == pytest.approx(slow, abs=1e-12)
    assert dispersion(factor * double(scores)) == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("score", [-0.1, math.nan, math.inf])
def test_scores_that_are_no_spread_are_refused(score: float) -> None:
    with pytest.raises(ValueError, match=rf"scores of groups are \[1.0, {score}\]"):
        top_mass_groups(double([1.0, score]), 0.9)
    with pytest.raises(ValueError, match=rf"scores of groups are \[1.0, {score}\]"):
        dispersion(double([1.0, score]))


@pytest.mark.parametrize("mass", [0.0, -0.5, 1.1])
def test_a_mass_out_of_its_range_is_refused(mass: float) -> None:
    with pytest.raises(ValueError, match=f"mass is {mass}; it must be in"):
        top_mass_groups(torch.ones(2), mass)
