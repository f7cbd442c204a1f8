"""Products, catalogues of some, and goals that ask for one: what tests of the store share."""

from dataclasses import replace
from typing import Any

from webshop_server.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import NO_PRICE_BOUND, Goal

SHIRT = Product(
    asin="B000SHIRT1",
    title="Linen Shirt",
    category="fashion",
    query="shirts",
    product_category="Clothing › Shirts",
    description="Soft.",
    bullet_points=("Cool",),
    attributes=("linen",),
    options={"color": ("red", "dark blue"), "size": ("small", "large")},
    pricing=(20.0,),
    price_text="$20.0",
    price=20.0,
    instruction="Find me a linen shirt",
    instruction_attributes=("linen",),
)
MUG = Product(
    asin="B0000MUG02",
    title="Big Mug",
    category="garden",
    query="mugs",
    product_category="Home › Mugs",
    attributes=("ceramic",),
    options={"color": ("red", "navy"), "style": ("red", "plain")},  # as in 2 of the 1000 public products
    pricing=(9.5,),
    price_text="$9.5",
    price=9.5,
    instruction="Find me a ceramic mug",
    instruction_attributes=("ceramic",),
)


def shelf(*products: Product) -> Catalog:
    """A catalogue of these products."""
    return Catalog("shelf", products, 0)


def goal_of(product: Product, **changes: Any) -> Goal:
    """The goal of a product, at any price and with any options but for the changes."""
    names = (product.asin, product.category, product.query, product.title, product.product_category)
    return replace(Goal(0, *names, "", product.instruction_attributes, NO_PRICE_BOUND, {}, 1.0), **changes)
