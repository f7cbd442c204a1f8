"""Intervals of rates, of pass@k and of paired differences, where several episodes of a start state are alike.

The variance is the one between start states (the linearised variance of a ratio). It gives a design effect (Kish 1965),
and the interval is Wilson's for as many episodes as they are worth (Franco, Little, Louis and Slud, 2019, J. Survey
Statistics and Methodology 7:334). A variance from few start states is uncertain itself, hence Student's t.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any

from scipy.special import stdtrit

from ragen_envs import wilson_interval

_Z = NormalDist().inv_cdf(0.975)


def ratio_variance(totals: Sequence[float], sizes: Sequence[int]) -> float:
    """Variance of ``sum(totals) / sum(sizes)`` over independent clusters: m/(m-1) · Σ (t_i - r n_i)² / (Σ n_i)².

    t_i is the sum over the n_i episodes of each of the m start states. 0 for a single cluster, whose variance is
    unknown.
    """
    count, n = len(totals), sum(sizes)
    if count < 2:
        return 0.0
    ratio = sum(totals) / n
    residuals = [total - ratio * size for total, size in zip(totals, sizes, strict=True)]
    return count / (count - 1) * math.fsum(residual**2 for residual in residuals) / n**2


def rate_interval(totals: Sequence[float], sizes: Sequence[int], most: float | None = None) -> tuple[float, float]:
    """95 % interval of a rate, from the successes and episodes of each start state.

    The variance between start states says how many independent trials the rate is worth: ``rate (1 - rate) /
    variance``, shortened by (z / t)² because the variance has only as many degrees of freedom as there are start
    states less one. They are at least Σ n_i / (Σ n_i² / Σ n_i), the number of start states where all have equally many
    episodes (which then all end alike), and at most ``most``: by default the episodes, which are then independent. With
    one episode a start state the interval is Wilson's.

    For the mean of a pass@k, ``totals`` are the shares, ``sizes`` 1, and ``most`` the number of episodes.

    Example:
        >>> [round(bound, 3) for bound in rate_interval([4, 0, 4, 0], [4, 4, 4, 4])]  # four coins, not sixteen
        [0.15, 0.85]
    """
    n, count = sum(sizes), len(sizes)
    rate, variance = math.fsum(totals) / n, ratio_variance(totals, sizes)
    trials = least = n**2 / sum(size**2 for size in sizes)
    if count > 1 and (variance > 0 or 0 < rate < 1):
        most = n if most is None else most
        trials = min(rate * (1 - rate) / variance, most) if variance > 0 else most
        trials = max(trials * (_Z / float(stdtrit(count - 1, 0.975))) ** 2, least)
    return wilson_interval(rate * trials, trials)


def paired_difference(
    ours: Mapping[int, Sequence[float]], theirs: Mapping[int, Sequence[float]]
) -> dict[str, float] | None:
    """How much more often one policy succeeds than another, paired by start state.

    The interval of the mean of the m differences in [-1, 1] is t(m - 1) standard errors. Where all differences are 0
    they have no spread, and yet a start state may exist where the two differ. So two start states are added, one where
    they do not differ and half a one for each way in which they may (Agresti and Min 2005, Statistics in Medicine
    24:729).

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
    differences = [fmean(ours[seed]) - fmean(theirs[seed]) for seed in ours if seed in theirs]
    if not differences:
        return None
    value, count = fmean(differences), len(differences) + 2
    squares = math.fsum(difference**2 for difference in differences) + 1
    error = math.sqrt(squares - math.fsum(differences) ** 2 / count) / count
    arm = float(stdtrit(max(1, len(differences) - 1), 0.975)) * error
    return {"value": value, "low": max(-1.0, value - arm), "high": min(1.0, value + arm), "starts": len(differences)}


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
