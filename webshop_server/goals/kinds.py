"""Whether a product is of the kind that a goal asks for, by the shop's own shelves; the tiered reward pays by it.

The right kind is a definition: the same shelf, or the same search phrase on the next shelf. Nouns of titles, which the
published formula compares, would pay for unrelated things on the way: taggers count brands and colours as nouns. On 56
pairs of public products judged by their titles alone, 26 of the 30 that count are of one kind, and 16 of the 26 that
share only a phrase; the pairs are in the tests.
"""

from itertools import takewhile

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.goals.reward import PATH_SEPARATOR

LEAST_PARTS = 3
"""Parts of a path that names a kind of product; "Beauty & Personal Care › Skin Care" does not."""


def nearness(product: Product, goal: Goal) -> float:
    """How near the kind of a product is to the kind that is asked for.

    Args:
        product: Any product.
        goal: What is wanted.

    Returns:
        1 for the goal's own product and for the same path of three parts or more. 1 also for the same search phrase,
        if the paths begin with the same three parts or more and at most their last parts differ, or if neither has a
        path. Else the share of the longer path, its department left out, that both paths begin with; below 1, and 0 in
        another department. A path of less than three parts counts as one of three.
    """
    if product.asin == goal.asin:
        return 1.0
    at, wanted = _path(product.product_category), _path(goal.product_category)
    shared = sum(1 for _ in takewhile(lambda parts: parts[0] == parts[1], zip(at, wanted, strict=False)))
    longest = max(len(at), len(wanted))
    is_found_together = bool(product.query) and product.query == goal.query
    if is_found_together and not (at or wanted):
        return 1.0
    if shared >= LEAST_PARTS and shared >= longest - is_found_together:
        return 1.0
    return max(shared - 1, 0) / (max(longest, LEAST_PARTS) - 1)


def _path(product_category: str) -> tuple[str, ...]:
    return tuple(part for part in map(str.strip, product_category.split(PATH_SEPARATOR)) if part)
