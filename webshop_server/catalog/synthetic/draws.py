"""Random draws that are the same on every version of Python, and identifiers that reveal nothing.

Of the standard generator only `random()` is promised to stay as it is; how `choice` and `sample` use it has changed
before. Generated catalogues are identified by the hash of their content, so they use only `random()`.
"""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

LETTERS = "0123456789ABCDFGHJKLMNPQRSTVWXYZ"  # 32, without the vowels that would make words of them
ROUNDS, HALF = 4, 20  # of the shuffle, and bits


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


def opaque_id(key: str, number: int) -> str:
    """The identifier of a product: "B0" and eight digits or capital letters, as in the public data.

    A Feistel network shuffles the numbers, so two of them never get the same identifier, however many there are.
    """
    left, right = number >> HALF, number & (1 << HALF) - 1
    for turn in range(ROUNDS):
        digest = hashlib.blake2b(f"{key}/{turn}/{right}".encode(), digest_size=4).digest()
        left, right = right, left ^ int.from_bytes(digest, "big") & (1 << HALF) - 1
    shuffled = left << HALF | right
    return "B0" + "".join(LETTERS[shuffled >> 5 * place & 31] for place in range(7, -1, -1))
