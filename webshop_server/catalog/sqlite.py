"""A catalogue in an SQLite file, for more products than memory should hold.

The file is a cache of its source: built under another name, then renamed, and never changed, so any number of processes
read it without locks. It is built again if its key says it was made from something else, or if it is cut. Damage inside
is found where it is read, and the error says to delete the file.
"""

import functools
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from webshop_server.catalog.catalog import Catalog, UnknownProductError
from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.one_by_one import OneByOne
from webshop_server.catalog.product import Product
from webshop_server.catalog.progress import counted, say
from webshop_server.catalog.records import ContentHash, read_product, write_product

KEPT = 2048  # products that each process keeps decoded, about 10 MB
PATIENCE = 3600.0  # seconds to wait for another process that is building the same file
IMPATIENCE = 2.0  # seconds after which it says so
PAGE_CACHE = 4 * 1024  # KiB of pages per connection, that is, per thread; the system keeps the rest
_SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE products (number INTEGER PRIMARY KEY, asin TEXT NOT NULL, record TEXT NOT NULL);
"""


class SqliteCatalog(Catalog):
    """A catalogue in an SQLite file. Can be pickled, and be used after a fork: each process opens the file itself."""

    def __init__(self, path: Path, name: str, seed: int) -> None:
        """Opens a file that `build` made.

        Args:
            path: The file.
            name: What to call the catalogue.
            seed: Seed of the prices.

        Raises:
            CatalogError: If the file is missing, cut or something else.
        """
        about = read_about(path)
        if about is None:
            raise CatalogError(f"{path} is no catalogue, or a damaged one; delete it and open the source again")
        super().__init__(name, about["hash"], seed, path.parent)
        self.path = path
        self._length = int(about["count"])
        self._local = threading.local()
        # An attribute of the instance, not a decorator, so that the cache ends with the catalogue.
        self._kept = functools.lru_cache(KEPT)(self._read)

    def __reduce__(self) -> tuple[type["SqliteCatalog"], tuple[Path, str, int]]:
        return SqliteCatalog, (self.path, self.name, self.seed)

    @property
    def _database(self) -> sqlite3.Connection:
        """This thread's connection. One that came through a fork is left alone and another is opened."""
        owner, connection = getattr(self._local, "opened", (None, None))
        if connection is None or owner != os.getpid():
            try:
                connection = _connect(self.path)
            except sqlite3.OperationalError as error:
                raise CatalogError(
                    f"{self.path} cannot be opened ({error}); see that it is there and may be read, and that the "
                    "process may open more files (ulimit -n)"
                ) from error
            about = dict(connection.execute("SELECT name, value FROM about"))
            if (about.get("hash"), about.get("count")) != (self.hash, str(self._length)):  # the key may be another
                connection.close()
                raise CatalogError(f"{self.path} was built again since this catalogue was opened; open it again")
            self._local.opened = os.getpid(), connection
        return connection

    @property
    def asins(self) -> Sequence[str]:
        """The ASINs in the order of the source, read one by one: a million would take 100 MB."""
        return _Asins(self)

    def asins_from(self, first: int, count: int) -> Iterator[str]:
        """So many ASINs in the order of the source, from the one with this number, which begins at 0."""
        query = "SELECT asin FROM products WHERE number > ? ORDER BY number LIMIT ?"
        return self._rows(query, (first, count))

    @contextmanager
    def one_builder(self) -> Iterator[None]:
        """Lets one process at a time build files beside this one; see `Catalog`."""
        if not os.access(self.path.parent, os.W_OK):  # then nobody will
            yield
            return
        with one_builder(self.path):
            yield

    def _rows(self, query: str, values: tuple[str | int, ...] = ()) -> Iterator[str]:
        """The texts that a query for one column gives."""
        try:
            for (text,) in self._database.execute(query, values):
                yield text
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _product(self, record: str) -> Product:
        try:
            return read_product(record, self.hash, self.seed)
        except json.JSONDecodeError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> CatalogError:
        return CatalogError(f"{self.path} cannot be read ({error}); delete it and start again, and it is made again")

    def _read(self, asin: str) -> Product:
        record = next(self._rows("SELECT record FROM products WHERE asin = ?", (asin,)), None)
        if record is None:
            raise UnknownProductError(asin, self.name)
        return self._product(record)

    def product(self, asin: str) -> Product:
        """Looks a product up; see `Catalog`."""
        if not isinstance(asin, str):
            raise UnknownProductError(asin, self.name)
        try:
            return self._kept(asin)
        except UnicodeEncodeError:  # a lone surrogate, which SQLite does not take
            raise UnknownProductError(asin, self.name) from None

    def products(self) -> Iterator[Product]:
        """All products in the order of the source, one at a time."""
        return map(self._product, self._rows("SELECT record FROM products ORDER BY number"))

    def __len__(self) -> int:
        return self._length

    def close(self) -> None:
        """Closes this thread's connection. Using the catalogue again opens another."""
        owner, connection = getattr(self._local, "opened", (None, None))
        self._local = threading.local()
        if connection is not None and owner == os.getpid():
            connection.close()


class _Asins(OneByOne):
    """The ASINs of a catalogue, which stay in its file; one after the other they are read by a single query."""

    def __init__(self, catalog: SqliteCatalog) -> None:
        super().__init__(len(catalog), lambda place: next(catalog.asins_from(place, 1)))
        self._catalog = catalog

    def __iter__(self) -> Iterator[str]:
        return self._catalog.asins_from(0, len(self))


def _connect(path: Path) -> sqlite3.Connection:
    # immutable: no locks and no side files, as nothing changes a finished file; it works on read-only media too.
    # A generator may be closed by another thread than the one that began it, hence check_same_thread.
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE}")
    return connection


def read_about(path: Path) -> dict[str, str] | None:
    """Reads what a file of `build` says of itself.

    Args:
        path: The file.

    Returns:
        "key", "hash" and "count", or None if the file is missing, cut, damaged or something else.
    """
    try:
        with closing(_connect(path)) as database:
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            (size,) = database.execute("PRAGMA page_size").fetchone()
            about = dict(database.execute("SELECT name, value FROM about"))
            (last,) = database.execute("SELECT max(number) FROM products").fetchone()
            whole = pages * size == path.stat().st_size and last == int(about["count"])
            return about if whole and {"key", "hash"} <= about.keys() else None
    except (sqlite3.Error, OSError, KeyError, ValueError):
        return None


def build(path: Path, key: str, products: Iterable[Product]) -> None:
    """Writes a catalogue file and puts it in its place when it is whole and on disk. One process at a time may.

    Args:
        path: The file; an old one is replaced. Connections to the old one keep reading it; a catalogue that is
            still open refuses to connect to the new one, unless that holds the same products.
        key: What the file is made from.
        products: The products in their order, no ASIN twice.

    Raises:
        CatalogError: If the file cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with closing(sqlite3.connect(partial)) as database:
            _fill(database, key, products)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except (sqlite3.Error, OSError) as error:
        raise CatalogError(f"{path} cannot be written ({error}); make room, or give another cache_dir") from error
    finally:
        partial.unlink(missing_ok=True)


def _fill(database: sqlite3.Connection, key: str, products: Iterable[Product]) -> None:
    # Nobody reads it before it is whole, so the journal and waiting for the disk after each page are not needed.
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    database.executescript(_SCHEMA)
    digest, count = ContentHash(), 0

    def rows() -> Iterator[tuple[int, str, str]]:
        nonlocal count
        for count, product in enumerate(products, start=1):
            record = write_product(product)
            digest.add(record)
            yield count, product.asin, record

    database.executemany("INSERT INTO products VALUES (?, ?, ?)", rows())
    # Afterwards: sorting once is quicker than keeping order while ASINs come at random.
    database.execute("CREATE UNIQUE INDEX by_asin ON products (asin)")
    about = {"key": key, "hash": digest.hex(), "count": str(count)}
    database.executemany("INSERT INTO about VALUES (?, ?)", about.items())
    database.commit()


def open_or_build(
    path: Path, key: str, name: str, seed: int, products: Iterable[Product], total: int | None = None
) -> SqliteCatalog:
    """Opens a catalogue file, building it first unless it is there and made from the same.

    Of several processes that find it missing one builds it and the others wait.

    Args:
        path: The file.
        key: What it should be made from.
        name: What to call the catalogue.
        seed: Seed of the prices.
        products: Read only if the file has to be built.
        total: Number of the products, if it is known.

    Returns:
        The catalogue.

    Raises:
        CatalogError: If the file cannot be written, or another process has been building it for an hour.
    """
    if not is_fresh(path, key):
        with one_builder(path):
            if not is_fresh(path, key):
                build(path, key, counted(products, f"reading {name}", total))
    return SqliteCatalog(path, name, seed)


@contextmanager
def one_builder(path: Path) -> Iterator[None]:
    """Lets one process at a time into the block.

    Args:
        path: What is built there.

    Raises:
        CatalogError: If the lock cannot be made, or another process has held it for an hour.
    """
    # SQLite's own lock: it works on every system and ends with the process that holds it, however that ends.
    lock = path.with_name(f"{path.name}.lock")
    try:
        waiting = sqlite3.connect(lock, timeout=IMPATIENCE, isolation_level=None)
    except sqlite3.Error as error:
        raise _locked(lock, error) from error
    with closing(waiting):
        try:
            try:
                waiting.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                say(f"another process makes the files of {path.name}; waiting for it")
                waiting.execute(f"PRAGMA busy_timeout = {int(1000 * PATIENCE)}")
                waiting.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            raise _locked(lock, error) from error
        yield


def _locked(lock: Path, error: sqlite3.Error) -> CatalogError:
    return CatalogError(f"{lock} cannot be locked ({error}); delete it, or give another cache_dir")


def is_fresh(path: Path, key: str) -> bool:
    """Whether a whole catalogue file made from `key` is there."""
    about = read_about(path)
    return about is not None and about["key"] == key


def key_of(parts: object) -> str:
    """A key of plain values: names, numbers, lists and mappings of them."""
    return json.dumps(parts, sort_keys=True)
