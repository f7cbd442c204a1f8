"""The file of a large catalogue: whole or not there, fresh or rebuilt, shared between processes."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.product import Product
from webshop_server.catalog.sqlite import SqliteCatalog, build, is_fresh, open_or_build, read_about
from webshop_server.catalog.synthetic.generator import synthetic_products

PRODUCTS = tuple(synthetic_products(50, seed=3))


def never() -> Iterator[Product]:
    raise AssertionError("the source was read")
    yield


def test_a_fresh_file_is_opened_without_its_source(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    first = open_or_build(path, "key", "shop", 0, PRODUCTS)
    again = open_or_build(path, "key", "shop", 0, never())
    assert list(again.products()) == list(first.products())
    assert again.folder == tmp_path


def test_a_file_of_another_source_is_rebuilt_under_open_readers(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    old = open_or_build(path, "old", "shop", 0, PRODUCTS)
    assert len(list(old.asins)) == 50
    new = open_or_build(path, "new", "shop", 0, PRODUCTS[:20])
    assert (len(old), len(new)) == (50, 20)
    assert old[PRODUCTS[40].asin].title == PRODUCTS[40].title
    assert PRODUCTS[40].asin not in new
    with ThreadPoolExecutor(1) as pool, pytest.raises(CatalogError, match="was built again since"):
        pool.submit(lambda: old[PRODUCTS[30].asin]).result()
    assert is_fresh(path, "new")
    assert not is_fresh(path, "old")


def test_a_file_that_was_built_again_with_the_same_products_is_read_on(tmp_path: Path) -> None:
    """Regression: after `touch` of the source, threads of a running server that had not read yet refused the file."""
    path = tmp_path / "c.sqlite"
    old = open_or_build(path, "old", "shop", 0, PRODUCTS)
    assert open_or_build(path, "new", "shop", 0, PRODUCTS) == old
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: old[PRODUCTS[30].asin]).result().title == PRODUCTS[30].title


def test_a_build_that_fails_leaves_nothing_and_keeps_the_old(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"

    def failing() -> Iterator[Product]:
        yield from PRODUCTS
        raise CatalogError("record 51 is damaged")

    with pytest.raises(CatalogError, match="record 51"):
        build(path, "key", failing())
    assert list(tmp_path.iterdir()) == []
    build(path, "key", PRODUCTS)
    with pytest.raises(CatalogError, match="record 51"):
        build(path, "newer", failing())
    assert [file.name for file in tmp_path.iterdir()] == ["c.sqlite"]
    assert is_fresh(path, "key")


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
    assert len(open_or_build(path, "key", "shop", 0, PRODUCTS)) == 50
    assert not (tmp_path / "c.sqlite.partial").exists()


@pytest.mark.parametrize("damage", ["cut", "grown", "empty", "text", "about", "rows"])
def test_a_damaged_file_is_noticed_and_rebuilt(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c.sqlite"
    build(path, "key", PRODUCTS)
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
    assert len(open_or_build(path, "key", "shop", 0, PRODUCTS)) == 50


@pytest.mark.parametrize("damage", [b"\xff" * 4096, b"[" + b" " * 4095])
def test_damage_inside_a_file_is_an_error_that_names_it(tmp_path: Path, damage: bytes) -> None:
    """Regression: SQLite's "database disk image is malformed" alone, a traceback at the start of a server."""
    path = tmp_path / "c.sqlite"
    build(path, "key", PRODUCTS)
    content = bytearray(path.read_bytes())
    first, last = len(content) // 4 // 4096 * 4096, len(content) * 3 // 4
    for start in range(first, last, 4096):
        content[start : start + 4096] = damage
    path.write_bytes(content)
    catalog = SqliteCatalog(path, "shop", 0)
    for read in (catalog.products, lambda: map(catalog.product, (product.asin for product in PRODUCTS))):
        with pytest.raises(CatalogError, match=r"c\.sqlite cannot be read \(.*delete it and start again"):
            list(read())


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    """Regression: a server without file descriptors left was told to delete its catalogue."""
    catalog = open_or_build(tmp_path / "c.sqlite", "key", "shop", 0, PRODUCTS)
    catalog.close()
    catalog.path.rename(tmp_path / "elsewhere.sqlite")
    with pytest.raises(CatalogError, match=r"c\.sqlite cannot be opened \(unable to open .*ulimit -n"):
        catalog.product(PRODUCTS[0].asin)
    (tmp_path / "elsewhere.sqlite").rename(catalog.path)
    assert catalog.product(PRODUCTS[0].asin).asin == PRODUCTS[0].asin
    catalog.close()
    catalog.path.write_bytes(b"no database" * 1000)
    with pytest.raises(CatalogError, match=r"c\.sqlite cannot be read \(file is not a database\); delete it"):
        list(catalog.products())


def test_a_record_that_is_no_json_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    catalog = open_or_build(tmp_path / "c.sqlite", "key", "shop", 0, PRODUCTS)
    with closing(sqlite3.connect(catalog.path)) as database:
        database.execute("UPDATE products SET record = '[1, ' WHERE number = 3")
        database.commit()
    with pytest.raises(CatalogError, match=r"c\.sqlite cannot be read \(Expecting value"):
        catalog.product(PRODUCTS[2].asin)


def test_a_place_that_cannot_be_written_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cache_dir"):
        open_or_build(tmp_path / "nowhere" / "c.sqlite", "key", "shop", 0, PRODUCTS)


def test_processes_that_find_it_missing_build_it_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from webshop_server.catalog.sqlite import open_or_build\n"
        "from webshop_server.catalog.synthetic.generator import synthetic_products\n"
        "def noted():\n"
        "    with open(sys.argv[2], 'a') as file: file.write('built\\n')\n"
        "    yield from synthetic_products(2000)\n"
        "print(open_or_build(Path(sys.argv[1]), 'key', 'shop', 0, noted()))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "c.sqlite"), str(tmp_path / "notes")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {process.communicate(timeout=60)[0] for process in running}
    assert len(said) == 1
    assert "shop: 2000 products" in said.pop()
    assert (tmp_path / "notes").read_text() == "built\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_opens_the_file_itself(tmp_path: Path) -> None:
    catalog = open_or_build(tmp_path / "c.sqlite", "key", "shop", 0, PRODUCTS)
    mine = catalog._database
    child = os.fork()
    if child == 0:
        own = catalog._database is not mine
        titles = [catalog[product.asin].title for product in PRODUCTS]
        os._exit(0 if own and titles == [product.title for product in PRODUCTS] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert catalog._database is mine


def test_a_closed_catalogue_opens_again_by_itself(tmp_path: Path) -> None:
    catalog = open_or_build(tmp_path / "c.sqlite", "key", "shop", 0, PRODUCTS)
    catalog.close()
    catalog.close()
    assert catalog[PRODUCTS[3].asin].title == PRODUCTS[3].title
    assert len(list(catalog.products())) == 50


def test_a_name_with_odd_characters_is_a_file_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20é.sqlite"
    assert len(open_or_build(path, "key", "shop", 0, PRODUCTS)) == 50
    assert path.exists()
