"""What is known of all goals at once, in arrays.

Ordering the millions of goals of a large catalogue takes half a minute, so its arrays are kept in a file beside it and
mapped into memory. For a small catalogue they are made in memory each time.

| array | what |
|---|---|
| `rows`, `parts`, `ends`, `weights` | the requests, see `sources.Sources` |
| `order` | for each goal, in shuffled order, its number in the order of the catalogue |
| `numbers/SPLIT` | the goals of a split by product |
| `cumulative/SPLIT` | running sums of the weights of a split's goals |
"""

import logging
import random
from array import array
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.array_file import ArrayFileError, new_file, open_file
from webshop_server.catalog.catalog import Catalog
from webshop_server.catalog.sqlite import SqliteCatalog
from webshop_server.goals.sources import read_sources
from webshop_server.goals.splits import BY_PRODUCT, PARTS, split_by_index, split_by_product

Tables: TypeAlias = Mapping[str, NDArray[Any]]

_VERSION = 1  # of the arrays, and of what decides the goals; a file of another version is made again
_log = logging.getLogger(__name__)


def make_tables(catalog: Catalog, human: bool, seed: int) -> Tables:
    """Makes the arrays of the goals of a catalogue.

    Args:
        catalog: The products, read once.
        human: The requests that people wrote, instead of the generated ones.
        seed: Of the shuffle.

    Returns:
        The arrays by name.

    Raises:
        GoalError: If there are no goals, or a generated request names no attributes.
    """
    sources = read_sources(catalog, human)
    # Shuffling numbers gives the same permutation as shuffling the goals.
    order = array("i", range(sources.ends[-1]))
    random.Random(seed).shuffle(order)
    tables: dict[str, NDArray[Any]] = {
        "rows": np.asarray(sources.rows),
        "parts": np.asarray(sources.parts),
        "ends": np.asarray(sources.ends),
        "weights": np.asarray(sources.weights),
        "order": np.asarray(order),
    }
    source_of = np.searchsorted(tables["ends"], tables["order"], side="right")
    by_product = split_by_product(tables["rows"][source_of].data)
    tables |= {f"numbers/{part}{BY_PRODUCT}": np.asarray(by_product[part]) for part in PARTS}
    weights = tables["weights"][source_of]
    del source_of
    tables["cumulative/all"] = np.cumsum(weights)
    start = 0
    for part, numbers in split_by_index(len(order)).items():  # one after the other
        tables[f"cumulative/{part}"] = np.cumsum(weights[start : start + len(numbers)])
        start += len(numbers)
        tables[f"cumulative/{part}{BY_PRODUCT}"] = np.cumsum(weights[tables[f"numbers/{part}{BY_PRODUCT}"]])
    return tables


def open_tables(catalog: Catalog, human: bool, seed: int) -> Tables:
    """Opens the arrays beside a large catalogue, or makes them there; for a small one makes them in memory.

    Of several processes that find them missing one makes them and the others wait.

    Args:
        catalog: The products.
        human: The requests that people wrote, instead of the generated ones.
        seed: Of the shuffle.

    Returns:
        The arrays by name.

    Raises:
        GoalError: If there are no goals, or a generated request names no attributes.
    """
    if not isinstance(catalog, SqliteCatalog):
        return make_tables(catalog, human, seed)
    kind = "human" if human else "generated"
    facts = {"version": _VERSION, "catalog": catalog.hash, "goals": kind, "seed": seed}
    path = catalog.path.parent / f"goals-{catalog.hash[:16]}-{kind}.arrays"
    try:
        return _read(path, facts)
    except OSError:
        _log.info("making the goals %s", path)
    except ArrayFileError as error:
        _log.warning("%s; making it again", error)
    with catalog.one_builder():
        # Another process may have made them meanwhile.
        with suppress(OSError, ArrayFileError):
            return _read(path, facts)
        tables = make_tables(catalog, human, seed)
        try:
            with new_file(path, facts, {name: (array.dtype.str, len(array)) for name, array in tables.items()}) as kept:
                for name, array in tables.items():
                    kept[name][:] = array
        except OSError as error:
            _log.warning("the goals %s cannot be written (%s); they are kept in memory", path, error)
            return tables
        return _read(path, facts)


def _read(path: Path, facts: dict[str, Any]) -> Tables:
    found, tables = open_file(path)
    if found != facts:
        raise ArrayFileError(f"{path} has the goals of another catalogue or version")
    return tables
