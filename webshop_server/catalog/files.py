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
from pathlib import Path
from typing import Any, NamedTuple

import ijson
from ijson.common import JSONError

from webshop_server.catalog.arrays import counted
from webshop_server.catalog.product import CatalogError, Product, read_record

OFFICIAL = "items_shuffle"
ARRAYS, LINES = f"{OFFICIAL}*.json", "*products*.jsonl"
HIDDEN, HUMAN = "items_ins_v2", "items_human_ins"
MAX_OFFICIAL_ASIN = 10  # characters
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The files of one catalogue."""

    products: Path  # a JSON array or JSON Lines
    hidden: Path | None  # attributes and synthetic instructions by product
    human: Path | None  # instructions written by people, by product


def find_source(path: Path) -> Source:
    """Finds the file of products, or that of a folder with exactly one, and its companions.

    Of several companions the one that shares the ending of the products' name is taken: `items_ins_v2_1000.json` goes
    with `items_shuffle_1000.json`.

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
    if source.hidden is None and source.human is None and path.suffix == ".json":
        raise CatalogError(f"nothing beside {path} says what to ask for; put {HIDDEN}*.json into {path.parent}")
    return source


def _companion(products: Path, name: str) -> Path | None:
    ending = products.stem.removeprefix(OFFICIAL) if products.stem.startswith(OFFICIAL) else ""
    found = sorted(products.parent.glob(f"{name}*.json"))
    # The people's instructions come in one file for all sizes.
    for fitting in (products.with_name(f"{name}{ending}.json"), products.with_name(f"{name}.json")):
        if fitting in found:
            return fitting
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise CatalogError(f"{products} has several companions ({names}); leave the one that belongs to it")
    return found[0] if found else None


def read_source(source: Source) -> Iterator[Product]:
    """Reads the products of a catalogue.

    What is left out is counted in a warning: an identifier that came before; "nan", and in the official files more than
    10 characters, as in the original.

    Yields:
        Products in the order of the file, prices not drawn.

    Raises:
        CatalogError: If a file cannot be read, a record is wrong, or two identifiers differ in capitals only.
    """
    is_official = source.products.name.startswith(OFFICIAL)
    seen: dict[str, str] = {}  # identifiers as actions have them, and as written
    left_out: list[str] = []
    with closing(sqlite3.connect("")) as told:  # no name: a temporary file that ends with the connection
        told.execute("CREATE TABLE told (path TEXT, asin TEXT, value TEXT, PRIMARY KEY (path, asin)) WITHOUT ROWID")
        for path in (source.hidden, source.human):
            if path is not None:
                members = counted(_parts(path, "{"), f"reading {path.name}")
                rows = ((str(path), asin, json.dumps(value)) for asin, value in members)
                told.executemany("INSERT OR REPLACE INTO told VALUES (?, ?, ?)", rows)

        def found(path: Path | None, asin: str) -> Any:
            query = "SELECT value FROM told WHERE path = ? AND asin = ?"
            row = None if path is None else told.execute(query, (str(path), asin)).fetchone()
            return None if row is None else json.loads(row[0])

        records = _parts(source.products, "" if source.products.suffix == ".jsonl" else "[")
        for number, record in enumerate(records, start=1):
            try:
                asin = record["asin"]
                is_long = is_official and len(asin) > MAX_OFFICIAL_ASIN
                if is_long or asin in ("", "nan", seen.get(asin.lower())):
                    left_out.append(asin)
                    continue
                if (other := seen.setdefault(asin.lower(), asin)) != asin:
                    raise ValueError(f"{asin} and {other} differ in capitals only, as actions do not; rename one")
                yield read_record(record, found(source.hidden, asin), found(source.human, asin) or ())
            except (AttributeError, KeyError, TypeError, ValueError) as error:  # of another shape than a product's
                raise CatalogError(f"{source.products}, record {number}: {error}") from error
    why = "without an identifier, with one that came before or, in official files, of more than 10 characters"
    said = f"left out {len(left_out)} records {why}: {', '.join(left_out[:3])}"
    if not seen:
        raise CatalogError(f"{source.products} holds no products; is it the right file? {said if left_out else ''}")
    if left_out:
        _log.warning("%s: %s", source.products, said)


def _parts(path: Path, bracket: str) -> Iterator[Any]:
    """The elements of a file that is one JSON array, the members of an object, or the values of JSON Lines."""
    try:
        with path.open("rb") as file:
            start = len(_BYTE_ORDER_MARK) if file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
            file.seek(start)
            if not file.read(1 << 12).lstrip().startswith(bracket.encode()):
                raise CatalogError(f"{path} does not begin with {bracket}; it is another file, or damaged")
            file.seek(start)
            read, prefix = (ijson.kvitems, "") if bracket == "{" else (ijson.items, "item" if bracket else "")
            yield from read(file, prefix, use_float=True, multiple_values=not bracket)
    except (OSError, JSONError) as error:
        raise CatalogError(f"{path} cannot be read, it is cut or damaged: {error}") from error
