"""A bar for what takes minutes with a million products, on standard error."""

import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def counted(products: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Passes products on and shows, if it takes longer than two seconds, how many have come.

    Args:
        products: Products, or whatever else there is one of for each.
        what: What is done with them, such as "indexing".
        total: How many will come, if that is known.

    Returns:
        The products.
    """
    from tqdm import tqdm  # here, as most processes have nothing to show

    every = 0.1 if sys.stderr.isatty() else 30.0  # seconds; a log is no place for a moving bar
    return tqdm(products, what, total, leave=False, delay=2, mininterval=every, unit=" products", unit_scale=True)
