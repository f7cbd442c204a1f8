"""Catalogues, opened by name or path.

    open_catalog("toy")               96 products that are easy to tell apart
    open_catalog("synthetic")         2000 products of a made-up shop; "synthetic:50000" for as many as you like
    open_catalog("data/webshop")      the public data, or JSON Lines like them: a folder, or the file of products

A small catalogue is held in memory, a large one in an SQLite file beside its source; callers see no difference.
"""

import functools
import hashlib
import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

from webshop_server.catalog.arrays import build_once, counted, remove
from webshop_server.catalog.files import find_source, read_source
from webshop_server.catalog.product import FIELDS, CatalogError, Product, read_product, write_product
from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.catalog.synthetic.toy import toy_products

SYNTHETIC_SIZE = 2000
MAX_IN_MEMORY = 20_000  # products, some 6 kB each
KEPT = 2048  # products of an SQLite file that each process keeps decoded, about 10 MB
PAGE_CACHE = 4 * 1024  # KiB of such a file per connection, that is, per thread; the system keeps the rest
_SCHEMA = """
CREATE TABLE about (hash TEXT NOT NULL, count INTEGER NOT NULL);
CREATE TABLE products (number INTEGER PRIMARY KEY, asin TEXT NOT NULL, record TEXT NOT NULL);
"""


class UnknownProductError(LookupError):
    """The catalogue has no product of this ASIN."""


class Catalog:
    """Products in a fixed order, read-only, in an SQLite database: in memory, or in a file that never changes.

    Safe to use from several threads, and after a fork.

    Attributes:
        name: What it was opened as.
        hash: Of the content, 64 hexadecimal digits; the same in every process and form.
        seed: Of the prices.
        in_file: Whether it is a large one, in a file.
    """

    hash: str

    def __init__(self, name: str, products: Iterable[Product] | Path, seed: int, home: Path | None = None) -> None:
        """Takes products into memory, or opens a file.

        Raises:
            CatalogError: If an identifier comes twice, or the file is damaged.
        """
        self.name, self.seed, self._home = name, seed, home
        self.in_file = isinstance(products, Path)
        self._path, self._local = products, threading.local()
        # Threads may share a connection, and one to memory also outlives a fork.
        self._memory = None if self.in_file else sqlite3.connect(":memory:", check_same_thread=False)
        if self._memory is not None and not isinstance(products, Path):
            write_products(self._memory, products)
        ((self.hash, self._length),) = self._rows("SELECT hash, count FROM about")
        # An attribute of the instance, not a decorator, so that the cache ends with the catalogue.
        self._kept = functools.lru_cache(KEPT)(self._read)

    def _rows(self, query: str, *values: str | int) -> Iterator[tuple[str, int]]:
        """What a query gives. Each thread has its own connection to a file; one from before a fork is left alone."""
        try:
            owner, connection = getattr(self._local, "opened", (None, self._memory))
            if self.in_file and owner != os.getpid():
                # immutable: no locks and no side files, so it works on read-only media too. A generator may be closed
                # by another thread than the one that began it, hence check_same_thread.
                uri = f"{Path(str(self._path)).resolve().as_uri()}?mode=ro&immutable=1"
                connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
                connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE}")
                self._local.opened = os.getpid(), connection
            assert connection is not None
            yield from connection.execute(query, values)
        except sqlite3.Error as error:
            advice = "delete it and start again, and it is made again"
            raise CatalogError(f"{self._path} cannot be read ({error}); {advice}") from error

    def _read(self, asin: str) -> Product:
        encodable = asin.encode(errors="replace").decode()  # SQLite does not take lone surrogates
        row = next(self._rows("SELECT record, number FROM products WHERE asin = ?", encodable), None)
        if row is None:
            raise UnknownProductError(f"the catalogue {self.name} has no product {asin!r}; take one from a page")
        return read_product(row[0], self.hash, self.seed)

    def __len__(self) -> int:
        """Number of products."""
        return self._length

    def asin(self, number: int) -> str:
        """The identifier of a product by its number in the order of the source, from 0."""
        ((asin, _),) = self._rows("SELECT asin, number FROM products WHERE number = ?", number)
        return asin

    def product(self, asin: str) -> Product:
        """Looks a product up; `UnknownProductError` if there is none of this identifier."""
        return self._kept(asin)

    def products(self) -> Iterator[Product]:
        """All products in the order of the source, one at a time."""
        for record, _ in self._rows("SELECT record, number FROM products ORDER BY number"):
            yield read_product(record, self.hash, self.seed)

    def beside(self, kind: str) -> Path | None:
        """The path of what is made from the catalogue and kept, such as "search"; None for nowhere."""
        return self._home and self._home.with_name(f"{self._home.name}.{self.hash[:16]}.{kind}")


def write_products(database: sqlite3.Connection, products: Iterable[Product]) -> None:
    """Fills an empty database with products and their hash; `CatalogError` if an identifier comes twice."""
    digest, count = hashlib.sha256("\t".join(FIELDS).encode()), 0

    def rows() -> Iterator[tuple[int, str, str]]:
        nonlocal count
        for product in products:
            line = write_product(product)
            digest.update(b"\n" + line.encode())
            yield count, product.asin, line
            count += 1

    # Nobody reads it before it is whole, so the journal and waiting for the disk are not needed.
    database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_SCHEMA}")
    try:
        database.executemany("INSERT INTO products VALUES (?, ?, ?)", rows())
        # Afterwards: sorting once is quicker than keeping order while ASINs come at random.
        database.execute("CREATE UNIQUE INDEX by_asin ON products (asin)")
    except sqlite3.IntegrityError as error:
        raise CatalogError("an ASIN comes twice; every product needs its own") from error
    database.execute("INSERT INTO about VALUES (?, ?)", (digest.hexdigest(), count))
    database.commit()


def open_catalog(
    spec: str | Path, *, seed: int = 0, cache_dir: str | Path | None = None, max_in_memory: int = MAX_IN_MEMORY
) -> Catalog:
    """Opens a catalogue.

    Args:
        spec: "toy", "synthetic", "synthetic:N" for N products, or a path. A folder that is really called "toy" is
            "./toy".
        seed: Seed of prices, and of what the bundled catalogues hold.
        cache_dir: Where to keep what belongs to the catalogue: its SQLite file, a search index. None: beside the
            source, or, where that is read-only or there is no source, in the user's cache folder.
        max_in_memory: Catalogues of more products go into SQLite.

    Raises:
        CatalogError: If there is no such catalogue, or it cannot be read or written.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise CatalogError(f"seed={seed!r} is not a whole number")
    cache = None if cache_dir is None else Path(cache_dir)
    made, colon, size = str(spec).partition(":")
    if spec == "toy":
        return Catalog("toy", toy_products(seed), seed, cache and cache / f"toy-{seed}")
    if isinstance(spec, str) and made == "synthetic":
        if colon and not (size.isascii() and size.isdigit() and int(size) > 0):
            raise CatalogError(f"{spec!r} names no number of products; write 'synthetic:5000'")
        count = int(size or SYNTHETIC_SIZE)
        name, source = f"synthetic:{count}", synthetic_products(count, seed)
        if count <= max_in_memory:
            return Catalog(name, source, seed, cache and cache / f"synthetic-{count}-{seed}")
        return _open_large((cache or _user_cache()) / f"synthetic-{count}-{seed}", [], name, seed, source, count)
    found = find_source(Path(spec))
    folder = found.products.resolve().parent
    # The mode is asked too, since for the superuser everything counts as writable.
    beside = folder if os.access(folder, os.W_OK) and folder.stat().st_mode & 0o222 else _user_cache()
    where = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]  # a cache may serve sources of one name
    home = (cache or beside) / f"{found.products.name}-{where}"
    files = [path for path in found if path is not None]
    return _open_large(home, files, str(found.products), seed, read_source(found), None, max_in_memory)


def _open_large(
    home: Path, files: list[Path], name: str, seed: int, products: Iterator[Product], total: int | None, small: int = 0
) -> Catalog:
    """Opens the SQLite file of a catalogue, or reads the source: into memory if there are `small` products at most."""
    key = hashlib.sha256(json.dumps([(file.stat().st_size, file.stat().st_mtime_ns) for file in files]).encode())
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.suffix in (".py", ".toml"):  # what other code made is stale
            key.update(path.read_bytes())
    path = home.with_name(f"{home.name}.{key.hexdigest()[:16]}.sqlite")
    if not path.exists():
        first = deque(islice(products, small + 1))
        if len(first) <= small:
            return Catalog(name, first, seed, home)
        drained = (first.popleft() for _ in range(len(first)))

        def write(partial: Path) -> None:
            """Writes the file, and deletes what older sources have left; who has it open goes on reading it."""
            with closing(sqlite3.connect(partial)) as database:
                write_products(database, counted(chain(drained, products), f"reading {name}", total))
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            for old in home.parent.glob(f"{home.name}.*"):
                if old.is_dir() or old.suffix == ".sqlite":
                    remove(old)

        try:
            build_once(path, write)
        except (sqlite3.Error, OSError) as error:
            raise CatalogError(f"{path} cannot be written ({error}); make room, or give another cache_dir") from error
    return Catalog(name, path, seed, home)


def _user_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ragen-webshop"
