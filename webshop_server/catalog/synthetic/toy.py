"""The toy shop: 96 products (8 colours x 4 sizes x 3 kinds, $20 to $150) for first experiments and quick tests.

Colour, size and material are in the title, so search finds them; one more property has to be read. No text holds the
name of a colour, size or material by chance, because rewards look for names in texts, and titles of two kinds share no
noun. Each product has five generated requests (`instruction` and four `human_instructions`), so there are 256 prompts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations

from webshop_server.catalog.pricing import price_text
from webshop_server.catalog.product import HumanInstruction, Product
from webshop_server.catalog.synthetic.draws import Draws
from webshop_server.catalog.synthetic.opaque_ids import opaque_id

COLORS = ("black", "white", "red", "blue", "green", "gray", "yellow", "brown")
SIZES = ("small", "medium", "large", "xlarge")
DEPARTMENT = "fashion"
LOWEST, HIGHEST = 2000, 15000  # cents
REQUESTS = (
    "i am looking for {what}",
    "i need {what}",
    "find me {what}",
    "can you find {what}",
    "i would like to buy {what}",
    "please show me {what}",
    "do you have {what}",
    "my friend wants {what}",
)


@dataclass(frozen=True)
class ToyKind:
    """A kind of product.

    Attributes:
        name: Lower case; also its noun.
        query: What shoppers search for.
        thing: What requests call one of them.
        path: Where it is in the shop.
        materials: What it may be made of.
        features: What it may have.
        description: A sentence about all of them.
    """

    name: str
    query: str
    thing: str
    path: str
    materials: tuple[str, ...]
    features: tuple[str, ...]
    description: str


KINDS = (
    ToyKind(
        "shoe", "shoes", "shoe", "Clothing, Shoes & Jewelry › Shoes › Everyday Shoes",
        ("canvas", "leather", "suede", "rubber"), ("velcro strap", "cushioned heel", "side zipper", "padded tongue"),
        "For long walks in the city.",
    ),
    ToyKind(
        "clothing", "clothing", "clothing item", "Clothing, Shoes & Jewelry › Clothing › Basics",
        ("cotton", "linen", "wool", "denim"), ("hidden pocket", "button front", "ribbed cuffs", "elastic waist"),
        "For school, work and weekends away.",
    ),
    ToyKind(
        "accessory", "accessories", "accessory", "Clothing, Shoes & Jewelry › Accessories › Hats & Scarves",
        ("silk", "felt", "straw", "cashmere"), ("gift box", "magnetic clasp", "inner lining", "woven band"),
        "A finishing touch for every day.",
    ),
)  # fmt: skip


def toy_products(seed: int = 0) -> Iterator[Product]:
    """Makes the products of the toy shop.

    Args:
        seed: Which shop: it decides identifiers, order, prices, materials, features and wordings.

    Yields:
        96 products, prices not drawn yet.
    """
    draws = Draws(f"toy/{seed}")
    designs: list[tuple[ToyKind, str, str, str, str]] = []
    for kind in KINDS:
        looks = list(combinations(COLORS, SIZES))
        # Each pair of material and feature twice, so that neither gives the product away.
        makings = list(combinations(kind.materials, kind.features)) * 2
        for (color, size), (material, feature) in zip(looks, draws.some(makings, len(makings)), strict=True):
            designs.append((kind, color, size, material, feature))
    for number, (kind, color, size, material, feature) in enumerate(draws.some(designs, len(designs))):
        cents = LOWEST + draws.below(HIGHEST - LOWEST + 1)
        yield _product(opaque_id(f"toy/{seed}", number), kind, (color, size, material, feature), cents / 100, draws)


def _product(asin: str, kind: ToyKind, attributes: tuple[str, str, str, str], price: float, draws: Draws) -> Product:
    color, size, material, feature = attributes
    wanted = ((color, size), (color, size, material), (color, size, feature), attributes)
    phrasings = draws.some(REQUESTS, len(wanted))
    requests = tuple(
        HumanInstruction(phrasing.format(what=_what(kind, named)), _asked(named), ())
        for phrasing, named in zip(phrasings, wanted, strict=True)
    )
    return Product(
        asin=asin,
        title=f"{size} {color} {material} {kind.name}".title(),
        category=DEPARTMENT,
        query=kind.query,
        product_category=kind.path,
        description=kind.description,
        bullet_points=(f"Made of {material}.", f"With {feature}."),
        attributes=attributes,
        options={},
        pricing=(price,),
        price_text=price_text((price,)),
        instruction=f"Find me {_what(kind, attributes[:3])}",
        instruction_attributes=_asked(attributes[:3]),
        human_instructions=requests,
        nouns=(material, kind.name),
    )


def _asked(named: Sequence[str]) -> tuple[str, ...]:
    """The attributes of a request: color, size, then any others."""
    color, size, *others = named
    return color, f"{size} size", *others


def _what(kind: ToyKind, named: Sequence[str]) -> str:
    """The thing in words, with those of its properties that are named: color, size, then any others."""
    color, size, *others = named
    making = [other for other in others if other in kind.materials]
    having = [other for other in others if other in kind.features]
    article = "an" if size == "xlarge" else "a"
    return " ".join([article, size, color, *making, kind.thing, *(f"with {feature}" for feature in having)])
