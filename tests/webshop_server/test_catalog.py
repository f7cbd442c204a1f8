"""Catalogues: prices, records, and files of the public data."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webshop_server.catalog import json_stream
from webshop_server.catalog.fields import Record, read_record
from webshop_server.catalog.files import Source, find_source, read_source
from webshop_server.catalog.json_stream import CatalogError, array_elements, object_members
from webshop_server.catalog.pricing import drawn_price, price_text, read_pricing
from webshop_server.catalog.product import HumanInstruction, Product
from webshop_server.catalog.records import FIELDS, ContentHash, content_hash, write_product


@pytest.mark.parametrize(
    ("text", "prices", "shown"),
    [
        ("", (100.0,), "$100.0"),
        ("$877.80", (877.8,), "$877.8"),
        ("$19.99 - $27.99", (19.99, 27.99), "$19.99 to $27.99"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$5.99 ($0.50 / Ounce)", (5.99, 0.5), "$5.99 to $0.5"),
    ],
)
def test_a_written_price_is_read_and_shown(text: str, prices: tuple[float, ...], shown: str) -> None:
    assert read_pricing(text) == prices
    assert price_text(prices) == shown


def test_a_drawn_price_follows_its_formula() -> None:
    share = int(hashlib.sha256(b"abc/7/B01").hexdigest()[:14], 16) / 16**14
    assert drawn_price("abc", 7, "B01", (10.0, 20.0)) == round(10 + 10 * share, 2)
    # Written the other way around, as in the public data now and then.
    assert drawn_price("abc", 7, "B01", (20.0, 10.0)) == round(10 + 10 * share, 2)
    assert drawn_price("abc", 7, "B01", (12.345,)) == 12.345


PLAIN = Product(asin="B1", title="A “b”", category="c", query="q", product_category="p › q")


def test_the_hash_is_that_of_names_and_lines() -> None:
    other = replace(PLAIN, asin="B2", nouns=("b",))
    lines = ["\t".join(FIELDS), write_product(PLAIN), write_product(other)]
    expected = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert content_hash([PLAIN, other]) == expected
    taken = ContentHash()
    taken.add(lines[1])
    assert taken.hex() == content_hash([PLAIN])


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
        ],
        "Style": None,
        "Size": [{"value": "X-Large", "is_available": True, "asin": "B02"}],
    },
    "average_rating": 4.5,
}


def read(changes: dict[str, Any], hidden: Any = None, human: Any = None) -> Product:
    entry = None if hidden is None else Record(hidden, "ins.json, entry 'B01'")
    people = Record({"instructions": human}, "human.json, entry 'B01'").records("instructions")
    return read_record(Record(RAW | changes, "items.json, record 1 (asin 'B01')"), entry, people)


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
        options={"color": ("navy | white", "red"), "size": ("x-large",)},
        option_images={"navy | white": "http://x/n.jpg"},
        option_prices={"red": 12.5},
        pricing=(10.0, 12.5),
        price_text="$10.0 to $12.5",
        price=100.0,
        image="http://x/1.jpg",
        instruction="Find me shirts",
        instruction_attributes=(),
        human_instructions=(HumanInstruction("a blue shirt.", ("tagless",), ("red",)),),
        nouns=None,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "field 'name': it is missing"),
        ({"pricing": "free"}, "field 'pricing': 'free' has no \\$"),
        ({"small_description": ["a", 1]}, "field 'small_description': expected texts but found int 1 at position 1"),
        ({"customization_options": {"Size": 3}}, "option 'Size': expected a list but found int 3"),
        ({"customization_options": {"Size": [{}]}}, "option 'Size', choice 0, field 'value': it is missing"),
        ({"instructions": [{"instruction": 3}]}, "field 'instructions', item 0, field 'instruction'"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError, match=message) as caught:
        read(changes)
    assert str(caught.value).startswith("items.json, record 1 (asin 'B01'), field ")


VALUES = [
    {"a": "x\\\"]},{", "b": [1, [2, {"c": None}]]}, "é√ \u2028 “quoted”" * 5, -12.5e-3, [], {}, True, 123456789, 1e300,
]  # fmt: skip


def written(folder: Path, text: str) -> Path:
    path = folder / "items.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("chunk", range(16, 60))
@pytest.mark.parametrize("indent", [None, 3])
def test_pieces_are_the_whole_wherever_the_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    path = written(tmp_path, json.dumps(VALUES, indent=indent, ensure_ascii=False) + " \n")
    assert list(array_elements(path)) == [(f"record {n}", value) for n, value in enumerate(VALUES, start=1)]
    members = {f"key {n}": value for n, value in enumerate(VALUES)}
    path = written(tmp_path, json.dumps(members, indent=indent))
    assert list(object_members(path)) == list(members.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "record 1: expected one of \\[ but found '{'"),
        ('[{"a": 1}, {"a": ]', "record 2: not JSON \\(Expecting value\\)"),
        ('[{"a": "cut', "record 1: not JSON \\(Unterminated string"),
        ("[" * 100_000, "record 1: nested too deeply"),
    ],
)
def test_a_damaged_array_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(CatalogError, match=message) as caught:
        list(array_elements(path))
    assert str(path) in str(caught.value)


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


def test_products_that_come_again_or_have_no_good_asin_are_left_out(tmp_path: Path) -> None:
    asins = ("B1", "nan", "B2", "B1", "B" * 11, "B" * 10)
    items = [record(asin) | {"name": f"Number {number}"} for number, asin in enumerate(asins)]
    write(tmp_path, items_shuffle=items, items_ins_v2={})
    read_again = [(product.asin, product.title) for product in read_source(find_source(tmp_path))]
    assert read_again == [("B1", "Number 0"), ("B2", "Number 2"), ("B" * 10, "Number 5")]


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


def test_the_real_set_is_the_same_in_official_files(real_data: Path, tmp_path: Path) -> None:
    items, people = [], {}
    for line in (real_data / "webshop1k_products.jsonl").open(encoding="utf-8"):
        item = json.loads(line)
        prices = " - ".join(f"${price:,.2f}" for price in item["pricing"])
        raw = "asin name full_description small_description images product_category category query".split()
        kept = {name: item[name] for name in (*raw, "customization_options", "average_rating", "page")}
        items.append(kept | {"pricing": "" if item["pricing"] == [100.0] else prices})
        if item.get("instructions"):
            people[item["asin"]] = item["instructions"]
    hidden = json.loads((real_data / "items_ins_v2_1000.json").read_text(encoding="utf-8"))
    write(tmp_path, items_shuffle_1000=items, items_ins_v2_1000=hidden, items_human_ins=people)
    official = content_hash(read_source(find_source(tmp_path)))
    assert official == content_hash(read_source(find_source(real_data)))
