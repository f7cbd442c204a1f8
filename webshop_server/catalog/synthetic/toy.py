"""The toy shop: 96 products (8 colours x 4 sizes x 3 kinds, $20 to $150) for first experiments and quick tests.

Colour, size and material are in the title, so search finds them; one more property has to be read. No text holds the
name of a colour, size or material by chance, because rewards look for names in texts, and titles of two kinds share no
noun. Each product has five generated requests (`instruction` and four `human_instructions`), so there are 256 prompts.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product as combinations
from typing import Any, TypeAlias

from webshop_server.catalog.product import HumanInstruction, Product, price_text
from webshop_server.catalog.synthetic.words import Draws, opaque_id, read_words

LOWEST, HIGHEST = 2000, 15000  # cents
Kind: TypeAlias = Mapping[str, Any]  # one of `kinds` in toy.toml


def toy_products(seed: int = 0) -> Iterator[Product]:
    """Makes the 96 products of the toy shop, prices not drawn yet.

    The seed decides identifiers, order, prices, materials, features and wordings.
    """
    draws, words = Draws(f"toy/{seed}"), read_words("toy")
    designs: list[tuple[Kind, tuple[str, ...]]] = []
    for kind in words["kinds"]:
        looks = list(combinations(words["colors"], words["sizes"]))
        # Each pair of material and feature twice, so that neither gives the product away.
        makings = list(combinations(kind["materials"], kind["features"])) * 2
        designs += [(kind, look + made) for look, made in zip(looks, draws.some(makings, len(makings)), strict=True)]
    for number, (kind, attributes) in enumerate(draws.some(designs, len(designs))):
        price = (LOWEST + draws.below(HIGHEST - LOWEST + 1)) / 100
        color, size, material, feature = attributes
        wanted = ((color, size), (color, size, material), (color, size, feature), attributes)
        phrasings = draws.some(words["requests"], len(wanted))
        yield Product(
            asin=opaque_id(f"toy/{seed}", number),
            title=f"{size} {color} {material} {kind['name']}".title(),
            category="fashion",
            query=kind["query"],
            product_category=kind["path"],
            description=kind["description"],
            bullet_points=(f"Made of {material}.", f"With {feature}."),
            attributes=attributes,
            pricing=(price,),
            price_text=price_text((price,)),
            instruction=f"Find me {_what(kind, attributes[:3])}",
            instruction_attributes=_asked(attributes[:3]),
            human_instructions=tuple(
                HumanInstruction(phrasing.format(what=_what(kind, named)), _asked(named), ())
                for phrasing, named in zip(phrasings, wanted, strict=True)
            ),
            nouns=(material, kind["name"]),
        )


def _asked(named: Sequence[str]) -> tuple[str, ...]:
    """The attributes of a request that names color, size, then any others."""
    color, size, *others = named
    return color, f"{size} size", *others


def _what(kind: Kind, named: Sequence[str]) -> str:
    """The thing in words, with those of its properties that are named: color, size, then any others."""
    color, size, *others = named
    making = [other for other in others if other in kind["materials"]]
    having = [f"with {other}" for other in others if other in kind["features"]]
    return " ".join(["an" if size == "xlarge" else "a", size, color, *making, kind["thing"], *having])
