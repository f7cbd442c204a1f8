"""Where goals come from: the requests of a catalogue, read in one pass and kept in a few bytes each."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from webshop_server.catalog.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.catalog.progress import counted


class GoalError(ValueError):
    """A catalogue makes no goals, or a split is unknown or empty."""


@dataclass(frozen=True)
class Sources:
    """The requests that goals are made from, in the order of the catalogue; arrays of one length.

    Attributes:
        rows: Number of the product in the catalogue.
        parts: Number of the request among those of its product.
        ends: Number of goals up to and with this request.
        weights: Weight of each of its goals.
    """

    rows: "array[int]"
    parts: "array[int]"
    ends: "array[int]"
    weights: "array[float]"


def read_sources(catalog: Catalog, human: bool) -> Sources:
    """Reads the requests of a catalogue and weighs them.

    A request that people wrote weighs 1. A generated one weighs the mean over its attributes of 1 / (number of goals
    with this attribute), so that rare attributes are drawn as often as common ones.

    Args:
        catalog: The products, read once in their order.
        human: The requests that people wrote, instead of the generated ones.

    Returns:
        The requests; at least one goal in all.

    Raises:
        GoalError: If there are none, or a generated request names no attributes.
    """
    rows, parts, ends = array("i"), array("i"), array("q")
    asked: list[tuple[str, ...]] = []
    counts: Counter[str] = Counter()
    known: dict[str, str] = {}  # one string for equal ones: large catalogues repeat a few thousand
    total = 0
    for row, product in enumerate(counted(catalog.products(), "reading requests", len(catalog.asins))):
        for part, attributes, goals in _requests(product, human):
            total += goals
            rows.append(row)
            parts.append(part)
            ends.append(total)
            asked.append(tuple(known.setdefault(attribute, attribute) for attribute in attributes))
            for attribute in attributes:
                counts[attribute] += goals
    if not total:
        wanted, other = ("human", "generated") if human else ("generated", "human")
        argument = f"human_goals={not human}" + ("" if human else " (--human-goals)")
        raise GoalError(f"catalogue {catalog.hash[:12]} has no {wanted} requests; for {other} ones: {argument}")
    weights = (1.0 if human else sum(1.0 / counts[name] for name in names) / len(names) for names in asked)
    return Sources(rows, parts, ends, array("d", weights))


def _requests(product: Product, human: bool) -> Iterator[tuple[int, tuple[str, ...], int]]:
    """Each request of a product: its number, its attributes, and how many goals it makes."""
    if human:
        for part, request in enumerate(product.human_instructions):
            if request.attributes:  # as published: nothing could be scored
                yield part, request.attributes, 1
    elif product.instruction is not None:
        if not product.instruction_attributes:
            raise GoalError(f"product {product.asin}: instruction {product.instruction!r} has no attributes; add some")
        goals = math.prod(len(values) for values in product.options.values())
        if goals:
            yield 0, product.instruction_attributes, goals
