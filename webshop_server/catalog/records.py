"""A product as a line of text and back, and the hash of a catalogue, which is made from such lines.

The text is canonical: equal products have equal text in every process, so the hash depends on the content of a
catalogue and on its order, and not on the kind of file or the form it is kept in. The price that is drawn for a
product is not part of it, as it depends on the hash itself.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable

from webshop_server.catalog.pricing import drawn_price
from webshop_server.catalog.product import HumanInstruction, Product

FIELDS = tuple(field.name for field in dataclasses.fields(Product) if field.name != "price")
_HUMAN = FIELDS.index("human_instructions")
_LISTS = frozenset(
    FIELDS.index(name) for name in ("bullet_points", "attributes", "pricing", "instruction_attributes", "nouns")
)
_OPTIONS, *_MAPPINGS = (FIELDS.index(name) for name in ("options", "option_images", "option_prices"))


def write_product(product: Product) -> str:
    """Writes a product without its price.

    Args:
        product: Any product.

    Returns:
        One line: a JSON array of the values of `FIELDS`. The order of options is kept, as it is shown.
    """
    values: list[object] = [getattr(product, name) for name in FIELDS]
    values[_HUMAN] = [[human.text, human.attributes, human.options] for human in product.human_instructions]
    for position in (_OPTIONS, *_MAPPINGS):
        values[position] = dict(getattr(product, FIELDS[position]))  # JSON takes no other mapping
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def read_product(text: str, catalog_hash: str, seed: int) -> Product:
    """Reads a line of `write_product`, and draws the price.

    Args:
        text: The line.
        catalog_hash: Hash of the catalogue, for the price.
        seed: Seed of the price.

    Returns:
        The product.
    """
    values = json.loads(text)
    for position in _LISTS:
        if values[position] is not None:
            values[position] = tuple(values[position])
    values[_OPTIONS] = {name: tuple(shown) for name, shown in values[_OPTIONS].items()}
    values[_HUMAN] = tuple(HumanInstruction(said, tuple(a), tuple(o)) for said, a, o in values[_HUMAN])
    fields = dict(zip(FIELDS, values, strict=True))
    price = drawn_price(catalog_hash, seed, fields["asin"], fields["pricing"])
    return Product(**fields, price=price)


class ContentHash:
    """The hash of a catalogue, taken product by product."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256("\t".join(FIELDS).encode())

    def add(self, record: str) -> None:
        """Takes in the next product.

        Args:
            record: What `write_product` made of it.
        """
        self._digest.update(b"\n" + record.encode())

    def hex(self) -> str:
        """The hash of what was taken in so far: 64 hexadecimal digits."""
        return self._digest.hexdigest()


def content_hash(products: Iterable[Product]) -> str:
    """Hashes the content of a catalogue.

    Args:
        products: The products in their order; their prices do not matter.

    Returns:
        64 hexadecimal digits.
    """
    digest = ContentHash()
    for product in products:
        digest.add(write_product(product))
    return digest.hex()
