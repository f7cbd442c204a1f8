"""Intervals with several episodes a start state: identities, and how often they cover the truth; pass@k by hand."""

import itertools
import math

import numpy as np
import pytest

from ragen_envs import wilson_interval
from ragen_trl.evaluation.intervals import paired_difference, pass_at_k, rate_interval, ratio_variance


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 40), (13, 40), (40, 40)])
def test_one_episode_a_start_state_is_the_wilson_interval(successes: int, n: int) -> None:
    outcomes = [1] * successes + [0] * (n - successes)
    assert rate_interval(outcomes, [1] * n) == wilson_interval(successes, n)


def test_start_states_that_always_end_alike_count_once() -> None:
    """Copies of an episode are no news: the interval is that of the start states alone."""
    for copies in (8, 32):
        totals = [copies, 0, 0, copies, 0, 0, 0, 0, copies, 0]
        assert rate_interval(totals, [copies] * 10) == pytest.approx(wilson_interval(3, 10))
    assert rate_interval([0] * 10, [8] * 10) == pytest.approx(wilson_interval(0, 10))
    assert rate_interval([8] * 10, [8] * 10) == pytest.approx(wilson_interval(10, 10))


def test_a_design_effect_by_hand() -> None:
    """An effect of 1.6 with 5 degrees of freedom; 1 is known beforehand, with 2."""
    effect = 24 * (6 / 5 * 8 / 24**2) / 0.25
    worth = 24 / ((2 * 1 + 5 * effect) / 7) * (1.959964 / 2.364624) ** 2  # t with 7 degrees of freedom
    assert rate_interval([4, 2, 0, 2, 2, 2], [4] * 6) == pytest.approx(wilson_interval(worth / 2, worth))
    # No spread at all is luck: no more than twice the episodes.
    assert rate_interval([2] * 4000, [4] * 4000) == pytest.approx(wilson_interval(16000, 32000))


def test_the_variance_by_hand() -> None:
    """Sizes 2 and 1, totals 2 and 0: ratio 2/3, residuals 2 - 4/3 and -2/3; 2/1 · (4/9 + 4/9) / 9."""
    assert ratio_variance([2, 0], [2, 1]) == pytest.approx(2 * (8 / 9) / 9)
    values = [0.5, 1.5, -1.0, 4.0]
    assert math.sqrt(ratio_variance(values, [1] * 4)) == pytest.approx(np.std(values, ddof=1) / 2)
    assert ratio_variance([3.0], [4]) == 0.0


def covered(starts: int, episodes: int, correlation: float, rate: float, times: int) -> np.ndarray:
    """How many of so many intervals of a rate, and of a difference of 0, contain it.

    Difficulties of start states are beta distributed, and the other policy finds about half of them as difficult.
    """
    random, size = np.random.default_rng([starts, episodes, int(100 * rate)]), (times, 2, starts)
    concentration = (1 / correlation - 1) * np.array([rate, 1 - rate]) if correlation else None
    chances = np.full(size, rate) if concentration is None else random.beta(*concentration, size=size)
    chances[:, 1] = np.where(random.random((times, starts)) < 0.5, chances[:, 0], chances[:, 1])
    hits = np.zeros(2)
    for won in random.binomial(episodes, chances).tolist():
        low, high = rate_interval(won[0], [episodes] * starts)
        outcomes = ([[1] * one + [0] * (episodes - one) for one in each] for each in won)
        pair = paired_difference(*(dict(enumerate(each)) for each in outcomes))
        assert pair is not None
        hits += [low <= rate <= high, pair["low"] <= 0 <= pair["high"]]
    return hits


@pytest.mark.parametrize("starts", [6, 12, 40])
@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.5])
def test_rates_and_differences_are_covered_as_often_as_promised(starts: int, correlation: float) -> None:
    """A mean over episodes and rates; differences of 0 with 6 start states are the widest."""
    rates = np.linspace(0.05, 0.95, 10)
    found = [covered(starts, episodes, correlation, rate, 40) for episodes in (1, 4, 16) for rate in rates]
    of_rates, of_differences = sum(found) / 1200
    assert 0.94 < of_rates < 0.97 and 0.94 < of_differences < (0.985 if starts == 6 else 0.97)


def test_few_start_states_with_a_success_say_little_of_the_spread() -> None:
    """Regression: degrees of freedom of all start states covered 0.87 of such rates."""
    assert covered(12, 16, 0.5, 0.1, 400)[0] / 400 > 0.93


def test_a_paired_difference_by_hand() -> None:
    """Start 0 has two episodes; 3 and 4 are played by one policy only. Differences 0.5, 1, 0."""
    found = paired_difference({0: [1, 0], 1: [1], 2: [0], 3: [1]}, {0: [0], 1: [0], 2: [0], 4: [1]})
    assert found is not None and (found["value"], found["starts"]) == (0.5, 3)
    variance = (0.5**2 + 1 + 3 / 3.5) / 5 - (1.5 / 5) ** 2
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
