"""Random draws that are the same on every version of Python.

Of the standard generator only `random()` is promised to stay as it is; how `choice` and `sample` use it has changed
before. Generated catalogues are identified by the hash of their content, so they use only `random()`.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of draws that depends on its key alone."""

    def __init__(self, key: str) -> None:
        self._random = random.Random(key).random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        return int(self._random() * end)

    def between(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        return low + (high - low) * self._random()

    def pick(self, things: Sequence[T]) -> T:
        """One of `things`."""
        return things[int(self._random() * len(things))]

    def some(self, things: Sequence[T], count: int) -> list[T]:
        """`count` different ones of `things`, or all if there are fewer, in the order drawn."""
        left = list(things)
        for place in range(min(count, len(left))):
            other = place + self.below(len(left) - place)
            left[place], left[other] = left[other], left[place]
        return left[:count]
