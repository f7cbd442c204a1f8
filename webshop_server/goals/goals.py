"""Goals: what a shopper is asked to buy, made from a catalogue the same way in every process.

A human goal is a request somebody wrote; a synthetic goal is a product's generated request with one choice of each of
its options. They are shuffled as in the original, with `random.Random(233)`. The original draws price bounds from an
unseeded generator; here they follow from the catalogue's hash, its seed and the goal.
"""

import hashlib
import itertools
import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from webshop_server.catalog.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.sources import GoalError
from webshop_server.goals.splits import BY_PRODUCT, SPLITS, split_by_index
from webshop_server.goals.tables import Tables, open_tables

SHUFFLE_SEED = 233
PRICE_BOUNDS = tuple(10.0 * tens for tens in range(1, 100))
BOUNDS_CONSIDERED = 4  # the lowest ones above the price
NO_PRICE_BOUND = 1_000_000.0


class UnknownGoalError(IndexError):
    """There is no goal with this number."""


class Uniform(Protocol):
    """`random.Random` or `numpy.random.Generator`."""

    def random(self) -> float:
        """A number in [0, 1)."""


@dataclass(frozen=True)
class Goal:
    """One task.

    Attributes:
        id: Number in the shuffled order.
        asin: The product the goal was made from.
        category: Department of that product.
        query: Search phrase of that product.
        name: Title of that product.
        product_category: Path of that product in the shop.
        instruction: The request as the shopper reads it, price included.
        attributes: Properties asked for; at least one.
        price_upper: Highest price in dollars, or `NO_PRICE_BOUND`.
        options: Value by option name (synthetic), or values alone (human).
        weight: How often it is drawn, relative to the others.
        nouns: Nouns of `name`, or None if the catalogue does not know.
    """

    id: int
    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    price_upper: float
    options: Mapping[str, str] | tuple[str, ...]
    weight: float
    nouns: tuple[str, ...] | None = None


def price_with(product: Product, values: Iterable[str]) -> float:
    """What a product costs with these option values: the dearest of their prices.

    Without a value that has a price, it is the listed price, of a range the lower end: what the original draws from the
    range is on no page.

    Args:
        product: What is bought.
        values: Chosen option values.

    Returns:
        Dollars.
    """
    chosen = [product.option_prices[value] for value in values if value in product.option_prices]
    return max(chosen, default=min(product.pricing) if len(product.pricing) > 1 else product.price)


def prices(product: Product) -> tuple[float, ...]:
    """What a product may cost, in dollars: the prices of its options, and that without an option that has one."""
    return (*product.option_prices.values(), price_with(product, ()))


def price_bound(price: float, *key: object) -> float:
    """Draws the highest price of a goal as the original does: the larger of two of the next four tens above `price`.

    Args:
        price: What the goal's product costs in dollars.
        *key: What the draw depends on; equal keys give equal draws in every process.

    Returns:
        The second, third or fourth ten above the price with probability 1/6, 1/3 and 1/2; `NO_PRICE_BOUND` where
        there are not two up to 990.
    """
    above = [bound for bound in PRICE_BOUNDS if bound > price][:BOUNDS_CONSIDERED]
    pairs = list(itertools.combinations(above, 2))
    if not pairs:
        return NO_PRICE_BOUND
    digest = hashlib.sha256(repr(key).encode()).digest()
    return pairs[int.from_bytes(digest[:8], "big") % len(pairs)][1]


def make_goals(catalog: Catalog, *, human: bool, seed: int = SHUFFLE_SEED) -> "Goals":
    """Makes the goals of a catalogue.

    Args:
        catalog: The products.
        human: The requests that people wrote, instead of the generated ones.
        seed: Of the shuffle; the default gives the published order.

    Returns:
        The goals.

    Raises:
        GoalError: If there are none, or a generated request names no attributes.
    """
    return Goals(catalog, human, open_tables(catalog, human, seed))


def _choice(options: Mapping[str, tuple[str, ...]], number: int) -> dict[str, str]:
    """One choice of each option, numbered as `itertools.product` over the sorted names counts."""
    chosen: dict[str, str] = {}
    for name in sorted(options, reverse=True):
        number, position = divmod(number, len(options[name]))
        chosen[name] = options[name][position]
    return dict(reversed(chosen.items()))


class Goals:
    """All goals of a catalogue in their fixed, shuffled order. Made by `make_goals`; read-only.

    Attributes:
        human: Whether people wrote them.
    """

    def __init__(self, catalog: Catalog, human: bool, tables: Tables) -> None:
        self.human = human
        self._catalog = catalog
        self._tables = tables
        # Their elements are plain numbers, and they find them faster than arrays do.
        self._order = tables["order"].data
        self._rows, self._parts, self._ends = (tables[name].data for name in ("rows", "parts", "ends"))
        self._weights = tables["weights"].data

    def __len__(self) -> int:
        """Number of goals."""
        return len(self._order)

    def __iter__(self) -> Iterator[Goal]:
        """Goals in order, made one by one."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> Goal:
        """Makes a goal.

        Args:
            number: Its `id`, from 0.

        Raises:
            UnknownGoalError: If there is none.
        """
        number = operator.index(number)
        if not 0 <= number < len(self):
            raise UnknownGoalError(f"there is no goal {number}; the goals are 0 to {len(self) - 1}")
        source = bisect_right(self._ends, self._order[number])
        product = self._catalog.product(self._catalog.asins[self._rows[source]])
        return self._made(number, source, product)

    def _made(self, number: int, source: int, product: Product) -> Goal:
        part = self._parts[source]
        options: Mapping[str, str] | tuple[str, ...]
        if self.human:
            request = product.human_instructions[part]
            text, attributes, options = request.text.strip("."), request.attributes, request.options
            values: Iterable[str] = options
        else:
            before = self._ends[source - 1] if source else 0
            options = _choice(product.options, self._order[number] - before)
            named = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = (product.instruction or "") + (f" with {named}" if named else "")
            attributes, values = product.instruction_attributes, options.values()
        # The bound is above both prices, so that a goal whose option costs more than its product can still be met.
        price = max(product.price, price_with(product, values))
        bound = price_bound(price, self._catalog.hash, self._catalog.seed, product.asin, self.human, part)
        limit = "" if bound == NO_PRICE_BOUND else f", and price lower than {bound:.2f} dollars"
        return Goal(
            id=number,
            asin=product.asin,
            category=product.category,
            query=product.query,
            name=product.title,
            product_category=product.product_category,
            instruction=text + limit,
            attributes=attributes,
            price_upper=bound,
            options=options,
            weight=self._weights[source],
            nouns=product.nouns,
        )

    def splits(self) -> dict[str, int]:
        """Number of goals in each of `SPLITS`."""
        return {name: len(self.split(name)) for name in SPLITS}

    def split(self, name: str) -> Sequence[int]:
        """The goals of a split.

        Args:
            name: One of `SPLITS`: "all", "test", "eval", "train", or one of the last three with "_by_product", where no
                product is in two splits.

        Returns:
            Goal numbers, ascending. Read-only.

        Raises:
            GoalError: If there is no such split.
        """
        if name not in SPLITS:
            raise GoalError(f"split {name!r} is unknown; use one of {', '.join(SPLITS)}")
        if name == "all":
            return range(len(self))
        if not name.endswith(BY_PRODUCT):
            return split_by_index(len(self))[name]
        numbers: Sequence[int] = self._tables[f"numbers/{name}"].data
        return numbers

    def sample(self, rng: Uniform, split: str = "all") -> int:
        """Draws a goal by weight.

        Args:
            rng: Gives one uniform number.
            split: A name that `split` knows.

        Returns:
            The number of the goal.

        Raises:
            GoalError: If the split is unknown or empty.
        """
        numbers = self.split(split)
        if not numbers:
            raise GoalError(f"split {split!r} of {len(self)} goals is empty; use 'all' or a larger catalogue")
        cumulative = self._tables[f"cumulative/{split}"]
        position = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        return int(numbers[min(position, len(numbers) - 1)])
