"""A made-up shop of any size: fifty shelves in five departments, deterministic by seed.

Products come in families of near-duplicates: same brand, line and shelf, but each differs from the first in one
property or in what there is to choose. Only reading tells which is the right one. Products are made one at a time and
the first thousand are the same whatever the size, so a million need no memory.

Each property of a product is said in one place or two: the title, the bullet points or the description. Search sees
the title, the description and the first bullet point only, so some properties have to be read on the page.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from webshop_server.catalog.product import Product, price_text
from webshop_server.catalog.synthetic.words import Axis, Draws, Kind, Trait, opaque_id, shared, shelves

MAX_FAMILY = 4
WITH_OPTIONS = 0.6  # of the families
DESCRIBED = 0.8  # of the families have a description
REQUESTED = 0.6  # of the products are somebody's goal
ENDINGS = (0.99, 0.99, 0.95, 0.49, 0.0)
TITLES = (
    "*{brand} *{line} {before} {name}{after}",
    "*{brand} {before} {name}{after}, *{line} *Collection",
    "{before} {name}{after} by *{brand}, *{line}",
    "*{brand} *{line} {name}{after}, {before}",
    "{before} *{brand} {name} *{line}{after}",
)


@dataclass(frozen=True)
class Design:
    """What a product is, before it is put into words."""

    kind: Kind
    brand: str  # who makes it
    line: str  # what its maker calls it
    name: str  # end of the title, marked
    titled: tuple[Trait, ...]  # properties in the title
    listed: tuple[Trait, ...]  # properties in the bullet points
    described: tuple[Trait, ...]  # properties in the description
    facts: tuple[str, ...]  # measures, "Weight: 1 kg"
    voice: int  # which of the shop's ways of writing is used; any number

    @property
    def traits(self) -> tuple[Trait, ...]:
        """All properties."""
        return self.titled + self.listed + self.described


def synthetic_products(count: int, seed: int = 0) -> Iterator[Product]:
    """Makes so many products of the shop of a seed, prices not drawn yet."""
    number = 0
    for family in itertools.count():
        draws = Draws(f"synthetic/{seed}/{family}")
        department, traits, kind = draws.pick(shelves())
        first = _design(kind, traits, draws)
        price = kind.prices[0] * (kind.prices[1] / kind.prices[0]) ** draws.between(0, 1)
        axes = draws.some(kind.axes, 1 + draws.below(2)) if draws.chance(WITH_OPTIONS) else []
        if axes and all(axis.rise for axis in axes):  # at most one of two options changes the price
            axes = axes[:1]
        for member in range(1 + draws.below(MAX_FAMILY)):
            if number == count:
                return
            design = _changed(first, traits, draws) if member else first
            variant = _variant(kind, axes, draws)
            asin = opaque_id(f"synthetic/{seed}", number)
            yield _product(asin, department, design, variant, axes, price * draws.between(0.85, 1.2), draws)
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
    groups = (design.titled, design.listed, design.described)
    titled, listed, described = (tuple(new if trait is old else trait for trait in group) for group in groups)
    return replace(design, titled=titled, listed=listed, described=described)


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
    asin: str, department: str, design: Design, variant: str, axes: Sequence[Axis], price: float, draws: Draws
) -> Product:
    options = {axis.name: _values(axis, draws) for axis in axes}
    prices: dict[str, float] = {}
    rising = next((axis for axis in axes if axis.rise), None)
    ending = draws.pick(ENDINGS)  # a price a shop would ask
    pricing: tuple[float, ...] = (max(1.0, float(int(price))) + ending,)
    if rising is not None:
        middle = (len(rising.values) - 1) / 2  # which is what the price of the shelf is for
        for value in options[rising.name]:
            share = (1 + rising.rise * rising.values.index(value)) / (1 + rising.rise * middle)
            prices[value] = max(1.0, float(int(price * share))) + ending
        pricing = tuple(sorted({min(prices.values()), max(prices.values())}))
    bullets = _bullets(design, draws)
    description = _description(design, draws) if design.described or draws.chance(DESCRIBED / 2) else ""
    title = _title(design, variant)
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
        instruction=_request(design, wanted, draws) if wanted else None,
        instruction_attributes=tuple(trait.plain for trait in wanted),
        nouns=tuple(word[1:].strip(",.").lower() for word in title.split() if word.startswith("*")),
    )


@lru_cache(maxsize=1 << 12)
def heading(text: str) -> str:
    """Text as in a title: capital first letters except in small words, marks kept.

    >>> heading("bpa free *memory *foam")
    'BPA Free *Memory *Foam'
    """
    words = []
    for word in text.split():
        mark, bare = ("*", word[1:]) if word.startswith("*") else ("", word)
        if bare not in shared()["small_words"]:
            bare = bare.upper() if bare in shared()["capitals"] else bare[:1].upper() + bare[1:]
        words.append(mark + bare)
    return " ".join(words)


def and_list(parts: Sequence[str]) -> str:
    """Parts in a row, "and" before the last.

    >>> and_list(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _tied_on(traits: Sequence[Trait]) -> str:
    """What follows the thing that is described: "for dry hair with argan oil and shea butter", marked."""
    names: dict[str, list[str]] = {}
    for trait in sorted(traits, key=lambda trait: trait.link):
        if trait.link:
            names.setdefault(trait.link, []).append(trait.name)
    return " ".join(f"{link} {and_list(tied)}" for link, tied in names.items())


def _title(design: Design, variant: str) -> str:
    """The title, nouns marked, with the value of an option that the product does not leave to choose, if any."""
    before = " ".join(trait.name for trait in design.titled if not trait.link)
    title = TITLES[design.voice % len(TITLES)].format(
        brand=design.brand,
        line=design.line,
        name=design.name,
        before=heading(before),
        after=f" {heading(_tied_on(design.titled))}",
    )
    # A design without such properties leaves gaps and a trailing comma.
    title = " ".join(title.split()).replace(" ,", ",").strip(" ,")
    return f"{title}, {heading(variant)}" if variant else title


def _bullets(design: Design, draws: Draws) -> tuple[str, ...]:
    """The bullet points, at least two."""
    said = [(trait, draws.pick(trait.sentences)) for trait in design.listed]
    said += [(trait, draws.pick(trait.sentences)) for trait in design.titled if draws.chance(0.4)]
    style = design.voice % 3
    forms = ("{sentence}", "{upper}: {sentence}", "{heading} - {sentence}")
    points = [
        forms[style].format(sentence=sentence, upper=trait.plain.upper(), heading=heading(trait.plain))
        for trait, sentence in said
    ]
    uses = and_list(draws.some(design.kind.uses, 2 + draws.below(2)))
    points.append(draws.pick(shared()["uses"]).format(uses=uses))
    points.append(("Details: " if style else "") + "; ".join(design.facts) + ".")
    return tuple(draws.some(points, len(points)))


def _description(design: Design, draws: Draws) -> str:
    """The description, one paragraph."""
    opening, *rest = draws.some(design.kind.says, 1 + draws.below(3))
    middle = [draws.pick(trait.sentences) for trait in design.described] + rest
    sentences = [opening, *draws.some(middle, len(middle))]
    if draws.chance(0.6):
        year = 1950 + draws.below(70)
        closing = draws.pick(shared()["closings"])
        sentences.append(closing.format(brand=design.brand, query=design.kind.query, year=year))
    return " ".join(sentences)


def _request(design: Design, wanted: Sequence[Trait], draws: Draws) -> str:
    """What a shopper asks for, without options and price.

    It names the wanted properties and ends in the middle of a sentence, so that " with color: blue" can follow.
    """
    before = ", ".join(trait.plain for trait in wanted if not trait.link)
    after = _tied_on(wanted).replace("*", "")
    what = f"{before} {design.kind.query} {after}".strip()
    # "For the gym, I need socks for cold feet" would be for two things.
    requests = [request for request in shared()["requests"] if "for" not in after.split() or "{use}" not in request]
    return draws.pick(requests).format(what=what, use=draws.pick(design.kind.uses))
