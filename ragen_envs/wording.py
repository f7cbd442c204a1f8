"""Words of the thoughts that oracles think: a random choice of phrases, numbers, and where something lies on a map.

A family's `thoughts` module writes its sentences with these.
"""

from collections.abc import Sequence

import numpy as np

PLACES = {"Up": "above me", "Down": "below me", "Left": "on my left", "Right": "on my right"}
"""Where the square next to the player lies, by the move that leads to it."""

TRIALS = (
    ". I try",
    ", and I try",
    ". Let me try",
    ", but let me try",
    ", and I will try",
    ". Let me see what happens with",
)
"""Before an action that leads to nothing that can be told."""

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def pick(rng: np.random.Generator, *phrases: str) -> str:
    """One of the phrases, uniformly."""
    return phrases[int(rng.integers(len(phrases)))]


def way(start: int, end: int, width: int, rng: np.random.Generator) -> str:
    """Where a square lies, seen from another one.

    Args:
        start: The square from which it is seen, row-major from 0.
        end: The square; not the same.
        width: Number of columns of the map.
        rng: Source of the wording.

    Example:
        >>> way(2, 9, 4, np.random.default_rng(0))
        '2 steps down and 1 step to the left'
    """
    rows, columns = end // width - start // width, end % width - start % width
    parts = [(abs(rows), "down" if rows > 0 else "up")] if rows else []
    parts += [(abs(columns), "to the right" if columns > 0 else "to the left")] if columns else []
    if rng.random() < 0.5:
        parts.reverse()
    style = int(rng.integers(3))
    return " and ".join(_steps(number, direction, style) for number, direction in parts)


def listed(things: Sequence[str]) -> str:
    """Things in a list of words.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a"])
        ('a, b and c', 'a')
    """
    return " and ".join([", ".join(things[:-1]), things[-1]] if len(things) > 1 else things)


def _steps(number: int, direction: str, style: int) -> str:
    if style == 0:
        return f"{number} {direction}"
    unit = "step" if style == 1 else "square"
    count = _NUMBERS[number] if style == 2 and number < len(_NUMBERS) else str(number)
    return f"{count} {unit}{'' if number == 1 else 's'} {direction}"
