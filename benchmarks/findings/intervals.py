"""Intervals of differences between a few training runs: paired by seed, and by start state where that is recorded.

Two things make a success rate uncertain: the training run (its seed) and the evaluation (which episodes were played).
The interval of a mean over seeds is Student's t. With three seeds it can be short by chance: three runs may happen to
end alike. So it is never shorter than what the evaluations alone leave open. A baseline that was evaluated once adds
the variance of that evaluation, however many seeds are compared with it.

Aggregates over several games follow Agarwal et al. (2021, "Deep reinforcement learning at the edge of the statistical
precipice", arXiv 2108.13264): scores are normalised, their middle half is averaged (the interquartile mean), intervals
come from a bootstrap that draws runs within each game, and a performance profile shows all runs at once. Their
package ``rliable`` needs scipy, arch and seaborn for what are a few lines.

Left out: tests that give p-values, since an interval says the same and how large the difference may be; a correction
for the number of claims, which is said next to them instead.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, stdev
from typing import TypeVar

from ragen_trl.evaluation.intervals import difference_arm

Value = TypeVar("Value")
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval.

    Attributes:
        mean: The estimate.
        low: Lower end.
        high: Upper end.
        n: How many seeds (or trials) it rests on.
    """

    mean: float
    low: float
    high: float
    n: int


@cache
def t_quantile(freedom: int, level: float = 0.975) -> float:
    """The quantile of Student's t distribution, for ``level`` above 0.5.

    By bisection of the closed form of its probability for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and
    26.7.4).

    Example:
        >>> [round(t_quantile(freedom), 3) for freedom in (1, 2, 4, 30)]
        [12.706, 4.303, 2.776, 2.042]
    """
    low, high = 0.0, 1e4
    while high - low > 1e-9 * (1 + low):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * level - 1 else (low, middle)
    return low


def _within(t: float, freedom: int) -> float:
    """The probability that a t-distributed variable lies between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = total = cosine if odd else 1.0
    for order in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (order - 1) / order
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0))


def t_interval(values: Sequence[float], least: float = 0.0) -> Interval:
    """The mean of a few runs, with Student's t interval.

    Args:
        values: One a seed; at least two.
        least: The interval reaches at least so far on both sides.

    Raises:
        ValueError: For a single value, which says nothing about others.

    Example:
        >>> found = t_interval([1.0, 2.0, 3.0])
        >>> round(found.low, 3), round(found.high, 3)
        (-0.484, 4.484)
    """
    if len(values) < 2:
        raise ValueError(f"{len(values)} values have no interval; give two or more")
    mean = fmean(values)
    arm = max(t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)), least)
    return Interval(mean, mean - arm, mean + arm, len(values))


def evaluation_arm(rates: Sequence[Sequence[float]], episodes: int) -> float:
    """What the evaluations leave open of a mean difference of rates: 1.96 standard errors.

    Without a record of every episode the pairing by start state is unknown, and the two rates of a pair are taken as
    independent, which is rather too much. Rates of 0 and 1 have no spread, so two successes and two failures are added
    (Agresti and Coull 1998).

    Args:
        rates: A row a seed: the rates that its difference is made of, one or two.
        episodes: Played for each rate.

    Example:
        >>> round(evaluation_arm([[0.5, 0.5]] * 4, 256), 4)  # 1.96 · √(2 · 0.25 / 260 / 4)
        0.043
    """
    variances = [standard_error(rate, episodes) ** 2 for row in rates for rate in row]
    return _Z * math.sqrt(math.fsum(variances)) / len(rates)


def standard_error(rate: float, episodes: int) -> float:
    """Of a success rate over so many episodes, with two successes and two failures added."""
    share = (rate * episodes + 2) / (episodes + 4)
    return math.sqrt(share * (1 - share) / (episodes + 4))


def above_one(rates: Sequence[float], episodes: int, one: float, played: int) -> Interval:
    """The mean rate of a few runs less a rate that was evaluated once, of a baseline or the model that they began with.

    All runs are compared with the same evaluation, whose error no number of runs makes smaller. So its variance is
    added once to that of their mean.

    Args:
        rates: Of the runs, one a seed; at least two.
        episodes: Played for each of them.
        one: The rate that they are compared with.
        played: Episodes played for it.

    Example:
        >>> found = above_one([0.7, 0.7, 0.7, 0.7], 256, 0.5, 256)
        >>> round(found.high - found.mean, 3)  # √(0.028² + 0.061²)
        0.067
    """
    mean = t_interval(rates, evaluation_arm([[rate] for rate in rates], episodes))
    arm = math.hypot(mean.high - mean.mean, evaluation_arm([[one]], played))
    return Interval(mean.mean - one, mean.mean - one - arm, mean.mean - one + arm, mean.n)


def start_state_arm(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    """The same where every episode is recorded: `difference_arm`, paired by seed and start state.

    Args:
        ours: A row a seed, 1 or 0 for each start state; the start states are the same in all rows.
        theirs: The same runs of what it is compared with.

    Example:
        >>> round(start_state_arm([[1, 1, 0, 1]], [[0, 1, 0, 1]]), 3)  # differences 1, 0, 0, 0: 1.96 · √(2 - 1/6) / 6
        0.442
    """
    by_state = zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True)
    return difference_arm([fmean(first) - fmean(second) for first, second in by_state])


def relative_interval(games: Sequence[Sequence[tuple[float, float]]], episodes: Sequence[int]) -> Interval:
    """The mean over games of how much higher the mean rate of ours is, as a share of theirs.

    The variance of a game's share is that of a ratio of means (delta method): of the residuals of its seeds, and never
    less in all games together than what the evaluations alone leave open.

    Args:
        games: A row a game: ours and theirs by seed; at least two seeds.
        episodes: Of an evaluation, by game.

    Returns:
        The interval; ``n`` is the smallest number of seeds in a game.

    Example:
        >>> found = relative_interval([[(0.6, 0.5), (0.6, 0.5)], [(0.3, 0.2), (0.3, 0.2)]], [256, 256])
        >>> round(found.mean, 3)  # 0.2 in one game, 0.5 in the other
        0.35
    """
    shares, spread, left_open = [], [], []
    for pairs, played in zip(games, episodes, strict=True):
        ours, theirs = (fmean(pair[side] for pair in pairs) for side in (0, 1))
        ratio = ours / theirs
        residuals = [(first - ratio * second) / theirs for first, second in pairs]
        shares.append(ratio - 1)
        spread.append(stdev(residuals) ** 2 / len(pairs))
        arms = [evaluation_arm([[pair[side]] for pair in pairs], played) for side in (0, 1)]
        left_open.append((math.hypot(arms[0], ratio * arms[1]) / theirs) ** 2)
    # Degrees of freedom of a sum of unequal variances (Welch 1947, Satterthwaite 1946), rounded down.
    unequal = math.fsum(each**2 / (len(pairs) - 1) for each, pairs in zip(spread, games, strict=True))
    freedom = int(math.fsum(spread) ** 2 / unequal + 1e-9) if unequal else 1
    arm = max(t_quantile(freedom) * math.sqrt(math.fsum(spread)), math.sqrt(math.fsum(left_open))) / len(games)
    return Interval(fmean(shares), fmean(shares) - arm, fmean(shares) + arm, min(map(len, games)))


def bootstrap_interval(
    groups: Sequence[Sequence[Value]],
    statistic: Callable[[Sequence[Sequence[Value]]], float],
    samples: int = 2000,
    again: Callable[[Sequence[Value], random.Random], Sequence[Value]] | None = None,
) -> Interval:
    """A percentile bootstrap that draws runs with replacement within each group, the same draws every time.

    Args:
        groups: The runs' values, a row a game (or one row).
        statistic: Of such rows.
        samples: How many draws.
        again: Draws a row in another way than runs with replacement.

    Example:
        >>> found = bootstrap_interval([[0.0, 1.0, 2.0, 3.0]], lambda rows: fmean(rows[0]))
        >>> found.mean, 0 <= found.low < 1.5 < found.high <= 3
        (1.5, True)
    """
    draw = random.Random(0)
    redraw = again or (lambda row, draw: draw.choices(row, k=len(row)))
    drawn = sorted(statistic([redraw(row, draw) for row in groups]) for _ in range(samples))
    low, high = (drawn[round(share * (samples - 1))] for share in (0.025, 0.975))
    return Interval(statistic(groups), low, high, sum(map(len, groups)))


def interquartile_mean(values: Sequence[float]) -> float:
    """The mean of the middle half; a quarter of the values is cut at both ends, rounded down.

    Example:
        >>> interquartile_mean([9.0, 1.0, 2.0, 3.0, 0.0, 2.5, -7.0, 100.0])
        2.125
    """
    cut = len(values) // 4
    return fmean(sorted(values)[cut : len(values) - cut])


def performance_profile(values: Sequence[float], levels: Sequence[float]) -> list[float]:
    """The share of runs above each level.

    Example:
        >>> performance_profile([0.1, 0.5, 0.9], [0.0, 0.5, 1.0])
        [1.0, 0.3333333333333333, 0.0]
    """
    return [sum(value > level for value in values) / len(values) for level in levels]


def best_by_chance(evaluations: float) -> float:
    """How far the best of so many equal evaluations lies above their mean, in standard errors (Blom 1958).

    Example:
        >>> [round(best_by_chance(number), 2) for number in (1, 9, 21)]
        [0.0, 1.49, 1.89]
    """
    return NormalDist().inv_cdf((evaluations - 0.375) / (evaluations + 0.25))
