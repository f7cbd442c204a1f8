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
_NUMBER = r"\d+(?:[.,]\d+)*|[.,]\d+"
_OF_A_MEASURE = re.compile(rf"\([^()]*\)|[$€£]?\s*(?:{_NUMBER})\s*(?:/|per\b)\s*[^\d$€£]*")
_WITH_SIGN = re.compile(rf"[$€£]\s*({_NUMBER})(?:\s*[-–]\s*({_NUMBER}))?|({_NUMBER})\s*[$€£]")
_ALONE = re.compile(rf"\s*({_NUMBER})\s*(?:[-–]\s*({_NUMBER})\s*)?")


def read_pricing(written: object) -> tuple[float, ...]:
    """Reads a price in any form that files have it in.

    | written | read as |
    |---|---|
    | "$19.99", "19.99", "€19,99", 19.99 | one price; the currency does not matter |
    | "$19.99 - $27.99", "19.99 - 27.99", [19.99, 27.99] | the two ends of a range; of more amounts the first two |
    | "now $9.99" | 9.99: beside a sign, words and numbers without one are not looked at |
    | "$1,299.00", "$1.299,00" | 1299: where there are commas and points, the last of them is the decimal sign |
    | "$1,299", "$12,50" | 1299 and 12.5: a lone comma groups thousands before three digits |
    | "$5.99 ($0.50 / Ounce)", "$5.99 $0.50/oz" | 5.99: what is in brackets or per something counts if alone |
    | "", null, [] | no price: `NO_PRICE` |

    Args:
        written: A text, a number, or a list of numbers.

    Returns:
        One price, or the two ends of a range as written, in dollars.

    Raises:
        ValueError: If there is no amount in it, or one that is not from 0 to `MAX_PRICE`.

    >>> read_pricing("$1,019.99 - $1.027,50"), read_pricing("$5.99 ($0.50 / Ounce)")
    ((1019.99, 1027.5), (5.99,))
    """
    prices: Sequence[object] = written if isinstance(written, list | tuple) else [written]
    if written is None or (isinstance(written, str) and not written.strip()):
        return NO_PRICE
    if isinstance(written, str):
        prices = _amounts(_OF_A_MEASURE.sub(" ", written)) or _amounts(written)
        if not prices:
            raise ValueError(f"{written!r} has no price in it; write it as '$19.99' or '$19.99 - $27.99'")
    checked: list[float] = []
    for price in prices[:2]:
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= MAX_PRICE:
            raise ValueError(f"{price!r} is not a price; it must be a number from 0 to {MAX_PRICE:,}")
        checked.append(float(price))
    return tuple(checked) or NO_PRICE


def _amounts(text: str) -> list[float]:
    """The amounts in a text: numbers with a sign of a currency, or without one if there is nothing else."""
    alone = _ALONE.fullmatch(text)
    found = [alone] if alone else _WITH_SIGN.finditer(text)
    return [_amount(number) for match in found for number in match.groups() if number]


def _amount(number: str) -> float:
    """The value of a number with points and commas."""
    marks = re.sub(r"\d", "", number)
    whole, last = re.split(r"[.,](?=\d*$)", number) if marks else (number, "")
    groups_thousands = len(set(marks)) == 1 and (len(marks) > 1 or (marks == "," and len(last) == 3))
    return float(re.sub(r"[.,]", "", whole) + ("" if groups_thousands else ".") + last)


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
