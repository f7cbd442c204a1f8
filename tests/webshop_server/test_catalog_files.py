"""The files that a large catalogue is kept in, and the opening of catalogues."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webshop_server.catalog import Catalog, CatalogError, open_catalog
from webshop_server.catalog.arrays import open_arrays
from webshop_server.catalog.catalog import write_products
from webshop_server.catalog.synthetic.generator import synthetic_products


def make(new: Any) -> None:
    """Three arrays."""
    new("small", "<i4", 3)[:] = [1, 2, 3]
    new("none", "<f4", 0)
    new("large", "<i8", 1000)[:] = np.arange(1000) * 10**12


def test_arrays_are_made_once_and_mapped_afterwards(tmp_path: Path) -> None:
    made = open_arrays(tmp_path / "kept", make)
    again = open_arrays(tmp_path / "kept", lambda new: pytest.fail("they were made again"))
    in_memory = open_arrays(None, make)
    assert made.keys() == again.keys() == in_memory.keys() == {"small", "none", "large"}
    for name, array in in_memory.items():
        assert array.dtype == again[name].dtype and array.tolist() == made[name].tolist() == again[name].tolist()
    assert again["large"].base is not None and not again["large"].flags.writeable


def test_arrays_that_are_cut_are_refused_and_unfinished_ones_are_not_there(tmp_path: Path) -> None:
    def failing(new: Any) -> None:
        make(new)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_arrays(tmp_path / "kept", failing)
    assert not [entry for entry in tmp_path.iterdir() if entry.is_dir()]
    open_arrays(tmp_path / "kept", make)
    file = tmp_path / "kept" / "large.npy"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ValueError, match="kept cannot be read .*delete it"):
        open_arrays(tmp_path / "kept", make)
    # What cannot be written is made in memory.
    (tmp_path / "file").write_text("no folder")
    assert open_arrays(tmp_path / "file" / "kept", make)["small"].tolist() == [1, 2, 3]


STORED = tuple(synthetic_products(50, seed=3))


def stored(folder: Path) -> Catalog:
    """A catalogue file of `STORED`."""
    with closing(sqlite3.connect(folder / "c.sqlite")) as database:
        write_products(database, STORED)
    return Catalog("shop", folder / "c.sqlite", 0, folder / "c")


def test_a_catalogue_in_a_file_is_that_in_memory(tmp_path: Path) -> None:
    kept, held = stored(tmp_path), Catalog("shop", STORED, 0)
    assert (kept.hash, len(kept)) == (held.hash, len(held))
    assert list(kept.products()) == list(held.products())
    assert [kept.asin(number) for number in range(50)] == [held.asin(number) for number in range(50)]
    assert kept.product(STORED[7].asin) == held.product(STORED[7].asin)
    for unknown in ("B0", "\ud800"):
        for catalog in (kept, held):
            with pytest.raises(LookupError, match="shop has no product"):
                catalog.product(unknown)
    with pytest.raises(CatalogError, match="twice"):
        Catalog("shop", [STORED[0], STORED[0]], 0)


def test_what_a_killed_build_left_is_never_read_and_is_cleared_away(tmp_path: Path) -> None:
    kill = (
        "import os, sys; from webshop_server.catalog import catalog\n"
        "def dying(count, seed):\n"
        "    yield from made(3000, seed)\n"
        "    os._exit(9)\n"
        "made, catalog.synthetic_products = catalog.synthetic_products, dying\n"
        "catalog.open_catalog('synthetic:5000', cache_dir=sys.argv[1], max_in_memory=0)\n"
    )
    assert subprocess.run([sys.executable, "-c", kill, str(tmp_path)], check=False, timeout=60).returncode == 9
    (partial,) = tmp_path.glob("*.partial")
    assert partial.stat().st_size > 100_000
    assert len(open_catalog("synthetic:5000", cache_dir=tmp_path, max_in_memory=0)) == 5000
    assert not partial.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_opens_the_file_itself(tmp_path: Path) -> None:
    catalog = stored(tmp_path)
    mine = catalog._local.opened
    child = os.fork()
    if child == 0:
        titles = [catalog.product(product.asin).title for product in STORED]
        own = catalog._local.opened[1] is not mine[1]
        os._exit(0 if own and titles == [product.title for product in STORED] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert catalog._local.opened is mine


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
    assert toy.beside("search") is made.beside("search") is None


def test_small_files_are_held_in_memory_and_large_ones_go_beside_their_source(tmp_path: Path) -> None:
    folder = shop(tmp_path / "data")
    small = open_catalog(folder, seed=3)
    assert not small.in_file
    assert sorted(file.name for file in folder.iterdir()) == ["items_ins_v2.json", "items_shuffle.json"]
    large = open_catalog(folder, seed=3, max_in_memory=4)
    assert large.in_file
    assert [file.name[:19] for file in folder.glob("*.sqlite")] == ["items_shuffle.json-"]
    assert list(small.products()) == list(large.products())
    beside = small.beside("search")
    assert beside == large.beside("search")
    assert beside is not None and beside.parent == folder


@pytest.mark.parametrize("change", ["size", "time", "companion"])
def test_a_changed_source_is_read_again_and_replaces_the_old_file(tmp_path: Path, change: str) -> None:
    folder = shop(tmp_path / "data")
    old = open_catalog(folder, max_in_memory=0)
    open_arrays(old.beside("kept"), make)
    (before,) = folder.glob("*.sqlite")
    if change == "size":
        shop(folder, count=6)
    elif change == "companion":
        (folder / "items_ins_v2.json").write_text('{"B1": {"attributes": ["soft"]}}', encoding="utf-8")
    else:
        os.utime(folder / "items_shuffle.json", ns=(0, 0))
    new = open_catalog(folder, max_in_memory=0)
    (after,) = folder.glob("*.sqlite")
    assert after != before
    assert not [entry for entry in folder.iterdir() if entry.is_dir()]
    assert (new.hash == old.hash) == (change == "time")
    assert old.product("B4").title == "n"  # who has the old one open goes on reading it
