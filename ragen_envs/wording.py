"""Words of the thoughts that oracles think: a random choice of phrases, lists, and where something lies on a map."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomllib

TRIALS = (
    *(". I try", ", and I try", ". Let me try", ", but let me try", ", and I will try"),
    ". Let me see what happens with",
)
"""Before an action that leads to nothing that can be told."""

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def phrases(module: str, name: str = "thoughts") -> Mapping[str, Any]:
    """A game's words, by default those of its thoughts: a TOML file beside the module with this ``__file__``."""
    return tomllib.loads(Path(module).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def pick(rng: np.random.Generator, *phrases: str) -> str:
    """One of the phrases, uniformly."""
    return phrases[int(rng.integers(len(phrases)))]


def way(start: int, end: int, width: int, rng: np.random.Generator) -> str:
    """Where a square lies, seen from another one.

    Args:
        start: The square from which it is seen, row-major from 0 on a map of `width` columns.
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
    style = int(rng.integers(3))  # "2 down", "2 steps down" or "two squares down"
    unit = ("", " step", " square")[style]
    said = []
    for count, direction in parts:
        number = _NUMBERS[count] if style == 2 and count < len(_NUMBERS) else str(count)
        said.append(f"{number}{unit}{'s' if unit and count > 1 else ''} {direction}")
    return " and ".join(said)


def listed(things: Sequence[str]) -> str:
    """Things in a list of words.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a"])
        ('a, b and c', 'a')
    """
    return " and ".join([", ".join(things[:-1]), things[-1]] if len(things) > 1 else things)
