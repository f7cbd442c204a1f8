"""Prices: how the public data write them, how the store shows them, and what a product costs in the end.

The original draws the price of a product with a range again in each process. Here it depends on the catalogue's
content, a seed and the product alone, so that it is the same in every process.
"""

import hashlib
import re
from collections.abc import Sequence

NO_PRICE = (100.0,)
"""What a product costs for which the source has no price."""
MAX_PRICE = 1_000_000_000  # dollars; beyond it a number is damage


def read_pricing(text: str) -> tuple[float, ...]:
    """Reads a price as the public data write it.

    Args:
        text: "$19.99", "$19.99 - $27.99", or "" for none.

    Returns:
        One price, or the two ends of a range as written, in dollars. More than two prices: the first two.

    Raises:
        ValueError: If there is no "$", or no number of dollars after one.

    >>> read_pricing("$1,019.99 - $1,027.50")
    (1019.99, 1027.5)
    """
    if not text:
        return NO_PRICE
    numbers = [re.sub(r"[^\d.]", "", part) for part in text.split("$")[1:3]]
    if not numbers:
        raise ValueError(f"{text!r} has no $; write it as '$19.99' or '$19.99 - $27.99'")
    try:
        return checked([float(number) for number in numbers])
    except ValueError:
        raise ValueError(f"{text!r} has no price after a $; write it as '$19.99' or '$19.99 - $27.99'") from None


def checked(prices: Sequence[object]) -> tuple[float, ...]:
    """Checks one or two prices.

    Args:
        prices: Dollars. None at all means no price; of more than two the first two count.

    Returns:
        The same as floats.

    Raises:
        ValueError: If one is not a number from 0 to `MAX_PRICE`.
    """
    numbers: list[float] = []
    for price in prices[:2]:
        if isinstance(price, bool) or not isinstance(price, (int, float)) or not 0 <= price <= MAX_PRICE:
            raise ValueError(f"{price!r} is not a price; it must be a number from 0 to {MAX_PRICE:,}")
        numbers.append(float(price))
    return tuple(numbers) or NO_PRICE


def dollars(pricing: Sequence[float]) -> str:
    """How the store shows a price to people: with cents.

    Args:
        pricing: One price, or the two ends of a range.

    Returns:
        The text.

    >>> dollars((127.0,)), dollars((19.99, 1028.5))
    ('$127.00', '$19.99 to $1028.50')
    """
    return " to ".join(f"${price:.2f}" for price in pricing)


def price_text(pricing: Sequence[float]) -> str:
    """How the original shows a price.

    Args:
        pricing: One price, or the two ends of a range.

    Returns:
        The text.

    >>> price_text((19.99, 28.0))
    '$19.99 to $28.0'
    """
    return " to ".join(f"${price}" for price in pricing)


def drawn_price(catalog_hash: str, seed: int, asin: str, pricing: Sequence[float]) -> float:
    """What buying a product costs: its price, or a number of whole cents drawn uniformly from its range.

    Args:
        catalog_hash: Hash of the catalogue's content.
        seed: Any integer.
        asin: Identifier of the product.
        pricing: One price, or the two ends of a range.

    Returns:
        Dollars, the same in every process.
    """
    if len(pricing) == 1:
        return pricing[0]
    low, high = sorted(pricing)
    digest = hashlib.sha256(f"{catalog_hash}/{seed}/{asin}".encode()).digest()
    drawn = low + (high - low) * int.from_bytes(digest[:7], "big") / 2**56
    # A range may be narrower than a cent.
    return min(max(round(drawn, 2), low), high)
