"""Intervals of rates, of pass@k and of paired differences, where several episodes of a start state are alike.

The variance between start states (the linearised variance of a ratio) gives a design effect (Kish 1965), which says how
many independent trials the episodes are worth; limits are beta quantiles for that many (Korn and Graubard 1998, Survey
Methodology 24:193). What is known beforehand moderates it, with the degrees of freedom of both (Smyth 2004, Stat. Appl.
Genet. Mol. Biol. 3:3). docs/evaluation.md says how often the truth is covered.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any

from scipy.special import betaincinv, stdtrit

_Z = NormalDist().inv_cdf(0.975)


def ratio_variance(totals: Sequence[float], sizes: Sequence[int]) -> float:
    """Variance of ``sum(totals) / sum(sizes)`` over independent clusters: m/(m-1) · Σ (t_i - r n_i)² / (Σ n_i)².

    t_i is the sum over the n_i episodes of each of m start states. 0 for a single one, whose variance is unknown.
    """
    count, n = len(totals), sum(sizes)
    if count < 2:
        return 0.0
    ratio = sum(totals) / n
    residuals = [total - ratio * size for total, size in zip(totals, sizes, strict=True)]
    return count / (count - 1) * math.fsum(residual**2 for residual in residuals) / n**2


def _degrees(starts: int, episodes: float, unlike: int) -> tuple[float, float]:
    """Degrees of freedom of what is known beforehand of a design effect, and of its estimate.

    It is from 1 to the episodes of a start state; the 6 is the choice that covers best in `benchmarks/coverage.py`. The
    estimate says little if few start states end ``unlike`` the rest.
    """
    more = episodes / starts - 1
    return 6 / more if more else math.inf, min(starts - 1, 2 * max(0, unlike - 1))


def rate_interval(totals: Sequence[float], sizes: Sequence[int]) -> tuple[float, float]:
    """95 % interval of a rate, from the successes and episodes of each start state.

    The variance between start states says how many independent trials the rate is worth: the episodes, divided by the
    design effect and by (t / z)². They are at most twice the episodes, and at least (Σ n_i)² / Σ n_i², the number of
    start states if all are equally large. Limits are halfway from Jeffreys', which cover too seldom, to Clopper and
    Pearson's, which cover too often (Brown, Cai, DasGupta 2001). For a pass@k, ``totals`` are shares times ``sizes``.

    Example:
        >>> [round(bound, 3) for bound in rate_interval([4, 0, 4, 0], [4, 4, 4, 4])]  # four coins, not sixteen
        [0.093, 0.907]
    """
    n, count = sum(sizes), len(sizes)
    rate = math.fsum(totals) / n
    trials = least = n**2 / sum(size**2 for size in sizes)
    pairs = list(zip(totals, sizes, strict=True))
    unlike = min(sum(total > 0 for total, _ in pairs), sum(total < size for total, size in pairs))
    if unlike and n > count:
        before, estimated = _degrees(count, n, unlike)
        effect = n * ratio_variance(totals, sizes) / (rate * (1 - rate))
        effect = (before + estimated * effect) / (before + estimated)
        trials = max(least, min(2.0, (_Z / float(stdtrit(before + estimated, 0.975))) ** 2 / effect) * n)
    won, lost = rate * trials, (1 - rate) * trials
    low = float(betaincinv(won + 0.25, lost + 0.75, 0.025)) if won > 0 else 0.0
    return low, float(betaincinv(won + 0.75, lost + 0.25, 0.975)) if lost > 0 else 1.0


def paired_difference(
    ours: Mapping[int, Sequence[float]], theirs: Mapping[int, Sequence[float]]
) -> dict[str, float] | None:
    """How much more often one policy succeeds than another, paired by start state.

    The interval of the mean of the m differences in [-1, 1] is t standard errors. One start state is added, or nothing
    would be left where all agree: its difference is √(1/k) with both signs, for k episodes a start state. For k = 1 it
    is half of what Agresti and Min add (2005, Statistics in Medicine 24:729).

    Args:
        ours: Start seed → 1 or 0 for each of its episodes, of which there is at least one.
        theirs: The same of the other policy. Start states that only one of them played are left out.

    Returns:
        ``value``, its 95 % interval ``low`` and ``high``, and the number of ``starts``; `None` if they share none.

    Example:
        >>> found = paired_difference({0: [1], 1: [1], 2: [0]}, {1: [0], 2: [0], 3: [1]})
        >>> found["value"], found["starts"]
        (0.5, 2)
    """
    shared = [seed for seed in ours if seed in theirs]
    differences = [fmean(ours[seed]) - fmean(theirs[seed]) for seed in shared]
    if not differences:
        return None
    starts = len(shared)
    episodes = sum(len(ours[seed]) + len(theirs[seed]) for seed in shared) / 2
    squares = math.fsum(difference**2 for difference in differences) + starts / episodes
    centre = math.fsum(differences) / (starts + 1)
    degrees = sum(_degrees(starts, episodes, sum(difference != 0 for difference in differences)))
    error = math.sqrt((squares / (starts + 1) - centre**2) / starts)
    arm = float(stdtrit(max(1, min(degrees, starts - 1)), 0.975)) * error
    low, high = max(-1.0, centre - arm), min(1.0, centre + arm)
    return {"value": fmean(differences), "low": low, "high": high, "starts": starts}


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """``1 - C(n - c, k) / C(n, k)``: the share of all sets of k attempts that contain a success.

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1) from n ≥ k attempts with c successes; 1 -
    (1 - c/n)^k is biased for k > 1.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    sets = math.comb(attempts, k)
    return (sets - math.comb(attempts - successes, k)) / sets


def with_interval(result: Mapping[str, Any], digits: int = 3, sign: str = "") -> str:
    """A rate with its 95 % interval, as ``0.350 [0.310, 0.392]``; with the sign "+", a difference.

    ``result`` has the fields of an ``EvaluationResult``, or those of its pass@k or of a difference: ``value`` and its
    interval.
    """
    names = ("value", "low", "high") if "value" in result else ("success", "success_low", "success_high")
    value, low, high = (f"{result[name]:{sign}.{digits}f}" for name in names)
    return f"{value} [{low}, {high}]"
