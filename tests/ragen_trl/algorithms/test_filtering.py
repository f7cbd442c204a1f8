"""The filters: shared vectors, slow obvious loops, and faults of RAGEN's release that they must not have."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.algorithms.filtering import group_std, most_uncertain_groups, top_mass_groups
from tests.support.project import VECTORS as VECTOR_FILE

VECTORS = json.loads(VECTOR_FILE.read_text())
TOLERANCE = VECTORS["meta"]["tol"]


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


def test_groups_without_spread_are_never_kept() -> None:
    assert most_uncertain_groups(torch.zeros(4), 0.25) == []
    assert most_uncertain_groups(torch.tensor([0.0, 0.3, 0.0, 0.0]), 0.75) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_returns_have_no_spread_in_spite_of_rounding(dtype: torch.dtype) -> None:
    """Three times 0.1 added up in different orders differ in the last bit: rounding, not signal."""
    returns = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.3], dtype=dtype)
    returns = torch.cat([returns, 1000 * returns])
    assert group_std(returns, 4).tolist() == [0.0, 0.0]


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


@pytest.mark.parametrize(("mass", "kept"), [(0.07, 7), (0.29, 29), (0.57, 57), (1.0, 100)])
def test_rounding_of_the_mass_takes_no_further_group(mass: float, kept: int) -> None:
    """Regression: 0.07 · 100 is 7.000000000000001; and the sum of 0.1s depends on how it is added up."""
    for score in (1.0, 0.1):
        assert top_mass_groups(torch.full((100,), score), mass, eps=0.0) == list(range(kept))
