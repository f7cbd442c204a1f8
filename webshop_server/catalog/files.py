"""The files of the public data, read product by product: which belong together, and what is in them.

A catalogue is one file of products, a JSON array (`items_shuffle*.json`) or JSON Lines (`*products*.jsonl`), with,
beside it, attributes and instructions (`items_ins_v2*.json`) and what people asked for (`items_human_ins*.json`).
No file is held in memory: what has to be looked up by product goes through a temporary database on disk.
"""

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from webshop_server.catalog.fields import Record, read_record
from webshop_server.catalog.json_stream import CatalogError, array_elements, json_lines, object_members
from webshop_server.catalog.product import Product
from webshop_server.catalog.progress import counted

ARRAYS, LINES = "items_shuffle*.json", "*products*.jsonl"
HIDDEN, HUMAN = "items_ins_v2", "items_human_ins"
MAX_ASIN = 10  # characters; the original skips longer ones

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """The files of one catalogue.

    Attributes:
        products: The products, a JSON array or JSON Lines.
        hidden: Attributes and synthetic instructions by product, or None.
        human: Instructions written by people by product, or None.
    """

    products: Path
    hidden: Path | None
    human: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are there."""
        return tuple(path for path in (self.products, self.hidden, self.human) if path is not None)

    @property
    def is_lines(self) -> bool:
        """Whether the products are JSON Lines."""
        return self.products.suffix == ".jsonl"


def find_source(path: Path) -> Source:
    """Finds the files of a catalogue.

    Args:
        path: The file of products, or a folder with exactly one.

    Returns:
        The file and those beside it. Of several companions the one that shares the ending of the products'
        name is taken: `items_ins_v2_1000.json` goes with `items_shuffle_1000.json`.

    Raises:
        CatalogError: If there is no file of products, there are several, or nothing tells what to ask shoppers for.
    """
    if path.is_dir():
        found = sorted({*path.glob(ARRAYS), *path.glob(LINES)})
        if not found:
            raise CatalogError(f"the folder {path} has no products; it must hold {ARRAYS} or {LINES}")
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise CatalogError(f"the folder {path} has several catalogues ({names}); give the path of one of them")
        path = found[0]
    if not path.is_file():
        raise CatalogError(f"{path} is neither a file nor a folder; give a catalogue's path, 'toy' or 'synthetic'")
    if path.suffix not in (".json", ".jsonl"):
        raise CatalogError(f"{path} ends in {path.suffix!r}; a catalogue is .json (one array) or .jsonl (JSON Lines)")
    source = Source(path, _companion(path, HIDDEN), _companion(path, HUMAN))
    if source.hidden is None and source.human is None and not source.is_lines:
        raise CatalogError(f"nothing beside {path} says what to ask for; put {HIDDEN}*.json into {path.parent}")
    return source


def _companion(products: Path, name: str) -> Path | None:
    ending = products.stem.removeprefix("items_shuffle") if products.stem.startswith("items_shuffle") else ""
    same = products.with_name(f"{name}{ending}.json")
    if same.is_file():
        return same
    found = sorted(products.parent.glob(f"{name}*.json"))
    if len(found) > 1:
        # The people's instructions come in one file for all sizes.
        whole = products.with_name(f"{name}.json")
        if whole in found:
            return whole
        names = ", ".join(file.name for file in found)
        raise CatalogError(f"{products} has several companions ({names}) and none is {same.name}; leave one of them")
    return found[0] if found else None


class _Lookup:
    """The members of a file that is one JSON object, by key, on disk."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        # No name: SQLite keeps it in a temporary file that ends with the connection.
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE members (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")

    def fill(self) -> None:
        """Reads the file, if there is one. As in Python's own reader, the last of two equal keys counts."""
        if self._path is not None:
            read = counted(object_members(self._path), f"reading {self._path.name}")
            members = ((key, json.dumps(value)) for key, value in read)
            self._database.executemany("INSERT OR REPLACE INTO members VALUES (?, ?)", members)

    def get(self, key: str) -> tuple[object, str] | None:
        """The value and its place for errors, or None."""
        row = self._database.execute("SELECT value FROM members WHERE key = ?", (key,)).fetchone()
        return None if row is None else (json.loads(row[0]), f"{self._path}, entry {key!r}")

    def close(self) -> None:
        """Removes the database."""
        self._database.close()


def read_source(source: Source) -> Iterator[Product]:
    """Reads the products of a catalogue, without those that the original skips.

    Args:
        source: The files.

    Yields:
        Products in the order of the file, prices not drawn: no ASIN "nan", none longer than 10 characters, none twice.

    Raises:
        CatalogError: If a file cannot be read or a record is wrong.
    """
    try:
        with closing(_Lookup(source.hidden)) as hidden, closing(_Lookup(source.human)) as human:
            hidden.fill()
            human.fill()
            yield from _joined(source, hidden, human)
    except OSError as error:
        raise CatalogError(f"{source.products} or a file beside it cannot be read: {error}") from error


def _joined(source: Source, hidden: _Lookup, human: _Lookup) -> Iterator[Product]:
    seen: set[str] = set()
    skipped = 0
    for place, value in (json_lines if source.is_lines else array_elements)(source.products):
        record = Record(value, f"{source.products}, {place}")
        asin = record.text("asin", required=True)
        if not asin:
            raise record.error("asin", "it is empty; every product has one")
        if asin == "nan" or len(asin) > MAX_ASIN or asin in seen:
            skipped += 1
            continue
        seen.add(asin)
        record.place += f" (asin {asin!r})"
        entry, said = hidden.get(asin), human.get(asin)
        yield read_record(
            record,
            None if entry is None else Record(*entry),
            () if said is None else Record({"instructions": said[0]}, said[1]).records("instructions"),
        )
    if skipped:
        _log.info("%s: skipped %d records without a usable ASIN", source.products, skipped)
    if not seen:
        raise CatalogError(f"{source.products} holds no products; is it the right file?")
