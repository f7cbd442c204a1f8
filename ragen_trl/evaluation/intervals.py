"""Intervals of rates and means where several episodes share a start state, and so are alike.

The variance is the one between start states (the linearised variance of a ratio). It gives a design effect (Kish 1965),
and the interval is Wilson's for n / design effect episodes (Franco, Little, Louis and Slud, 2019, J. Survey Statistics
and Methodology 7:334). Two policies that played the same start states are compared by their difference from each one.
A bootstrap over start states would shrink to a point if all agree (0 of 64 successes would read [0, 0]).
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any

from ragen_envs import wilson_score

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


def rate_interval(successes: Sequence[int], episodes: Sequence[int]) -> tuple[float, float]:
    """95 % interval of a success rate, from the successes and episodes of each start state.

    The design effect is kept between 1 (episodes of a start state are independent) and Σ n_i² / Σ n_i (they all end
    alike). An estimate outside these bounds is due to chance.

    Example:
        >>> [round(bound, 3) for bound in rate_interval([4, 0, 4, 0], [4, 4, 4, 4])]  # four coins, not sixteen
        [0.15, 0.85]
    """
    n = sum(episodes)
    share = sum(successes) / n
    most = sum(size**2 for size in episodes) / n
    naive = share * (1 - share) / n
    known = naive > 0 and len(episodes) > 1
    effect = min(max(ratio_variance(successes, episodes) / naive, 1.0), most) if known else most
    return wilson_score(share, n / effect)


def mean_interval(shares: Sequence[float], episodes: int) -> tuple[float, float]:
    """95 % interval of the mean of a probability in [0, 1] that was estimated for each start state, such as pass@k.

    The effective number of trials is ``p (1 - p)`` over the variance of the mean, kept between the number of start
    states and the number of episodes.
    """
    count = len(shares)
    mean = math.fsum(shares) / count
    variance = ratio_variance(shares, [1] * count)
    effective = mean * (1 - mean) / variance if variance > 0 else float(count)
    return wilson_score(mean, min(max(effective, count), count * episodes))


def difference_arm(differences: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean of paired differences in [-1, 1]: 1.96 standard errors over start states.

    Where all differences are 0 they have no spread, and yet a start state may exist where the two differ. So two start
    states are added, one where they do not differ and half a one for each way in which they may (Agresti and Min 2005,
    Statistics in Medicine 24:729).

    Example:
        >>> round(difference_arm([1, 0, 0, 0]), 3)  # 1.96 · √(2 - 1/6) / 6
        0.442
    """
    count = len(differences) + 2
    squares = math.fsum(value**2 for value in differences) + 1
    return _Z * math.sqrt(squares - math.fsum(differences) ** 2 / count) / count


def paired_difference(
    ours: Mapping[int, Sequence[float]], theirs: Mapping[int, Sequence[float]]
) -> dict[str, float] | None:
    """How much more often one policy succeeds than another, paired by start state.

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
    value, arm = fmean(differences), difference_arm(differences)
    return {"value": value, "low": max(-1.0, value - arm), "high": min(1.0, value + arm), "starts": len(differences)}


def with_interval(result: Mapping[str, Any], digits: int = 3, rate: str = "success") -> str:
    """A rate with its 95 % interval, as ``0.350 [0.310, 0.392]``.

    ``result`` has the fields of an ``EvaluationResult`` or, with ``rate="value"``, of its pass@k or of a difference.
    """
    low, high = ("low", "high") if rate == "value" else (f"{rate}_low", f"{rate}_high")
    return f"{result[rate]:.{digits}f} [{result[low]:.{digits}f}, {result[high]:.{digits}f}]"


def signed_with_interval(difference: Mapping[str, Any], digits: int = 3) -> str:
    """A difference with its interval, as ``+0.203 [+0.121, +0.285]``."""
    value, low, high = (f"{difference[name]:+.{digits}f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def lies_above(result: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the success interval of ``result`` lies wholly above the interval of ``other``."""
    return bool(result["success_low"] > other["success_high"])
