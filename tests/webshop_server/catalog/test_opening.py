"""Opening catalogues by name and by path, and where their files go."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from webshop_server.catalog import CatalogError, MemoryCatalog, open_catalog
from webshop_server.catalog import opening as catalog_module
from webshop_server.catalog.sqlite import SqliteCatalog, read_about


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for this test alone."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "ragen-webshop"


def shop(folder: Path, count: int = 5, **changes: Any) -> Path:
    """Writes official files of some products with ranges of prices."""
    folder.mkdir(exist_ok=True)
    item = {"name": "n", "category": "c", "query": "q", "product_category": "p", "pricing": "$1.00 - $90.00"} | changes
    items = [item | {"asin": f"B{number}"} for number in range(count)]
    (folder / "items_shuffle.json").write_text(json.dumps(items), encoding="utf-8")
    (folder / "items_ins_v2.json").write_text("{}", encoding="utf-8")
    return folder


def test_the_bundled_catalogues_are_what_they_were() -> None:
    # A change here changes every goal and price that was ever drawn from them: say so in the changelog.
    toy, made = open_catalog("toy"), open_catalog("synthetic")
    assert (toy.name, len(toy), toy.hash[:12]) == ("toy", 96, "5a135922d913")
    assert (made.name, len(made), made.hash[:12]) == ("synthetic:2000", 2000, "448cf59009cc")
    assert toy.folder is None
    assert made.folder is None


def test_the_seed_makes_another_shop() -> None:
    assert open_catalog("synthetic:40", seed=1) == open_catalog("synthetic:40", seed=1)
    assert open_catalog("synthetic:40", seed=1).hash != open_catalog("synthetic:40", seed=2).hash
    assert open_catalog("toy", seed=1).hash != open_catalog("toy").hash


@pytest.mark.parametrize("spec", ["synthetic:", "synthetic:0", "synthetic:-3", "synthetic:2e3", "synthetic:٣"])
def test_a_size_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(CatalogError, match="write 'synthetic:5000'"):
        open_catalog(spec)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="seed='1' is not a whole number"):
        open_catalog("toy", seed="1")  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match="max_in_memory=-1"):
        open_catalog("toy", max_in_memory=-1)
    with pytest.raises(
        CatalogError, match="neither a file nor a folder; give a catalogue's path, 'toy' or 'synthetic'"
    ):
        open_catalog("toys")


def test_small_files_are_held_in_memory_and_large_ones_go_beside_their_source(tmp_path: Path) -> None:
    folder = shop(tmp_path / "data")
    small = open_catalog(folder, seed=3)
    assert isinstance(small, MemoryCatalog)
    assert sorted(file.name for file in folder.iterdir()) == ["items_ins_v2.json", "items_shuffle.json"]
    large = open_catalog(folder, seed=3, max_in_memory=4)
    assert isinstance(large, SqliteCatalog)
    assert large.path == folder / "items_shuffle.json.catalog.sqlite"
    assert small == large
    assert list(small.products()) == list(large.products())
    assert small.folder == large.folder == folder
    # The limit decides, not what lies there from before.
    assert isinstance(open_catalog(folder, max_in_memory=5), MemoryCatalog)


def test_a_file_made_once_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shop(tmp_path / "data")
    first = open_catalog(folder, max_in_memory=0)
    monkeypatch.setattr(catalog_module, "read_source", lambda source: pytest.fail("the source was read"))
    assert open_catalog(folder / "items_shuffle.json", max_in_memory=0) == first


@pytest.mark.parametrize("change", ["size", "time", "content", "companion"])
def test_a_changed_source_is_read_again(tmp_path: Path, change: str) -> None:
    folder = shop(tmp_path / "data")
    source = folder / "items_shuffle.json"
    old = open_catalog(folder, max_in_memory=0)
    before = source.stat()
    if change == "size":
        shop(folder, count=6)
    elif change == "companion":
        (folder / "items_ins_v2.json").write_text('{"B1": {"attributes": ["soft"]}}', encoding="utf-8")
    elif change == "content":  # the size and even the time stay as they are
        shop(folder, name="m")
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert source.stat().st_size == before.st_size
    else:
        os.utime(source, ns=(0, 0))
    key = json.loads(_key(folder))
    new = open_catalog(folder, max_in_memory=0)
    assert json.loads(_key(folder)) != key
    assert (new.hash == old.hash) == (change == "time")


def _key(folder: Path) -> str:
    about = read_about(folder / "items_shuffle.json.catalog.sqlite")
    assert about is not None
    return about["key"]


def test_files_of_other_code_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shop(tmp_path / "data")
    open_catalog(folder, max_in_memory=0)
    key = _key(folder)
    monkeypatch.setattr(catalog_module, "_code", lambda: "newer")
    open_catalog(folder, max_in_memory=0)
    assert _key(folder) == key.replace(json.loads(key)["by"], "newer")


def test_a_read_only_folder_is_left_alone(tmp_path: Path, cache: Path) -> None:
    folder = shop(tmp_path / "data")
    folder.chmod(0o555)
    try:
        catalog = open_catalog(folder, max_in_memory=0)
    finally:
        folder.chmod(0o755)
    assert catalog.folder is not None
    assert catalog.folder.parent == cache
    assert len(list(folder.iterdir())) == 2


def test_a_given_folder_takes_everything_and_keeps_sources_apart(tmp_path: Path) -> None:
    place = tmp_path / "place"
    first = open_catalog(shop(tmp_path / "a"), cache_dir=place, max_in_memory=0)
    second = open_catalog(shop(tmp_path / "b", count=7), cache_dir=str(place), max_in_memory=0)
    made = open_catalog("synthetic:30", cache_dir=place, max_in_memory=10)
    assert {first.folder, second.folder, made.folder, open_catalog("toy", cache_dir=place).folder} == {place}
    assert (len(first), len(second), len(made)) == (5, 7, 30)
    assert len(list(place.glob("*.catalog.sqlite"))) == 3


def test_a_large_synthetic_catalogue_is_the_same_in_sqlite(cache: Path) -> None:
    stored, held = open_catalog("synthetic:300", seed=5, max_in_memory=100), open_catalog("synthetic:300", seed=5)
    assert isinstance(stored, SqliteCatalog)
    assert stored.path == cache / "synthetic-300-5.catalog.sqlite"
    assert stored == held
    assert list(stored.products()) == list(held.products())
    assert open_catalog("synthetic:300", seed=6, max_in_memory=100) != stored


def test_a_cache_that_cannot_be_made_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CatalogError, match="cannot be made .*; give another cache_dir"):
        open_catalog("synthetic:30", cache_dir=tmp_path / "file", max_in_memory=1)


def test_the_real_set_opens_by_its_folder(real_data: Path) -> None:
    catalog = open_catalog(real_data)
    assert len(catalog) == 1000
    assert catalog == open_catalog(real_data / "webshop1k_products.jsonl")
    prices = [price for product in catalog.products() for price in product.pricing]
    assert (min(prices), max(prices)) == (0.01, 4299.99)
    assert sum(len(product.pricing) == 2 for product in catalog.products()) == 93
    assert all(min(product.pricing) <= product.price <= max(product.pricing) for product in catalog.products())
