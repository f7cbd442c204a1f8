"""Whether a product is of the kind that a goal asks for, by the shop's own shelves; what the tiered reward pays by.

The published formula compares the nouns of titles, too (`reward.kind_match`). Its taggers count brands, and often
colours, as nouns, so that a mug is of the kind of a shirt of the same brand: of 20,000 random pairs of a goal and a
product, 5.4 % of the generated catalogue and 3.7 % of the public 1000 products have `r_type` = 1, and only 38 % and 9 %
of these are from one shelf. A score that also asks for attributes can bear that; on the way it would pay for unrelated
things. So no word of a title counts here.
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
        1 for the same search phrase, or the same path of three parts or more. Else the share of the wanted path, its
        department left out, that both paths begin with; below 1, and 0 in another department.
    """
    if product.query and product.query == goal.query:
        return 1.0
    at, wanted = _path(product.product_category), _path(goal.product_category)
    shared = sum(1 for _ in takewhile(lambda parts: parts[0] == parts[1], zip(at, wanted, strict=False)))
    if at == wanted and len(wanted) >= LEAST_PARTS:
        return 1.0
    return max(shared - 1, 0) / (max(len(at), len(wanted), LEAST_PARTS) - 1)


def _path(product_category: str) -> tuple[str, ...]:
    return tuple(part for part in map(str.strip, product_category.split(PATH_SEPARATOR)) if part)
