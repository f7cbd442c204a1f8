"""Progress of what takes minutes with a million products: a bar on a terminal, a line now and then in a log.

Both are written to standard error, as standard output says where a server is. Work of a few seconds shows nothing.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

BAR_AFTER = 2.0  # seconds
LINE_EVERY = 30.0  # seconds
_LOOK_EVERY = 1024  # products

T = TypeVar("T")


def counted(products: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Passes products on and shows how many have come.

    Args:
        products: Products, or whatever else there is one of for each.
        what: What is done with them, such as "indexing".
        total: How many will come, if that is known.

    Yields:
        The products.
    """
    if sys.stderr.isatty():
        from tqdm import tqdm  # here, as most processes have nothing to show

        yield from tqdm(products, what, total, leave=False, delay=BAR_AFTER, unit=" products", unit_scale=True)
        return
    began = last = time.monotonic()
    for count, product in enumerate(products, start=1):
        yield product
        if count % _LOOK_EVERY == 0 and (now := time.monotonic()) - last >= LINE_EVERY:
            last = now
            of, left = "", ""
            if total is not None:
                of, left = f" of {total:,}", f", {(now - began) * (total - count) / count:.0f} s to go"
            say(f"{what}: {count:,}{of} products in {now - began:.0f} s{left}")


def say(line: str) -> None:
    """Writes a line for who waits."""
    sys.stderr.write(f"webshop: {line}\n")
    sys.stderr.flush()
