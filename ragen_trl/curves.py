"""What is done to curves before they are drawn: smoothing, thinning, and the band around repetitions.

Curves longer than 2000 points are thinned so that every spike survives. Repetitions of a run have a mean with a band:
its 95 % t interval from five on, and the lowest and the highest below that, where an interval would rest on a guess of
the spread. Left out: smoothing that looks ahead.
"""

import math
import statistics
from collections.abc import Collection, Sequence

import numpy as np

MAX_POINTS = 2000
_FEWEST_FOR_INTERVAL = 5
# Student's t, 97.5 %, for 4, 5, … 19 degrees of freedom; the last one serves more as well, on the safe side.
_T = (2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and the ones before it, ``window`` in all (fewer at the start).

    Example:
        >>> moving_average([1.0, 3.0, 5.0], window=2)
        [1.0, 2.0, 4.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return ((sums[ends] - sums[starts]) / (ends - starts)).tolist()  # type: ignore[no-any-return]


def averaging_window(rows: int) -> int:
    """Logged rows per moving average, for runs of at most ``rows``: a twentieth of them."""
    return max(5, math.ceil(rows / 20))


def thin(values: Sequence[float], limit: int = MAX_POINTS) -> list[int]:
    """Indices of at most ``limit`` values to draw: the lowest and the highest of each stretch.

    Example:
        >>> thin([0.0, 9.0, 1.0, 2.0, 3.0, 2.0], limit=4)
        [0, 1, 3, 4]
    """
    if len(values) <= limit:
        return list(range(len(values)))
    chosen: set[int] = set()
    array = np.asarray(values)
    for stretch in np.array_split(np.arange(len(values)), limit // 2):
        part = array[stretch]
        chosen |= {int(stretch[part.argmin()]), int(stretch[part.argmax()])}
    return sorted(chosen)


def band(values: Sequence[float]) -> tuple[float, float]:
    """The band around the mean of repetitions: 95 % t interval of the mean from five on, else lowest and highest.

    Example:
        >>> band([1.0, 2.0, 6.0])
        (1.0, 6.0)
        >>> [round(end, 3) for end in band([1.0, 2.0, 3.0, 4.0, 5.0])]
        [1.037, 4.963]
    """
    if len(values) < _FEWEST_FOR_INTERVAL:
        return min(values), max(values)
    mean = statistics.fmean(values)
    freedom = len(values) - 1
    arm = _T[min(freedom - 4, len(_T) - 1)] * statistics.stdev(values) / math.sqrt(len(values))
    return mean - arm, mean + arm


def band_in_words(sizes: Collection[int]) -> str:
    """What the bands of families of so many runs are; "" if there is none."""
    kinds = []
    if any(1 < size < _FEWEST_FOR_INTERVAL for size in sizes):
        kinds.append("from the lowest to the highest run, no confidence interval")
    if any(size >= _FEWEST_FOR_INTERVAL for size in sizes):
        kinds.append("95 % t interval of the mean over runs")
    return f"Band: {'; or, with five runs or more, '.join(kinds)}." if kinds else ""
