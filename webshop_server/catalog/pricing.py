"""Prices: how files write them, how the store shows them, and what a product costs in the end.

The original draws the price of a product with a range again in each process. Here it depends on the catalogue's
content, a seed and the product alone, so it is the same in every process.
"""

import hashlib
import re
from collections.abc import Sequence

NO_PRICE = (100.0,)
"""What a product costs for which the source has no price."""
MAX_PRICE = 1_000_000_000  # dollars; beyond it a number is damage
_NUMBER = r"\d[\d,]*(?:\.\d+)?|\.\d+"
_WITH_SIGN = re.compile(rf"[$€£]\s*({_NUMBER})(?:\s*[-–]\s*({_NUMBER}))?")
_ANY = re.compile(f"({_NUMBER})()")
_NO_THOUSANDS = re.compile(r"\d,(?=\d)(?!\d{3}(?!\d))")


def read_pricing(written: object) -> tuple[float, ...]:
    """Reads a price as the original does: the amounts with a sign of a currency, or all numbers where there is none.

    Args:
        written: A text, a number, or a list of numbers; "", null and [] mean no price, which is `NO_PRICE`.

    Returns:
        One price, or the two ends of a range as written, in dollars; of more amounts the first two.

    Raises:
        ValueError: If there is no amount in it, a comma that does not group thousands, or an amount that is not from 0
            to `MAX_PRICE`.

    >>> read_pricing("$1,019.99 - $1,027.50"), read_pricing("now 9.5"), read_pricing("")
    ((1019.99, 1027.5), (9.5,), (100.0,))
    """
    prices: Sequence[object] = written if isinstance(written, list | tuple) else [written]
    if written is None or (isinstance(written, str) and not written.strip()):
        return NO_PRICE
    if isinstance(written, str):
        found = _WITH_SIGN.findall(written) or _ANY.findall(written)
        texts = [text for pair in found for text in pair if text]
        if not texts or _NO_THOUSANDS.search(written):
            raise ValueError(f"{written!r} has no price in it; write it as '$1,019.99' or '$19.99 - $27.99'")
        prices = [float(text.replace(",", "")) for text in texts]
    for price in prices[:2]:
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= MAX_PRICE:
            raise ValueError(f"{price!r} is not a price; it must be a number from 0 to {MAX_PRICE:,}")
    return tuple(map(float, prices[:2])) or NO_PRICE  # type: ignore[arg-type]


def dollars(pricing: Sequence[float]) -> str:
    """How the store shows one price, or the two ends of a range, to people: with cents.

    >>> dollars((127.0,)), dollars((19.99, 1028.5))
    ('$127.00', '$19.99 to $1028.50')
    """
    return " to ".join(f"${price:.2f}" for price in pricing)


def price_text(pricing: Sequence[float]) -> str:
    """How the original shows one price, or the two ends of a range.

    >>> price_text((19.99, 28.0))
    '$19.99 to $28.0'
    """
    return " to ".join(f"${price}" for price in pricing)


def drawn_price(catalog_hash: str, seed: int, asin: str, pricing: Sequence[float]) -> float:
    """What buying a product costs: its price, or a number of whole cents drawn uniformly from its range."""
    if len(pricing) == 1:
        return pricing[0]
    low, high = sorted(pricing)
    digest = hashlib.sha256(f"{catalog_hash}/{seed}/{asin}".encode()).digest()
    drawn = low + (high - low) * int.from_bytes(digest[:7], "big") / 2**56
    # A range may be narrower than a cent.
    return min(max(round(drawn, 2), low), high)
