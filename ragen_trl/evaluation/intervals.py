"""Intervals of rates and means where several episodes share a start state.

Episodes from one start state are alike: an easy room is solved by most of them, a hard one by few. Start states are
drawn independently, episodes are not, and an interval that counts every episode as new information is too short. Here
the variance is taken between start states (the linearised variance of a ratio, as in survey sampling), turned into a
design effect (Kish 1965), and the Wilson interval is taken at the effective number of episodes, n / design effect (the
form that Franco, Little, Louis and Slud, 2019, J. Survey Statistics and Methodology 7:334, recommend). With one episode
a start state that is the ordinary Wilson interval.

Left out: the percentile bootstrap over start states. It agrees where rates are moderate, but shrinks to a point where
all start states agree (0 of 64 successes would read [0, 0]), and needs a seed.
"""

import math
from collections.abc import Sequence

from ragen_envs import wilson_score


def ratio_variance(totals: Sequence[float], sizes: Sequence[int]) -> float:
    """Variance of ``sum(totals) / sum(sizes)`` over independent clusters: m/(m-1) · Σ (t_i - r n_i)² / (Σ n_i)².

    Args:
        totals: t_i, what the episodes of each start state add up to; m of them.
        sizes: n_i, how many there are.

    Returns:
        The variance; 0 for a single cluster, of which nothing can be said.
    """
    count, n = len(totals), sum(sizes)
    if count < 2:
        return 0.0
    ratio = sum(totals) / n
    residuals = [total - ratio * size for total, size in zip(totals, sizes, strict=True)]
    return count / (count - 1) * math.fsum(residual**2 for residual in residuals) / n**2


def rate_interval(successes: Sequence[int], episodes: Sequence[int]) -> tuple[float, float]:
    """95 % interval of a success rate over all episodes.

    The design effect is kept between 1 (episodes of a start state are independent) and Σ n_i² / Σ n_i (they all end
    alike): outside of it lies only chance.

    Args:
        successes: How many episodes of each start state succeeded.
        episodes: How many there are of each.

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
    """95 % interval of the mean of one estimated probability a start state, such as its pass@k.

    The effective number of trials is ``p (1 - p)`` over the variance of the mean, kept between the number of start
    states and the number of episodes behind them.

    Args:
        shares: One number in [0, 1] for each start state.
        episodes: Episodes of each.
    """
    count = len(shares)
    mean = math.fsum(shares) / count
    variance = ratio_variance(shares, [1] * count)
    effective = mean * (1 - mean) / variance if variance > 0 else float(count)
    return wilson_score(mean, min(max(effective, count), count * episodes))
