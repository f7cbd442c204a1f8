"""What all tables share: rows of a table, rates with an interval, ratios of rounds, a commit."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def row(cells: Sequence[object]) -> str:
    """One row of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(cells: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [row(cells), "|---" * len(cells) + "|"]


def text(lines: Sequence[str]) -> str:
    """Lines as one text that ends its last line."""
    return "\n".join(lines) + "\n"


def success(result: Mapping[str, Any], digits: int = 2) -> str:
    """``0.80 [0.76, 0.83]``."""
    rate, low, high = (f"{result[name]:.{digits}f}" for name in ("success", "success_low", "success_high"))
    return f"{rate} [{low}, {high}]"


def mean_and_range(values: Mapping[str, float]) -> str:
    """``0.50 (0.40 to 0.60)``."""
    return f"{values['mean']:.2f} ({values['low']:.2f} to {values['high']:.2f})"


def commit(name: str | None) -> str:
    """A commit, shortened, as code; a checkout with changes says so."""
    first, _, changes = (name or "unknown").partition("+")
    return f"`{first[:9]}{'+' * bool(changes)}{changes}`"


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def times(values: Sequence[float]) -> str:
    """``2.1 × (1.9 to 2.4)``: median and range of ratios."""
    return f"{statistics.median(values):.1f} × ({min(values):.1f} to {max(values):.1f})"
