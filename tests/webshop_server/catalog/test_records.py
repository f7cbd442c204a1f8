"""A product as text and back, and the hash that comes of it."""

import hashlib
from dataclasses import replace

import pytest

from webshop_server.catalog.pricing import drawn_price
from webshop_server.catalog.product import HumanInstruction, Product
from webshop_server.catalog.records import FIELDS, ContentHash, content_hash, read_product, write_product

PLAIN = Product(asin="B1", title="A “b”", category="c", query="q", product_category="p › q")
FULL = replace(
    PLAIN,
    asin="B2",
    description="d\n",
    bullet_points=("x", "y"),
    attributes=("a",),
    options={"size": ("l", "m"), "color": ()},
    option_images={"l": "http://x"},
    option_prices={"l": 2.5},
    pricing=(2.0, 3.0),
    price_text="$2.0 to $3.0",
    image="i",
    instruction="Find",
    instruction_attributes=("a",),
    human_instructions=(HumanInstruction("h", ("a", "b"), ("l",)),),
    nouns=("b",),
)


def test_a_product_is_one_line() -> None:
    assert write_product(PLAIN) == (
        '["B1","A “b”","c","q","p › q","",[],[],{},{},{},[100.0],"$100.0","",null,[],[],null]'
    )


@pytest.mark.parametrize("product", [PLAIN, FULL])
def test_reading_inverts_writing_and_draws_the_price(product: Product) -> None:
    read = read_product(write_product(product), "abc", 5)
    assert read == replace(product, price=drawn_price("abc", 5, product.asin, product.pricing))
    assert list(read.options) == list(product.options)


def test_no_nouns_and_unknown_nouns_are_told_apart() -> None:
    for nouns in (None, ()):
        assert read_product(write_product(replace(PLAIN, nouns=nouns)), "abc", 5).nouns == nouns


def test_the_hash_is_that_of_names_and_lines() -> None:
    lines = ["\t".join(FIELDS), write_product(PLAIN), write_product(FULL)]
    expected = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert content_hash([PLAIN, FULL]) == expected
    taken = ContentHash()
    taken.add(lines[1])
    assert taken.hex() == content_hash([PLAIN])


def test_the_hash_tells_all_but_the_price() -> None:
    base = content_hash([FULL])
    assert content_hash([replace(FULL, price=1.0)]) == base
    swapped = replace(FULL, options={"color": (), "size": ("l", "m")})
    changed = [replace(FULL, title="t"), replace(FULL, nouns=None), replace(FULL, pricing=(2.0,)), swapped]
    assert base not in {content_hash([product]) for product in changed}
    assert content_hash([PLAIN, FULL]) != content_hash([FULL, PLAIN])
