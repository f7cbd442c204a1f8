"""The files that a large catalogue is kept in, and the opening of catalogues."""

import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webshop_server.catalog import open_catalog
from webshop_server.catalog import opening as catalog_module
from webshop_server.catalog.array_file import ArrayFileError, new_file, open_file
from webshop_server.catalog.catalog import MemoryCatalog
from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.sqlite import SqliteCatalog, build, is_fresh, open_or_build, read_about
from webshop_server.catalog.synthetic.generator import synthetic_products

SHAPES = {"small": ("<i4", 3), "none": ("<f4", 0), "large": ("<i8", 1000)}


def write_arrays(path: Path) -> None:
    with new_file(path, {"name": "caf\u00e9"}, SHAPES) as arrays:
        arrays["small"][:] = [1, 2, 3]
        arrays["large"][:] = np.arange(1000) * 10**12


@pytest.mark.parametrize("kept", [0, 7, 12, 16, 100, -8, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "x.index"
    write_arrays(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ArrayFileError, match="x.index.*delete it"):
        open_file(path)


@pytest.mark.parametrize(("place", "message"), [(0, "no file of arrays"), (9, "no file|damaged"), (20, "damaged")])
def test_a_damaged_header_is_refused(tmp_path: Path, place: int, message: str) -> None:
    path = tmp_path / "x.index"
    write_arrays(path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ArrayFileError, match=message):
        open_file(path)


STORED = tuple(synthetic_products(50, seed=3))


def test_a_file_of_another_source_is_rebuilt_under_open_readers(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    old = open_or_build(path, "old", "shop", 0, STORED)
    assert len(list(old.asins)) == 50
    new = open_or_build(path, "new", "shop", 0, STORED[:20])
    assert (len(old), len(new)) == (50, 20)
    assert old[STORED[40].asin].title == STORED[40].title
    assert STORED[40].asin not in new
    with ThreadPoolExecutor(1) as pool, pytest.raises(CatalogError, match="was built again since"):
        pool.submit(lambda: old[STORED[30].asin]).result()
    assert is_fresh(path, "new")
    assert not is_fresh(path, "old")


def test_what_a_killed_build_left_is_never_read_and_is_cleared_away(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    kill = (
        "import os, sys; from pathlib import Path; from webshop_server.catalog.sqlite import open_or_build\n"
        "from webshop_server.catalog.synthetic.generator import synthetic_products\n"
        "def dying():\n"
        "    yield from synthetic_products(5000)\n"
        "    os._exit(9)\n"
        "open_or_build(Path(sys.argv[1]), 'key', 'shop', 0, dying())\n"
    )
    assert subprocess.run([sys.executable, "-c", kill, str(path)], check=False, timeout=60).returncode == 9
    assert (tmp_path / "c.sqlite.partial").stat().st_size > 100_000
    assert not path.exists()
    assert len(open_or_build(path, "key", "shop", 0, STORED)) == 50
    assert not (tmp_path / "c.sqlite.partial").exists()


@pytest.mark.parametrize("damage", ["cut", "grown", "empty", "text", "about", "rows"])
def test_a_damaged_file_is_noticed_and_rebuilt(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c.sqlite"
    build(path, "key", STORED)
    whole = path.read_bytes()
    if damage in ("about", "rows"):
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                "DELETE FROM about WHERE name = 'hash'"
                if damage == "about"
                else "DELETE FROM products WHERE number > 9"
            )
            database.commit()
    else:
        path.write_bytes({"cut": whole[:-4096], "grown": whole + b"x", "empty": b"", "text": b"hello" * 5000}[damage])
    assert read_about(path) is None
    with pytest.raises(CatalogError, match="delete it"):
        SqliteCatalog(path, "shop", 0)
    assert len(open_or_build(path, "key", "shop", 0, STORED)) == 50


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_opens_the_file_itself(tmp_path: Path) -> None:
    catalog = open_or_build(tmp_path / "c.sqlite", "key", "shop", 0, STORED)
    mine = catalog._database
    child = os.fork()
    if child == 0:
        own = catalog._database is not mine
        titles = [catalog[product.asin].title for product in STORED]
        os._exit(0 if own and titles == [product.title for product in STORED] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert catalog._database is mine


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
