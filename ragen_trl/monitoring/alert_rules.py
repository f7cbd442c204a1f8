"""The conditions of the alerts: when has a logged series changed for the worse? Pure functions.

A condition looks at the values logged so far and returns ``(value, threshold)`` if it holds at the last value, else
``None``. Windows count logged values: with ``logging_steps=5``, ten values are fifty steps. A condition does not hold
before the series has the length that it names, nor where the series began at zero. A single rollout has about a dozen
start states and says little, so means and medians of windows are compared with the run's own beginning or best.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median, variance

Verdict = tuple[float, float] | None
Condition = Callable[[Sequence[float]], Verdict]

START = 10
"""How many values at the beginning a run is compared with."""
RECENT = 8
"""How many of the last values are compared with these."""
_SPIKES_COUNTED = 20  # the last values among which spikes are looked for, and those whose median a spike exceeds


def is_spike(
    norms: Sequence[float], index: int, window: int = _SPIKES_COUNTED, factor: float = 10.0, min_history: int = 5
) -> bool:
    """Whether a gradient norm is above ``factor`` times the median of the ``window`` values before it, or not finite.

    The threshold is ours. Values that are not finite count as spikes and are left out of the medians; with fewer than
    ``min_history`` finite values before it, a finite value does not count.

    Example:
        >>> norms = [1.0, 1.0, 1.0, 1.0, 1.0, 20.0, math.nan]
        >>> [index for index in range(len(norms)) if is_spike(norms, index)]
        [5, 6]
    """
    if not math.isfinite(norms[index]):
        return True
    before = [norm for norm in norms[max(0, index - window) : index] if math.isfinite(norm)]
    return len(before) >= min_history and norms[index] > factor * median(before)


def spikes(norms: Sequence[float]) -> Verdict:
    """At least three gradient spikes within the last 20 values, above ten times the median of the first values.

    A policy that has solved its tasks has hardly any gradient, so one odd rollout is a spike among its neighbours.
    """
    if len(norms) < START:
        return None
    usual = median([norm for norm in norms[:START] if math.isfinite(norm)] or [0.0])
    recent = range(max(0, len(norms) - _SPIKES_COUNTED), len(norms))
    found = sum(is_spike(norms, index) and not norms[index] <= 10.0 * usual for index in recent)
    return (float(found), 3.0) if found >= 3 else None


def variance_gone(values: Sequence[float], start: int = START, window: int = 10, share: float = 0.1) -> Verdict:
    """RAGEN-2's stop rule: each of the last ``window`` values is below ``share`` of the mean of the first ``start``.

    RAGEN-2's code waits for 10 values, its paper for 5. The comparison is strict.
    """
    if len(values) < start:
        return None
    threshold = share * fmean(values[:start])
    recent = values[-window:]
    return (max(recent), threshold) if len(recent) == window and max(recent) < threshold else None


def fell_to(values: Sequence[float], share: float, start: int = START, window: int = RECENT) -> Verdict:
    """The mean of the last ``window`` values is at most ``share`` of the mean of the first ``start`` values."""
    if len(values) < start + window:
        return None
    threshold, recent = share * fmean(values[:start]), fmean(values[-window:])
    return (recent, threshold) if recent <= threshold and threshold > 0 else None


def fell_by(values: Sequence[float], amount: float) -> Verdict:
    """The mean of the last 8 values is ``amount`` below the mean of the first 10; for shares."""
    if len(values) < START + RECENT:
        return None
    threshold, recent = fmean(values[:START]) - amount, fmean(values[-RECENT:])
    return (recent, threshold) if recent <= threshold else None


def declines(values: Sequence[float]) -> Verdict:
    """A steady decline: little at a time, and nearly always downwards.

    The mean of the last 8 values is at most 92 % of the mean of the first 10, and the Mann-Kendall score of the last 60
    values, of which there are at least 24, is at most -6. The threshold was found by trial and implies no probability
    of error, because rollouts are not independent.
    """
    if len(values) < 24:
        return None
    threshold, now = 0.92 * fmean(values[:START]), fmean(values[-RECENT:])
    fallen = now <= threshold and threshold > 0
    return (now, threshold) if fallen and trend_score(values[-60:]) <= -6.0 else None


def trend_score(values: Sequence[float]) -> float:
    r"""The Mann-Kendall score of a trend: normal with mean 0 and variance 1 in a series without a trend.

    .. math:: S = \sum_{i<j} \operatorname{sign}(x_j - x_i), \quad z = S / \sqrt{n (n - 1) (2 n + 5) / 18}

    Example:
        >>> round(trend_score([5.0, 4.0, 3.0, 2.0, 1.0]), 2)
        -2.45
    """
    count = len(values)
    balance = sum((later > one) - (later < one) for place, one in enumerate(values) for later in values[place + 1 :])
    return balance / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def rose_to(values: Sequence[float], factor: float) -> Verdict:
    """The median of the last 8 values is at least ``factor`` times the median of the first 10."""
    if len(values) < START + RECENT:
        return None
    threshold, recent = factor * median(values[:START]), median(values[-RECENT:])
    return (recent, threshold) if recent >= threshold > 0 else None


def rose_by(values: Sequence[float], amount: float) -> Verdict:
    """The mean of the last 8 values is ``amount`` above the mean of the first 10; for shares."""
    if len(values) < START + RECENT:
        return None
    threshold, recent = fmean(values[:START]) + amount, fmean(values[-RECENT:])
    return (recent, threshold) if recent >= threshold else None


def fell_suddenly(values: Sequence[float]) -> Verdict:
    """The median of the last 5 values is at most half the median of the 20 values before them."""
    if len(values) < 25:
        return None
    threshold, recent = 0.5 * median(values[-25:-5]), median(values[-5:])
    return (recent, threshold) if recent <= threshold and threshold > 0 else None


def below_best(values: Sequence[float], share: float, window: int) -> Verdict:
    """The mean of the last ``window`` values is below ``share`` of the best such mean; for values from 0 up."""
    if len(values) < 2 * window:
        return None
    means = trailing_means(values, window)
    threshold = share * max(means)
    return (means[-1], threshold) if means[-1] < threshold else None


def far_below_best(values: Sequence[float], deviations: float, window: int) -> Verdict:
    """The mean of the last ``window`` values is ``deviations`` standard deviations below the best such mean.

    For values that may be negative, such as returns. The standard deviation (ddof 1) is of single values, in the best
    window or in the first window, whichever is larger, since the returns of a solved task have no spread. For the same
    reason at least a twentieth of the best must be lost.
    """
    if len(values) < 2 * window:
        return None
    means = trailing_means(values, window)
    best = max(range(len(means)), key=means.__getitem__)
    deviation = math.sqrt(max(variance(values[best : best + window]), variance(values[:window])))
    threshold = means[best] - max(deviations * deviation, 0.05 * abs(means[best]))
    return (means[-1], threshold) if means[-1] < threshold else None


def gaining(values: Sequence[float]) -> bool:
    """Whether a run earns more than at its beginning and has kept most of what it gained, by one of two windows.

    In a run that learns, the same changes are progress: the spread within groups falls as tasks are solved. "Most"
    means 70 % of the way from the beginning to the best mean of a window. The last 8 values see a gain soon: one
    standard error of the difference of the two means is enough. The last 20 are for the noise, and ask for three, since
    an early bump stays in them while a run already declines.
    """
    return _gaining(values, window=RECENT, errors=1.0) or _gaining(values, window=20, errors=3.0)


def _gaining(values: Sequence[float], window: int, errors: float) -> bool:
    if len(values) < START + window:
        return False
    first, recent = values[:START], values[-window:]
    error = math.sqrt(variance(first) / START + variance(recent) / window)
    gain = fmean(recent) - fmean(first)
    best = max(trailing_means(values, window)) - fmean(first)
    return gain > errors * error and gain >= 0.7 * best


def solved(rates: Sequence[float]) -> bool:
    """Whether the mean of the last 8 success rates is at least 0.95: there is hardly anything to gain."""
    return len(rates) >= RECENT and fmean(rates[-RECENT:]) >= 0.95


def trailing_means(values: Sequence[float], window: int) -> list[float]:
    """The mean of every ``window`` consecutive values; the first mean ends at index ``window - 1``."""
    total = math.fsum(values[:window])
    means = [total / window]
    for new, old in zip(values[window:], values, strict=False):
        total += new - old
        means.append(total / window)
    return means
