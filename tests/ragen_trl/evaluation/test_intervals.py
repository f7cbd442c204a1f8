"""Intervals with several episodes a start state: identities, and how often they cover the truth."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from ragen_envs import wilson_interval, wilson_score
from ragen_trl.evaluation.intervals import mean_interval, paired_difference, rate_interval, ratio_variance
from ragen_trl.evaluation.pass_at_k import pass_at_k


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 40), (13, 40), (40, 40)])
def test_one_episode_a_start_state_is_the_wilson_interval(successes: int, n: int) -> None:
    outcomes = [1] * successes + [0] * (n - successes)
    assert rate_interval(outcomes, [1] * n) == wilson_interval(successes, n)
    assert mean_interval(outcomes, 1) == pytest.approx(wilson_interval(successes, n))


def test_start_states_that_always_end_alike_count_once() -> None:
    """Copies of an episode are no news: the interval is that of the start states alone."""
    for copies in (2, 8):
        totals = [copies, 0, 0, copies, 0, 0, 0, 0, copies, 0]
        assert rate_interval(totals, [copies] * 10) == pytest.approx(wilson_interval(3, 10))
    assert rate_interval([0] * 10, [8] * 10) == pytest.approx(wilson_interval(0, 10))
    assert rate_interval([8] * 10, [8] * 10) == pytest.approx(wilson_interval(10, 10))


def test_start_states_of_one_difficulty_let_every_episode_count() -> None:
    """Between start states there is less spread than chance alone gives, which must shorten nothing further."""
    assert rate_interval([2] * 10, [4] * 10) == pytest.approx(wilson_interval(20, 40))


def test_the_variance_by_hand() -> None:
    """Sizes 2 and 1, totals 2 and 0: ratio 2/3, residuals 2 - 4/3 and -2/3; 2/1 · (4/9 + 4/9) / 9."""
    assert ratio_variance([2, 0], [2, 1]) == pytest.approx(2 * (8 / 9) / 9)
    values = [0.5, 1.5, -1.0, 4.0]
    assert math.sqrt(ratio_variance(values, [1] * 4)) == pytest.approx(np.std(values, ddof=1) / 2)
    assert ratio_variance([3.0], [4]) == 0.0


def test_the_mean_interval_is_about_the_bootstraps_where_that_can_be_trusted() -> None:
    random = np.random.default_rng(0)
    shares = [pass_at_k(8, int(random.binomial(8, p)), 4) for p in random.beta(0.5, 2.0, size=400)]
    means = np.array([np.mean(random.choice(shares, len(shares))) for _ in range(500)])
    low, high = mean_interval(shares, 8)
    assert (low, high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.01)


def coverage(truth: float, draw: Callable[[], tuple[float, float]], repeats: int = 500) -> float:
    bounds = [draw() for _ in range(repeats)]
    return sum(low <= truth <= high for low, high in bounds) / repeats


def test_rates_are_covered_as_often_as_promised_where_the_plain_interval_is_too_short() -> None:
    """Difficulties from Beta(0.4, 1.2): mean 0.25, so clustered that 8 episodes are worth about two."""
    random = np.random.default_rng(1)
    count, samples = 48, 8

    def totals() -> list[int]:
        return [int(each) for each in random.binomial(samples, random.beta(0.4, 1.2, size=count))]

    assert 0.92 < coverage(0.25, lambda: rate_interval(totals(), [samples] * count)) < 0.98
    assert coverage(0.25, lambda: wilson_score(sum(totals()) / (count * samples), count * samples)) < 0.8


def test_pass_at_k_is_covered_as_often_as_promised() -> None:
    """E[1 - (1 - p)^4] with p from Beta(0.4, 1.2) is 1 - B(0.4, 5.2) / B(0.4, 1.2)."""
    truth = 1 - math.gamma(5.2) * math.gamma(1.6) / (math.gamma(5.6) * math.gamma(1.2))
    random = np.random.default_rng(2)

    def draw() -> tuple[float, float]:
        counts = random.binomial(8, random.beta(0.4, 1.2, size=48))
        return mean_interval([pass_at_k(8, int(count), 4) for count in counts], 8)

    assert 0.92 < coverage(truth, draw) < 0.98


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"), [(0.5, 0.3, 0.8), (0.6, 0.59, 0.98), (0.95, 0.9, 0.8), (1.0, 0.9, 0)]
)
def test_paired_differences_are_covered_as_often_as_promised(ours: float, theirs: float, shared: float) -> None:
    """Some start states decide both outcomes by the same chance; rates near 1 and policies that hardly differ, too."""
    random = np.random.default_rng(3)

    def draw() -> tuple[float, float]:
        chance, other = random.random((2, 64))
        same = random.random(64) < shared
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
    assert found["high"] == pytest.approx(min(1.0, 0.5 + 1.96 * math.sqrt(variance / 5)), abs=1e-4)
    assert found["low"] == pytest.approx(0.5 - 1.96 * math.sqrt(variance / 5), abs=1e-4)
    assert paired_difference({0: [1]}, {1: [1]}) is None


def test_pairing_shortens_the_interval_where_start_states_decide() -> None:
    """Half of the states are solved by both: the two rates alone say +0.25 with intervals that overlap."""
    theirs = {seed: [float(seed < 16)] for seed in range(32)}
    ours = {seed: [float(seed < 24)] for seed in range(32)}
    found = paired_difference(ours, theirs)
    assert found is not None and found["low"] > 0.08
    assert rate_interval([1] * 24 + [0] * 8, [1] * 32)[0] < rate_interval([1] * 16 + [0] * 16, [1] * 32)[1]
