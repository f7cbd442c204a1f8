"""Catalogues: prices, records, and files of the public data."""

import hashlib
import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from webshop_server.catalog import CatalogError
from webshop_server.catalog.files import Source, find_source, read_source
from webshop_server.catalog.product import (
    HumanInstruction,
    Product,
    drawn_price,
    price_text,
    read_pricing,
    read_record,
)


@pytest.mark.parametrize(
    ("written", "prices", "shown"),
    [
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("$877.80", (877.8,), "$877.8"),
        (877.8, (877.8,), "$877.8"),
        ("$19.99 - $27.99", (19.99, 27.99), "$19.99 to $27.99"),
        ("19.99 - 27.99", (19.99, 27.99), "$19.99 to $27.99"),
        ([19.99, 27.99], (19.99, 27.99), "$19.99 to $27.99"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$1.299,00", (1299.0,), "$1299.0"),
        ("$1,299", (1299.0,), "$1299.0"),
        ("$12,50", (12.5,), "$12.5"),
        ("1.299,00 €", (1299.0,), "$1299.0"),
        ("$1,299.00 - $1.499,50", (1299.0, 1499.5), "$1299.0 to $1499.5"),
        # What an ounce costs is no end of a range.
        ("$5.99 ($0.50 / Ounce)", (5.99,), "$5.99"),
        ("$5.99 $0.50/oz", (5.99,), "$5.99"),
        ("$0.50 / Ounce", (0.5,), "$0.5"),
    ],
)
def test_a_written_price_is_read_and_shown(written: object, prices: tuple[float, ...], shown: str) -> None:
    assert read_pricing(written) == prices
    assert price_text(prices) == shown


def test_a_drawn_price_follows_its_formula() -> None:
    share = int(hashlib.sha256(b"abc/7/B01").hexdigest()[:14], 16) / 16**14
    assert drawn_price("abc", 7, "B01", (10.0, 20.0)) == round(10 + 10 * share, 2)
    # Written the other way around, as in the public data now and then.
    assert drawn_price("abc", 7, "B01", (20.0, 10.0)) == round(10 + 10 * share, 2)
    assert drawn_price("abc", 7, "B01", (12.345,)) == 12.345


RAW: dict[str, Any] = {
    "asin": "B01",
    "name": "Blue Shirt",
    "category": "fashion",
    "query": " T-Shirts ",
    "product_category": "Clothing › Shirts",
    "full_description": "Soft.",
    "small_description": ["Cotton ", "Tagless"],
    "pricing": "$10.00 - $12.50",
    "images": ["http://x/1.jpg", "http://x/2.jpg"],
    "customization_options": {
        "Color": [
            {"value": " Navy/White ", "image": "http://x/n.jpg", "price": 0, "price_string": ""},
            {"value": "RED", "image": None, "price": 12.5},
            {"value": "Gold", "price": "$1,290.00"},
        ],
        "Style": None,
        "Size": [{"value": "X-Large", "is_available": True, "asin": "B02"}],
    },
    "average_rating": 4.5,
}


def read(changes: dict[str, Any], hidden: Any = None, human: Any = ()) -> Product:
    return read_record(RAW | changes, hidden, human)


def test_a_raw_record_is_read_by_the_original_rules() -> None:
    hidden = {
        "attributes": ["cotton spandex", "tagless"],
        "instruction": "Find me shirts",
        "instruction_attributes": [],
    }
    human = [{
        "asin": "B01", "instruction": "a blue shirt.", "attributes": ["long"], "options": ["color: red"],
        "instruction_attributes": ["tagless"], "instruction_options": ["red"], "assignment_id": "3A", "worker_id": "A1",
    }]  # fmt: skip
    assert read({}, hidden, human) == Product(
        asin="B01",
        title="Blue Shirt",
        category="fashion",
        query="t-shirts",
        product_category="Clothing › Shirts",
        description="Soft.",
        bullet_points=("Cotton ", "Tagless"),
        attributes=("cotton spandex", "tagless"),
        options={"color": ("navy | white", "red", "gold"), "size": ("x-large",)},
        option_images={"navy | white": "http://x/n.jpg"},
        option_prices={"red": 12.5, "gold": 1290.0},
        pricing=(10.0, 12.5),
        price_text="$10.0 to $12.5",
        price=100.0,
        image="http://x/1.jpg",
        instruction="Find me shirts",
        instruction_attributes=(),
        human_instructions=(HumanInstruction("a blue shirt.", ("tagless",), ("red",)),),
        nouns=None,
    )


def record(asin: str, **fields: Any) -> dict[str, Any]:
    return {"asin": asin, "name": f"n {asin}", "category": "c", "query": "q", "product_category": "p"} | fields


def write(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def test_files_are_joined_by_product(tmp_path: Path) -> None:
    write(
        tmp_path,
        items_shuffle_1000=[record("B1"), record("B2")],
        items_ins_v2_1000={"B2": {"attributes": ["soft"], "instruction": "Find", "instruction_attributes": ["soft"]}},
        items_human_ins={"B1": [{"instruction": "get", "instruction_attributes": ["x"], "worker_id": "A"}]},
    )
    first, second = read_source(find_source(tmp_path))
    assert (first.attributes, first.instruction, first.human_instructions[0].text) == ((), None, "get")
    assert (second.attributes, second.instruction, second.human_instructions) == (("soft",), "Find", ())


@pytest.mark.parametrize(("name", "longest"), [("items_shuffle", 10), ("my_products", 60)])
def test_what_is_left_out_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, longest: int) -> None:
    """Regression: identifiers of more than ten characters vanished, and "b2" opened the page of "B2"."""
    asins = ("B1", "nan", "B2", "B1", "B" * 60, "B" * 10)
    items = [record(asin) | {"name": f"Number {number}"} for number, asin in enumerate(asins)]
    path = write(tmp_path, **{name: items}, items_ins_v2={}) / f"{name}.json"
    with caplog.at_level(logging.WARNING):
        found = [product.title for product in read_source(find_source(path))]
    kept = [0, 2, 4, 5] if longest == 60 else [0, 2, 5]  # the official files are read as the original reads them
    assert found == [f"Number {number}" for number in kept]
    assert f"left out {len(asins) - len(kept)} records" in caplog.text and "nan, B1" in caplog.text
    path = write(tmp_path, **{name: [record("B1"), record("b1")]}, items_ins_v2={}) / f"{name}.json"
    with pytest.raises(CatalogError, match="record 2: b1 and B1 differ in capitals only"):
        list(read_source(find_source(path)))


def test_json_lines_need_no_companion(tmp_path: Path) -> None:
    path = tmp_path / "my_products.jsonl"
    lines = [record("B1", Attributes=["a"], instruction_text="Find me"), record("B2")]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert find_source(tmp_path) == Source(path, None, None)
    first, second = read_source(find_source(path))
    assert (first.attributes, first.instruction, second.attributes) == (("a",), "Find me", ())


def test_the_real_set_is_read_as_the_original_loads_it(real_data: Path) -> None:
    loaded = [json.loads(line) for line in (real_data / "webshop1k_products.jsonl").open(encoding="utf-8")]
    products = list(read_source(find_source(real_data)))
    assert len(products) == 1000
    for product, original in zip(products, loaded, strict=True):
        assert product.asin == original["asin"]
        assert product.title == original["Title"]
        assert product.description == original["Description"]
        assert list(product.bullet_points) == original["BulletPoints"]
        assert {name: list(values) for name, values in product.options.items()} == original["options"]
        assert list(product.options) == list(original["options"])
        assert list(product.pricing) == original["pricing"]
        assert product.price_text == original["Price"]
        assert list(product.attributes) == original["Attributes"]
        assert product.query == original["query"]
        assert product.image == original["MainImage"]
        assert product.option_images == {v: url for v, url in original["option_to_image"].items() if url is not None}
    requested = [product for product in products if product.instruction and product.instruction_attributes]
    assert len(requested) == 415
    assert sum(math.prod(map(len, product.options.values())) for product in requested) == 6910
    assert sum(bool(human.attributes) for product in products for human in product.human_instructions) == 13
