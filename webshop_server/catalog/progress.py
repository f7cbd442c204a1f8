"""A bar for what takes minutes with a million products, on standard error."""

import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def counted(things: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Passes things on and shows, if it takes longer than two seconds, what is done and how many have come."""
    from tqdm import tqdm  # here, as most processes have nothing to show

    every = 0.1 if sys.stderr.isatty() else 30.0  # seconds; a log is no place for a moving bar
    return tqdm(things, what, total, leave=False, delay=2, mininterval=every, unit=" products", unit_scale=True)
