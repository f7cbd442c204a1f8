"""Intervals with several episodes a start state: identities, and how often they cover the truth; pass@k by hand."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from ragen_envs import wilson_interval
from ragen_trl.evaluation.intervals import paired_difference, pass_at_k, rate_interval, ratio_variance


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 40), (13, 40), (40, 40)])
def test_one_episode_a_start_state_is_the_wilson_interval(successes: int, n: int) -> None:
    outcomes = [1] * successes + [0] * (n - successes)
    assert rate_interval(outcomes, [1] * n) == wilson_interval(successes, n)
    assert rate_interval(outcomes, [1] * n, n) == pytest.approx(wilson_interval(successes, n))


def test_start_states_that_always_end_alike_count_once() -> None:
    """Copies of an episode are no news: the interval is that of the start states alone."""
    for copies in (2, 8):
        totals = [copies, 0, 0, copies, 0, 0, 0, 0, copies, 0]
        assert rate_interval(totals, [copies] * 10) == pytest.approx(wilson_interval(3, 10))
    assert rate_interval([0] * 10, [8] * 10) == pytest.approx(wilson_interval(0, 10))
    assert rate_interval([8] * 10, [8] * 10) == pytest.approx(wilson_interval(10, 10))


def test_start_states_of_one_difficulty_let_every_episode_count() -> None:
    """Less spread between start states than chance gives shortens nothing further; ten of them leave t with 9."""
    worth = 40 * (1.959964 / 2.262157) ** 2
    assert rate_interval([2] * 10, [4] * 10) == pytest.approx(wilson_interval(worth / 2, worth))
    assert rate_interval([2] * 4000, [4] * 4000) == pytest.approx(wilson_interval(8000, 16000), abs=1e-5)


def test_the_variance_by_hand() -> None:
    """Sizes 2 and 1, totals 2 and 0: ratio 2/3, residuals 2 - 4/3 and -2/3; 2/1 · (4/9 + 4/9) / 9."""
    assert ratio_variance([2, 0], [2, 1]) == pytest.approx(2 * (8 / 9) / 9)
    values = [0.5, 1.5, -1.0, 4.0]
    assert math.sqrt(ratio_variance(values, [1] * 4)) == pytest.approx(np.std(values, ddof=1) / 2)
    assert ratio_variance([3.0], [4]) == 0.0


def coverage(truth: float, draw: Callable[[], tuple[float, float]], repeats: int = 500) -> float:
    bounds = [draw() for _ in range(repeats)]
    return sum(low <= truth <= high for low, high in bounds) / repeats


# Difficulties of start states: mean and shape of a beta distribution. With Beta(0.4, 1.2) eight episodes are worth two.
@pytest.mark.parametrize("shape", [(0.4, 1.2), (2.0, 2.0), (8.0, 2.0), (30.0, 30.0)])
@pytest.mark.parametrize("count", [8, 48])
def test_rates_are_covered_as_often_as_promised(count: int, shape: tuple[float, float]) -> None:
    """With z in place of t, 8 start states cover 0.91 to 0.93."""
    random = np.random.default_rng(1)

    def totals() -> list[int]:
        return [int(each) for each in random.binomial(8, random.beta(*shape, size=count))]

    truth = shape[0] / sum(shape)
    assert 0.93 < coverage(truth, lambda: rate_interval(totals(), [8] * count), 1000) < 0.995
    if shape == (0.4, 1.2):
        assert coverage(truth, lambda: wilson_interval(sum(totals()), count * 8)) < 0.8


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"), [(0.5, 0.3, 0.8), (0.6, 0.59, 0.98), (0.95, 0.9, 0.8), (1.0, 0.9, 0)]
)
@pytest.mark.parametrize("count", [8, 64])
def test_paired_differences_are_covered_as_often_as_promised(
    ours: float, theirs: float, shared: float, count: int
) -> None:
    """Some start states decide both outcomes by the same chance; rates near 1 and policies that hardly differ, too."""
    random = np.random.default_rng(3)

    def draw() -> tuple[float, float]:
        chance, other = random.random((2, count))
        same = random.random(count) < shared
        first = {seed: [float(value < ours)] for seed, value in enumerate(chance)}
        second = {seed: [float(value < theirs)] for seed, value in enumerate(np.where(same, chance, other))}
        found = paired_difference(first, second)
        assert found is not None
        return found["low"], found["high"]

    assert coverage(ours - theirs, draw) > 0.92


def test_a_paired_difference_by_hand() -> None:
    """Start 0 has two episodes; 3 and 4 are played by one policy only. Differences 0.5, 1, 0."""
    found = paired_difference({0: [1, 0], 1: [1], 2: [0], 3: [1]}, {0: [0], 1: [0], 2: [0], 4: [1]})
    assert found is not None and (found["value"], found["starts"]) == (0.5, 3)
    variance = (0.5**2 + 1 + 1) / 5 - (1.5 / 5) ** 2
    assert found["high"] == 1.0
    assert found["low"] == pytest.approx(max(-1.0, 0.5 - 4.303 * math.sqrt(variance / 5)), abs=1e-3)
    assert paired_difference({0: [1]}, {1: [1]}) is None


@pytest.mark.parametrize("attempts", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_sets_with_a_success(attempts: int) -> None:
    for successes in range(attempts + 1):
        outcomes = [True] * successes + [False] * (attempts - successes)
        for k in range(1, attempts + 1):
            sets = list(itertools.combinations(outcomes, k))
            assert pass_at_k(attempts, successes, k) == pytest.approx(sum(map(any, sets)) / len(sets), abs=1e-15)


def test_its_mean_over_attempts_is_the_true_probability() -> None:
    """Unbiased: summed over the binomial distribution of c it gives 1 - (1 - p)^k; the plug-in estimate does not."""
    n, k, p = 8, 4, 0.3
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(truth, abs=1e-12)
    plug_in = sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(weights))
    assert abs(plug_in - truth) > 0.01


def test_large_numbers_neither_overflow_nor_lose_digits() -> None:
    """Against the product that Chen et al. give for it."""
    n, c, k = 10_000, 3, 5_000
    assert pass_at_k(n, c, k) == pytest.approx(1 - np.prod(1 - k / np.arange(n - c + 1, n + 1)), rel=1e-12)
    assert pass_at_k(10**6, 1, 1) == 1e-6
