"""One record to one product: the original loader's rules, and errors that name the field."""

from typing import Any

import pytest

from webshop_server.catalog.fields import Record, read_record
from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.product import HumanInstruction, Product

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


def test_a_record_that_the_original_has_loaded_says_all_itself() -> None:
    product = read({
        "pricing": [10.0], "Attributes": ["DUMMY_ATTR"],
        "instruction_text": "Find me x", "instruction_attributes": ["a"],
        "instructions": [{"instruction": "x", "instruction_attributes": [], "instruction_options": []}],
        "nouns": ["shirt"], "customization_options": "",
    })  # fmt: skip
    assert product.pricing == (10.0,)
    assert product.attributes == ()
    assert (product.instruction, product.instruction_attributes) == ("Find me x", ("a",))
    assert product.human_instructions == (HumanInstruction("x", (), ()),)
    assert product.nouns == ("shirt",)
    assert product.options == {}


def test_parsed_options_alone_are_enough() -> None:
    fields = {key: value for key, value in RAW.items() if key != "customization_options"}
    record = Record(fields | {"options": {"size": ["small", "5 | 8"]}}, "x")
    assert read_record(record, None, ()).options == {"size": ("small", "5 | 8")}


def test_what_may_be_missing_may_be_missing() -> None:
    needed = {key: RAW[key] for key in ("asin", "name", "category", "query", "product_category")}
    product = read_record(Record(needed, "x"), None, ())
    assert (product.description, product.bullet_points, product.options, product.image) == ("", (), {}, "")
    assert (product.pricing, product.price_text) == ((100.0,), "$100.0")
    assert read({"small_description": "one text", "pricing": None, "full_description": None}).bullet_points == (
        "one text",
    )
    assert read({"small_description": "one text"}, {"attributes": []}).instruction is None


def test_null_nouns_are_not_known_and_an_empty_list_is_none_at_all() -> None:
    """Regression: null was an empty list, by which a kettle was half as good as a sock."""
    assert (read({"nouns": None}).nouns, read({"nouns": []}).nouns) == (None, ())


def test_half_a_character_is_replaced() -> None:
    assert read({"name": "a\ud83d b"}).title == "a\ufffd b"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "field 'name': it is missing"),
        ({"name": 7}, "field 'name': expected text but found int 7"),
        ({"query": ["x"]}, "field 'query': expected text but found list"),
        ({"pricing": "free"}, "field 'pricing': 'free' has no \\$"),
        ({"pricing": ["1"]}, "field 'pricing': '1' is not a price"),
        ({"pricing": 3.0}, "field 'pricing': expected text but found float 3.0"),
        ({"small_description": ["a", 1]}, "field 'small_description': expected texts but found int 1 at position 1"),
        ({"small_description": {}}, "field 'small_description': expected a list of texts"),
        ({"customization_options": ["x"]}, "field 'customization_options': expected an object"),
        ({"customization_options": {"Size": 3}}, "option 'Size': expected a list but found int 3"),
        ({"customization_options": {"Size": [{}]}}, "option 'Size', choice 0, field 'value': it is missing"),
        ({"customization_options": {"Size": [3]}}, "option 'Size', choice 0: expected an object but found int 3"),
        ({"Attributes": "x" * 100, "images": 3}, "field 'images'"),
        ({"instructions": [{"instruction": 3}]}, "field 'instructions', item 0, field 'instruction'"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError, match=message) as caught:
        read(changes)
    assert str(caught.value).startswith("items.json, record 1 (asin 'B01'), field ")


def test_a_wrong_field_of_a_companion_names_that_file() -> None:
    with pytest.raises(CatalogError, match="^ins.json, entry 'B01', field 'attributes'"):
        read({}, {"attributes": 3})
    with pytest.raises(CatalogError, match="^ins.json, entry 'B01': expected an object but found list"):
        read({}, [1])
    with pytest.raises(CatalogError, match="^human.json, entry 'B01', field 'instructions'"):
        read({}, None, {"x": 1})
