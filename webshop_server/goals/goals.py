"""Goals: what a shopper is asked to buy, made from a catalogue the same way in every process.

A human goal is a request somebody wrote; a synthetic goal is a product's generated request with one choice of each of
its options. They are shuffled as in the original, with `random.Random(233)`. The original draws price bounds from an
unseeded generator; here they follow from the catalogue's hash, its seed and the goal.
"""

import functools
import hashlib
import itertools
import math
import operator
import random
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webshop_server.catalog.arrays import Arrays, counted, open_arrays
from webshop_server.catalog.catalog import Catalog
from webshop_server.catalog.product import Product

SHUFFLE_SEED = 233
PRICE_BOUNDS = tuple(10.0 * tens for tens in range(1, 100))
BOUNDS_CONSIDERED = 4  # the lowest ones above the price
NO_PRICE_BOUND = 1_000_000.0
MAX_CHOICES = 10_000
"""Most goals of one product, choices from everywhere among its options: six lists of 40 values make four billion."""

PUBLISHED_TEST, PUBLISHED_EVAL = 500, 1000
PARTS = ("test", "eval", "train")
BY_PRODUCT = "_by_product"
SPLITS = ("all", *PARTS, *(part + BY_PRODUCT for part in PARTS))
_VERSION = 3  # of the arrays, and of what decides the goals; those of another version are made again


class GoalError(ValueError):
    """A catalogue makes no goals, or a split is unknown or empty."""


class UnknownGoalError(IndexError):
    """There is no goal with this number."""


@dataclass(frozen=True)
class Goal:
    """One task."""

    id: int  # number in the shuffled order
    asin: str  # the product the goal was made from
    category: str  # department of that product
    query: str  # search phrase of that product
    name: str  # title of that product
    product_category: str  # path of that product in the shop
    instruction: str  # the request as the shopper reads it, price included
    attributes: tuple[str, ...]  # properties asked for; at least one
    price_upper: float  # highest price in dollars, or `NO_PRICE_BOUND`
    options: Mapping[str, str] | tuple[str, ...]  # value by option name (synthetic), or values alone (human)
    weight: float  # how often it is drawn, relative to the others
    nouns: tuple[str, ...] | None = None  # nouns of `name`, or None if the catalogue does not know

    @property
    def asked(self) -> list[tuple[str, str]]:
        """The options asked for: name, "" where people gave none, and value."""
        return [("", value) for value in self.options] if isinstance(self.options, tuple) else [*self.options.items()]


def price_with(product: Product, values: Iterable[str]) -> float:
    """What a product costs in dollars with these option values: the dearest of their prices.

    Without a value that has a price, it is the listed price, of a range the lower end: what the original draws from the
    range is on no page.
    """
    chosen = [product.option_prices[value] for value in values if value in product.option_prices]
    return max(chosen, default=min(product.pricing) if len(product.pricing) > 1 else product.price)


def price_bound(price: float, *key: object) -> float:
    """Draws the highest price of a goal as the original does: the larger of two of the next four tens above `price`.

    That is the second, third or fourth ten with probability 1/6, 1/3 and 1/2; `NO_PRICE_BOUND` where there are not two
    up to 990. Equal keys give equal draws in every process.
    """
    above = [bound for bound in PRICE_BOUNDS if bound > price][:BOUNDS_CONSIDERED]
    pairs = list(itertools.combinations(above, 2))
    if not pairs:
        return NO_PRICE_BOUND
    digest = hashlib.sha256(repr(key).encode()).digest()
    return pairs[int.from_bytes(digest[:8], "big") % len(pairs)][1]


class Goals:
    """All goals of a catalogue in their fixed, shuffled order. Made by `make_goals`; read-only.

    Attributes:
        human: Whether people wrote them.
    """

    def __init__(self, catalog: Catalog, human: bool, arrays: Arrays) -> None:
        self.human = human
        self._catalog, self._arrays = catalog, arrays
        # Their elements are plain numbers, and they find them faster than arrays do.
        self._order, self._weights = arrays["order"].data, arrays["weights"].data
        self._rows, self._parts, self._ends = (arrays[name].data for name in ("rows", "parts", "ends"))

    def __len__(self) -> int:
        """Number of goals."""
        return len(self._order)

    def __iter__(self) -> Iterator[Goal]:
        """Goals in order, made one by one."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Goal:
        """Makes the goal of this `id`, from 0.

        Raises:
            UnknownGoalError: If there is none.
        """
        number = operator.index(number)
        if not 0 <= number < len(self):
            raise UnknownGoalError(f"there is no goal {number}; the goals are 0 to {len(self) - 1}")
        source = bisect_right(self._ends, self._order[number])
        product = self._catalog.product(self._catalog.asin(self._rows[source]))
        part = self._parts[source]
        options: Mapping[str, str] | tuple[str, ...]
        if self.human:
            request = product.human_instructions[part]
            text, attributes, options = request.text.strip("."), request.attributes, request.options
            values: Iterable[str] = options
        else:
            options = _choice(product, self._order[number] - (self._ends[source - 1] if source else 0))
            named = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = (product.instruction or "") + (f" with {named}" if named else "")
            attributes, values = product.instruction_attributes, options.values()
        # The bound is above both prices, so that a goal whose option costs more than its product can still be met.
        price = max(product.price, price_with(product, values))
        bound = price_bound(price, self._catalog.hash, self._catalog.seed, product.asin, self.human, part)
        return Goal(
            id=number,
            asin=product.asin,
            category=product.category,
            query=product.query,
            name=product.title,
            product_category=product.product_category,
            instruction=text + ("" if bound == NO_PRICE_BOUND else f", and price lower than {bound:.2f} dollars"),
            attributes=attributes,
            price_upper=bound,
            options=options,
            weight=self._weights[source],
            nouns=product.nouns,
        )

    def split(self, name: str) -> Sequence[int]:
        """The goals of a split.

        By index they are the published ones. There most products of test goals are in train, too, as a product has up
        to hundreds of goals; by product no product is in two splits.

        Raises:
            GoalError: If there is no such split.
        """
        if name not in SPLITS:
            raise GoalError(f"split {name!r} is unknown; use one of {', '.join(SPLITS)}")
        numbers: Sequence[int] = self._arrays[f"numbers_{name}"].data
        return numbers

    def sample(self, rng: random.Random | np.random.Generator, split: str = "all") -> int:
        """Draws the number of a goal of a split by weight, with one uniform number.

        Raises:
            GoalError: If the split is unknown or empty.
        """
        numbers = self.split(split)
        if not numbers:
            raise GoalError(f"split {split!r} of {len(self)} goals is empty; use 'all' or a larger catalogue")
        cumulative = self._arrays[f"cumulative_{split}"]
        position = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        return int(numbers[min(position, len(numbers) - 1)])


def make_goals(catalog: Catalog, *, human: bool) -> Goals:
    """Makes the goals of a catalogue; those of a large one are ordered once and then kept beside it.

    Raises:
        GoalError: If there are none, or a generated request names no attributes.
    """
    kind = f"goals-{'human' if human else 'generated'}-{SHUFFLE_SEED}-{_VERSION}"
    folder = catalog.beside(kind) if catalog.in_file else None
    return Goals(catalog, human, open_arrays(folder, functools.partial(_make_arrays, catalog, human)))


def _make_arrays(catalog: Catalog, human: bool, new: Callable[[str, str, int], NDArray[Any]]) -> None:
    """Makes what is known of all goals at once.

    A request that people wrote weighs 1. A generated one weighs the mean over its attributes of 1 / (number of goals
    with this attribute), so that rare attributes are drawn as often as common ones.

    | array | what |
    |---|---|
    | `rows`, `parts` | of each request: number of the product in the catalogue, and of the request among its own |
    | `ends`, `weights` | of each request: number of goals up to and with it, and weight of each of its goals |
    | `order` | for each goal, in shuffled order, its number in the order of the catalogue |
    | `numbers_SPLIT`, `cumulative_SPLIT` | the goals of a split, and running sums of their weights |
    """
    rows, parts, ends = array("i"), array("i"), array("q")
    asked: list[tuple[str, ...]] = []
    counts: Counter[str] = Counter()
    known: dict[str, str] = {}  # one string for equal ones: large catalogues repeat a few thousand
    total = 0
    for row, product in enumerate(counted(catalog.products(), "reading requests", len(catalog))):
        for part, attributes, choices in _requests(product, human):
            total += min(choices, MAX_CHOICES)
            rows.append(row)
            parts.append(part)
            ends.append(total)
            asked.append(tuple(map(known.setdefault, attributes, attributes)))
            for attribute in attributes:
                counts[attribute] += min(choices, MAX_CHOICES)
    if not total:
        wanted, other = ("human", "generated") if human else ("generated", "human")
        argument = f"human_goals={not human}" + ("" if human else " (--human-goals)")
        raise GoalError(f"catalogue {catalog.hash[:12]} has no {wanted} requests; for {other} ones: {argument}")
    for name, dtype, made in (("rows", "<i4", rows), ("parts", "<i4", parts), ("ends", "<i8", ends)):
        new(name, dtype, len(made))[:] = made
    weights = new("weights", "<f8", len(asked))
    weights[:] = [1.0 if human else sum(1.0 / counts[name] for name in names) / len(names) for names in asked]
    # Shuffling numbers gives the same permutation as shuffling the goals.
    order = array("i", range(total))
    random.Random(SHUFFLE_SEED).shuffle(order)
    new("order", "<i4", total)[:] = order
    source_of = np.searchsorted(ends, order, side="right")
    weights = weights[source_of]
    for name, found in split_goals(np.asarray(rows)[source_of].tolist()).items():
        numbers = new(f"numbers_{name}", "<i4", len(found))
        numbers[:] = found
        new(f"cumulative_{name}", "<f8", len(found))[:] = np.cumsum(weights[numbers])


def _requests(product: Product, human: bool) -> Iterator[tuple[int, tuple[str, ...], int]]:
    """Each request of a product: its number, its attributes, and how many choices of options it has."""
    if human:
        for part, request in enumerate(product.human_instructions):
            if request.attributes:  # as published: nothing could be scored
                yield part, request.attributes, 1
    elif product.instruction is not None:
        if not product.instruction_attributes:
            raise GoalError(f"product {product.asin}: instruction {product.instruction!r} has no attributes; add some")
        if choices := _choices(product):
            yield 0, product.instruction_attributes, choices


def _choices(product: Product) -> int:
    return math.prod(len(values) for values in product.options.values())


def _choice(product: Product, number: int) -> dict[str, str]:
    """One choice of each option, numbered as `itertools.product` over the sorted names counts."""
    choices = _choices(product)
    if choices > MAX_CHOICES:  # some from everywhere: steps by the golden ratio, of which none meets an earlier one
        about = itertools.count(choices * 618_033_989 // 10**9)
        step = next(step for step in about if math.gcd(step, choices) == 1)
        number = number * step % choices
    chosen: dict[str, str] = {}
    for name in sorted(product.options, reverse=True):
        number, position = divmod(number, len(product.options[name]))
        chosen[name] = product.options[name][position]
    return dict(reversed(chosen.items()))


def split_goals(products: Sequence[int]) -> dict[str, Sequence[int]]:
    """The goals of each of `SPLITS`, from the product of each goal.

    Products come in the order of their first goal. One goes to the first part that still has room for all its goals,
    so that a product with hundreds of them cannot fill the test set; train takes what fits nowhere else.
    """
    goals, least = range(len(products)), int(len(products) >= len(PARTS))
    test = max(least, min(PUBLISHED_TEST, len(goals) // 6))
    evaluation = max(least, min(PUBLISHED_EVAL, len(goals) // 3))
    room = {"test": test, "eval": evaluation, "train": len(goals) - test - evaluation}
    part_of: dict[int, str] = {}
    for product, count in Counter(products).items():  # in the order of first appearance
        part = next((part for part in PARTS if room[part] >= count), "train")
        room[part] -= count
        part_of[product] = part + BY_PRODUCT
    by_product = {part + BY_PRODUCT: array("i") for part in PARTS}
    for number, product in enumerate(products):
        by_product[part_of[product]].append(number)
    by_index = {"test": goals[:test], "eval": goals[test : test + evaluation], "train": goals[test + evaluation :]}
    return {"all": goals, **by_index, **by_product}
