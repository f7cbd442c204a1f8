"""Which files belong together, and that official files and JSON Lines give the same products."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from webshop_server.catalog.files import Source, find_source, read_source
from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.records import content_hash


def record(asin: str, **fields: Any) -> dict[str, Any]:
    return {"asin": asin, "name": f"n {asin}", "category": "c", "query": "q", "product_category": "p"} | fields


def write(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def asins(folder: Path) -> list[str]:
    return [product.asin for product in read_source(find_source(folder))]


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


def test_the_companion_of_the_same_size_is_taken(tmp_path: Path) -> None:
    write(tmp_path, items_shuffle=[], items_shuffle_1000=[], items_ins_v2={}, items_ins_v2_1000={}, items_human_ins={})
    small = find_source(tmp_path / "items_shuffle_1000.json")
    assert small.hidden == tmp_path / "items_ins_v2_1000.json"
    assert find_source(tmp_path / "items_shuffle.json").hidden == tmp_path / "items_ins_v2.json"
    assert small.human == tmp_path / "items_human_ins.json"
    with pytest.raises(CatalogError, match="several catalogues \\(items_shuffle.json, items_shuffle_1000.json\\)"):
        find_source(tmp_path)


def test_what_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="has no products; it must hold items_shuffle"):
        find_source(tmp_path)
    with pytest.raises(CatalogError, match="neither a file nor a folder"):
        find_source(tmp_path / "nowhere")
    (tmp_path / "items.txt").touch()
    with pytest.raises(CatalogError, match="ends in '.txt'"):
        find_source(tmp_path / "items.txt")
    write(tmp_path, items_shuffle=[record("B1")])
    with pytest.raises(CatalogError, match="put items_ins_v2\\*.json into"):
        find_source(tmp_path)
    write(tmp_path, items_ins_v2_a={}, items_ins_v2_b={})
    with pytest.raises(CatalogError, match="several companions"):
        find_source(tmp_path)


def test_records_that_the_original_passes_over_are_passed_over(tmp_path: Path) -> None:
    items = [record("B1"), record("nan"), record("B123456789"), record("B1234567890"), record("B1", name="again")]
    write(tmp_path, items_shuffle=items, items_ins_v2={})
    products = list(read_source(find_source(tmp_path)))
    assert [(product.asin, product.title) for product in products] == [("B1", "n B1"), ("B123456789", "n B123456789")]


def test_errors_name_file_record_product_and_field(tmp_path: Path) -> None:
    write(tmp_path, items_shuffle=[record("B1"), record("B2", name=5)], items_ins_v2={})
    products = read_source(find_source(tmp_path))
    assert next(products).asin == "B1"
    with pytest.raises(CatalogError) as caught:
        next(products)
    path = tmp_path / "items_shuffle.json"
    assert str(caught.value) == f"{path}, record 2 (asin 'B2'), field 'name': expected text but found int 5"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"name": "x"}], "record 1, field 'asin': it is missing"),
        ([record("")], "record 1, field 'asin': it is empty"),
        ([3], "record 1: expected an object but found int 3"),
        ([], "holds no products"),
        ([record("nan")], "holds no products"),
    ],
)
def test_records_without_an_asin_are_refused(tmp_path: Path, items: list[Any], message: str) -> None:
    write(tmp_path, items_shuffle=items, items_ins_v2={})
    with pytest.raises(CatalogError, match=message):
        asins(tmp_path)


def test_a_damaged_companion_is_named(tmp_path: Path) -> None:
    write(tmp_path, items_shuffle=[record("B1")], items_ins_v2={})
    (tmp_path / "items_ins_v2.json").write_text('{"B1": {', encoding="utf-8")
    with pytest.raises(CatalogError, match="items_ins_v2.json, member 1 \\('B1'\\): not JSON"):
        asins(tmp_path)
    write(tmp_path, items_ins_v2={"B1": {"attributes": [1]}})
    with pytest.raises(CatalogError, match="items_ins_v2.json, entry 'B1', field 'attributes'"):
        asins(tmp_path)


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
        raw = (
            "asin",
            "name",
            "full_description",
            "small_description",
            "images",
            "product_category",
            "category",
            "query",
        )
        kept = {name: item[name] for name in (*raw, "customization_options", "average_rating", "page")}
        items.append(kept | {"pricing": "" if item["pricing"] == [100.0] else prices})
        if item.get("instructions"):
            people[item["asin"]] = item["instructions"]
    hidden = json.loads((real_data / "items_ins_v2_1000.json").read_text(encoding="utf-8"))
    write(tmp_path, items_shuffle_1000=items, items_ins_v2_1000=hidden, items_human_ins=people)
    official = content_hash(read_source(find_source(tmp_path)))
    assert official == content_hash(read_source(find_source(real_data)))
