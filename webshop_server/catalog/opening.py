"""Opens a catalogue by name or path.

    open_catalog("toy")               96 products that are easy to tell apart
    open_catalog("synthetic")         2000 products of a made-up shop; "synthetic:50000" for as many as you like
    open_catalog("data/webshop")      the public data, or JSON Lines like them: a folder, or the file of products

A small catalogue is held in memory, a large one in an SQLite file beside its source; callers see no difference.
"""

import hashlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from webshop_server.catalog import sqlite
from webshop_server.catalog.catalog import Catalog, MemoryCatalog
from webshop_server.catalog.files import Source, find_source, read_source
from webshop_server.catalog.json_stream import CatalogError
from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic.generator import synthetic_products
from webshop_server.catalog.synthetic.toy import toy_products

SYNTHETIC_SIZE = 2000
MAX_IN_MEMORY = 20_000  # products, some 6 kB each
SAMPLES = 16  # blocks of a source that its key looks at
SAMPLE_SIZE = 1 << 16  # bytes


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

    Returns:
        The catalogue.

    Raises:
        CatalogError: If there is no such catalogue, or it cannot be read or written.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise CatalogError(f"seed={seed!r} is not a whole number")
    if max_in_memory < 0:
        raise CatalogError(f"max_in_memory={max_in_memory!r} must be at least 0")
    cache = None if cache_dir is None else Path(cache_dir)
    if spec == "toy":
        return MemoryCatalog("toy", toy_products(seed), seed, cache)
    if isinstance(spec, str) and (spec == "synthetic" or spec.startswith("synthetic:")):
        return _open_synthetic(_synthetic_size(spec), seed, cache, max_in_memory)
    return _open_files(find_source(Path(spec)), seed, cache, max_in_memory)


def _synthetic_size(name: str) -> int:
    _, colon, size = name.partition(":")
    if not colon:
        return SYNTHETIC_SIZE
    if not (size.isascii() and size.isdigit() and int(size) > 0):
        raise CatalogError(f"{name!r} names no number of products; write 'synthetic:5000'")
    return int(size)


def _open_synthetic(size: int, seed: int, cache: Path | None, max_in_memory: int) -> Catalog:
    name = f"synthetic:{size}"
    products = synthetic_products(size, seed)
    if size <= max_in_memory:
        return MemoryCatalog(name, products, seed, cache)
    path = _made(cache or user_cache()) / f"synthetic-{size}-{seed}.catalog.sqlite"
    key = sqlite.key_of({"made": name, "seed": seed, "by": _code()})
    return sqlite.open_or_build(path, key, name, seed, products, size)


def _open_files(source: Source, seed: int, cache: Path | None, max_in_memory: int) -> Catalog:
    name = str(source.products)
    place = cache or _beside(source.products)
    # A given folder may serve sources of one name, so the name of the file includes a hash of the folder.
    where = "" if cache is None else "-" + hashlib.sha256(os.fsencode(source.products.resolve())).hexdigest()[:12]
    path = place / f"{source.products.name}{where}.catalog.sqlite"
    key = sqlite.key_of({"files": [_fingerprint(file) for file in source.files], "by": _code()})
    if sqlite.is_fresh(path, key):
        catalog = sqlite.SqliteCatalog(path, name, seed)
        if len(catalog) > max_in_memory:
            return catalog
        catalog.close()
    products = read_source(source)
    first = list(itertools.islice(products, max_in_memory + 1))
    if len(first) <= max_in_memory:
        return MemoryCatalog(name, first, seed, place)
    _made(place)
    return sqlite.open_or_build(path, key, name, seed, _drained(first, products))


def _drained(first: list[Product], rest: Iterable[Product]) -> Iterator[Product]:
    """The products of a list, then the rest; the list is given up on the way."""
    first.reverse()
    while first:
        yield first.pop()
    yield from rest


def _code() -> str:
    """A digest of the code that decides what is in a catalogue, so that files made by other code are stale."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted((*here.rglob("*.py"), *here.rglob("*.toml"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _fingerprint(path: Path) -> list[str | int]:
    """Name, size and time of a file, and a digest of blocks spread over it."""
    try:
        about = path.stat()
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for number in range(SAMPLES):
                file.seek(max(0, about.st_size - SAMPLE_SIZE) * number // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_SIZE))
    except OSError as error:
        raise CatalogError(f"{path} cannot be read: {error}") from error
    return [path.name, about.st_size, about.st_mtime_ns, digest.hexdigest()]


def user_cache() -> Path:
    """The folder for what has no better place: ragen-webshop in the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ragen-webshop"


def _beside(source: Path) -> Path:
    """The folder of a source, or a folder in the user's cache where that is read-only."""
    folder = source.resolve().parent
    # The mode is asked too, since for the superuser everything counts as writable.
    if os.access(folder, os.W_OK) and folder.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        return folder
    return user_cache() / hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:16]


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogError(f"the folder {folder} cannot be made ({error}); give another cache_dir") from error
    return folder
