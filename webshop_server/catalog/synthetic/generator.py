"""A made-up shop of any size: fifty shelves in five departments, deterministic by seed.

Products come in families of near-duplicates: same brand, line and shelf, but each differs from the first in one
property or in what there is to choose. Only reading tells which is the right one. Products are made one at a time and
the first thousand are the same whatever the size, so a million need no memory.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from webshop_server.catalog.pricing import price_text
from webshop_server.catalog.product import Product
from webshop_server.catalog.synthetic import texts
from webshop_server.catalog.synthetic.draws import Draws, opaque_id
from webshop_server.catalog.synthetic.texts import Design
from webshop_server.catalog.synthetic.vocabulary import Axis, Kind, Trait, shared, shelves

MAX_FAMILY = 4
WITH_OPTIONS = 0.6  # of the families
DESCRIBED = 0.8  # of the families have a description
REQUESTED = 0.6  # of the products are somebody's goal
ENDINGS = (0.99, 0.99, 0.95, 0.49, 0.0)


def synthetic_products(count: int, seed: int = 0) -> Iterator[Product]:
    """Makes so many products of the shop of a seed, prices not drawn yet."""
    number = 0
    for family in itertools.count():
        draws = Draws(f"synthetic/{seed}/{family}")
        department, traits, kind = draws.pick(shelves())
        first = _design(kind, traits, draws)
        price = kind.prices[0] * (kind.prices[1] / kind.prices[0]) ** draws.between(0, 1)
        axes = _axes(kind, draws) if draws.chance(WITH_OPTIONS) else []
        for member in range(1 + draws.below(MAX_FAMILY)):
            if number == count:
                return
            changed = _changed(first, traits, draws) if member else first
            design = replace(changed, variant=_variant(kind, axes, draws))
            asin = opaque_id(f"synthetic/{seed}", number)
            yield _product(asin, department, design, axes, price * draws.between(0.85, 1.2), draws)
            number += 1


def _design(kind: Kind, traits: Mapping[str, Trait], draws: Draws) -> Design:
    """A product of a shelf, its properties spread over the texts."""
    groups = draws.some(kind.traits, 3 + draws.below(4))
    chosen = [traits[draws.pick(group)] for group in groups]
    in_title = draws.below(3)
    left = chosen[in_title:]
    in_description = draws.below(len(left) + 1) if draws.chance(DESCRIBED) else 0
    words = shared()
    facts = tuple(f"{label}: {draws.pick(values)}" for label, values in kind.facts)
    return Design(
        kind=kind,
        brand=draws.pick(words["brand_starts"]) + draws.pick(words["brand_ends"]),
        line=draws.pick(words["lines"]),
        name=draws.pick(kind.names),
        titled=tuple(chosen[:in_title]),
        listed=tuple(left[in_description:]),
        described=tuple(left[:in_description]),
        facts=facts,
        variant="",
        voice=draws.below(30),
    )


def _changed(design: Design, traits: Mapping[str, Trait], draws: Draws) -> Design:
    """A near-duplicate: one property is another one, if possible an alternative to it."""
    old = draws.pick(design.traits)
    had = {trait.plain for trait in design.traits}
    same = next(group for group in design.kind.traits if old.plain in group)
    other = [name for group in design.kind.traits if had.isdisjoint(group) for name in group]
    names = [name for name in same if name != old.plain] or other
    if not names:
        return design
    new = traits[draws.pick(names)]

    def swapped(group: tuple[Trait, ...]) -> tuple[Trait, ...]:
        return tuple(new if trait is old else trait for trait in group)

    return replace(
        design, titled=swapped(design.titled), listed=swapped(design.listed), described=swapped(design.described)
    )


def _axes(kind: Kind, draws: Draws) -> list[Axis]:
    """One or two options, of which at most one changes the price."""
    axes = draws.some(kind.axes, 1 + draws.below(2))
    return axes[:1] if all(axis.rise for axis in axes) else axes


def _variant(kind: Kind, axes: Sequence[Axis], draws: Draws) -> str:
    """A value that the title names because it cannot be chosen on the page."""
    fixed = [axis for axis in kind.axes if axis not in axes]
    if not fixed or draws.chance(0.5):
        return ""
    axis = draws.pick(fixed)
    value = draws.pick(axis.values)
    # "Running Shoes, 10" would not say ten of what.
    return f"{axis.name} {value}" if value.replace(".", "").isdigit() else value


def _values(axis: Axis, draws: Draws) -> tuple[str, ...]:
    count = 2 + draws.below(3)
    if not axis.ordered:
        return tuple(draws.some(axis.values, count))
    start = draws.below(max(1, len(axis.values) - count + 1))
    return axis.values[start : start + count]


def _product(
    asin: str, department: str, design: Design, axes: Sequence[Axis], price: float, draws: Draws
) -> Product:
    options = {axis.name: _values(axis, draws) for axis in axes}
    prices: dict[str, float] = {}
    rising = next((axis for axis in axes if axis.rise), None)
    if rising is not None:
        ending = draws.pick(ENDINGS)
        middle = (len(rising.values) - 1) / 2  # which is what the price of the shelf is for
        for value in options[rising.name]:
            share = (1 + rising.rise * rising.values.index(value)) / (1 + rising.rise * middle)
            prices[value] = max(1.0, float(int(price * share))) + ending
    if prices:
        pricing = tuple(sorted({min(prices.values()), max(prices.values())}))
    else:
        pricing = (max(1.0, float(int(price))) + draws.pick(ENDINGS),)  # a price a shop would ask
    bullets = texts.write_bullets(design, draws)
    description = texts.write_description(design, draws) if design.described or draws.chance(DESCRIBED / 2) else ""
    title = texts.write_title(design)
    wanted: list[Trait] = []
    if draws.chance(REQUESTED):
        # In the order of the product, those that only its page tells last: a shopper's first word is what is seen.
        drawn = {trait.plain for trait in draws.some(design.traits, 1 + draws.below(3))}
        wanted = [trait for trait in design.traits if trait.plain in drawn]
    return Product(
        asin=asin,
        title=title.replace("*", ""),
        category=department,
        query=design.kind.query,
        product_category=design.kind.path,
        description=description,
        bullet_points=bullets,
        attributes=tuple(trait.plain for trait in design.traits),
        options=options,
        option_prices=prices,
        pricing=pricing,
        price_text=price_text(pricing),
        instruction=texts.write_request(design, wanted, draws) if wanted else None,
        instruction_attributes=tuple(trait.plain for trait in wanted),
        nouns=texts.marked_nouns(title),
    )
