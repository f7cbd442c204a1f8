"""Intervals with several episodes a start state: identities, and how often they cover the truth; pass@k by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from ragen_trl.algorithms.intervals import paired_difference, pass_at_k, rate_interval, ratio_variance


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 40), (13, 40), (40, 40)])
def test_one_episode_a_start_state_is_between_clopper_pearson_and_jeffreys(successes: int, n: int) -> None:
    low, high = rate_interval([1] * successes + [0] * (n - successes), [1] * n)
    widest, fails = binomtest(successes, n).proportion_ci(), n - successes
    jeffreys = beta.ppf([0.025, 0.975], successes + 0.5, fails + 0.5)
    assert low == 0.0 if successes == 0 else widest.low < low < jeffreys[0]
    assert high == 1.0 if fails == 0 else jeffreys[1] < high < widest.high
    assert rate_interval([0] * successes + [1] * fails, [1] * n) == pytest.approx((1 - high, 1 - low))


def test_more_start_states_make_it_narrower() -> None:
    found = [rate_interval([4, 1, 0] * times, [4] * 3 * times) for times in (1, 2, 4, 8, 100)]
    assert all(wide[0] < low and high < wide[1] for wide, (low, high) in itertools.pairwise(found))


def test_start_states_that_always_end_alike_count_once() -> None:
    """Copies of an episode are no news: the interval is that of the start states alone."""
    for once in ([1, 0, 0, 1, 0, 0, 0, 0, 1, 0], [0] * 10, [1] * 10):
        for copies in (8, 32):
            totals = [copies * outcome for outcome in once]
            assert rate_interval(totals, [copies] * 10) == pytest.approx(rate_interval(once, [1] * 10))


def test_a_design_effect_by_hand() -> None:
    """An effect of 1.6 with 5 degrees of freedom; 1 is known beforehand, with 2."""
    effect = 24 * (6 / 5 * 8 / 24**2) / 0.25
    worth = 24 / ((2 * 1 + 5 * effect) / 7) * (1.959964 / 2.364624) ** 2  # t with 7 degrees of freedom
    low, high = rate_interval([4, 2, 0, 2, 2, 2], [4] * 6)
    assert (low, 1 - high) == pytest.approx([beta.ppf(0.025, worth / 2 + 0.25, worth / 2 + 0.75)] * 2)
    # A single start state is one trial; three quarters of a success give Beta(1, 1), the uniform distribution.
    assert (rate_interval([3], [4])[0], rate_interval([1], [4])[1]) == pytest.approx((0.025, 0.975))
    # No spread at all is luck: no more than twice the episodes.
    assert rate_interval([2] * 4000, [4] * 4000)[0] == pytest.approx(beta.ppf(0.025, 16000.25, 16000.75))


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
        pair = paired_difference(*(dict(enumerate(each)) for each in outcomes)) or {}
        hits += [low <= rate <= high, pair["low"] <= 0 <= pair["high"]]
    return hits


@pytest.mark.parametrize(
    ("starts", "episodes", "correlation", "rate"),
    [(6, 16, 0.25, 0.3), (12, 16, 0.5, 0.1), (25, 1, 0.0, 0.02), (50, 16, 0.5, 0.02), (60, 4, 0.5, 0.5)],
)
def test_rates_and_differences_are_covered(starts: int, episodes: int, correlation: float, rate: float) -> None:
    """As if episodes were independent, Wilson's covers 0.91 with one of each start state, and 0.44 to 0.8 with more."""
    assert min(covered(starts, episodes, correlation, rate, 500) / 500) > 0.93


def test_a_paired_difference_by_hand() -> None:
    """Start 0 has two episodes; 3 and 4 are played by one policy only. Differences 0.5, 1 and five of 0."""
    both = {seed: [1] for seed in range(5, 9)}
    found = paired_difference({0: [1, 0], 1: [1], 2: [0], 3: [1], **both}, {0: [0], 1: [0], 2: [0], 4: [1], **both})
    assert found is not None and (found["value"], found["starts"]) == (pytest.approx(1.5 / 7), 7)
    variance = ((0.5**2 + 1 + 7 / 7.5) / 8 - (1.5 / 8) ** 2) * 8 / 7
    arm = 2.446912 * math.sqrt(variance / 8)  # t with 6 degrees of freedom
    assert (found["low"], found["high"]) == pytest.approx((1.5 / 8 - arm, 1.5 / 8 + arm))
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
