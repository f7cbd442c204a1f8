"""What a purchase is worth, with all its parts: the published formula, and the same one with its mistakes corrected.

    total = r_type * (attributes met + options met + price met) / (attributes + options + 1)

Mode "webshop" reproduces the original bit for bit, its mistakes included, given the same nouns. Mode "fixed" differs in
these points and no others:

| original | fixed |
|---|---|
| options of synthetic goals are compared with their names, as printed tuples: a name alone may match | values |
| an option is met if one side's words are among the other's ("x-large" by "large") | the closest offered, `closeness` |
| a colour word is looked for anywhere in a value ("ash" in "fashion"), only on one side | as whole words, on both |
| any chosen option may meet any wanted one | only the one of that name, if there is one |
| the price ignores options | it is that of the dearest chosen option, where the catalogue has prices for them |
| of a range it is drawn, and on no page | without a priced option it is the lower end |
| attributes in capitals are never found in the texts | they are |
| a noun twice in the wanted title must be met twice, which cannot be | it counts once |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal, price_with
from webshop_server.goals.matching import Closeness, closeness, first_colour, fuzzy_match, printed_pair
from webshop_server.goals.nouns import NounTagger

RewardMode = Literal["webshop", "fixed"]
REWARD_MODES: tuple[RewardMode, ...] = ("webshop", "fixed")
PATH_SEPARATOR = "›"
COMMON_PATH_PARTS = 2
SIMILAR_TITLE = 0.2  # above it the kind is right; also the score where the wanted title has no nouns
UNLIKE_TITLE = 0.1  # below it the kind is wrong, whatever else agrees
_NAMES = frozenset({"size", "color", "colour"})
_SIZES = frozenset({"size", "small", "medium", "large", "xlarge"})
_COLORS = frozenset({"color", "colour", "black", "white", "red", "blue", "green", "gray", "yellow", "brown"})


@dataclass(frozen=True)
class RewardParts:
    """How a purchase was scored."""

    total: float  # the reward, 0 to 1
    mode: RewardMode  # formula it was scored with
    nouns: str  # name of the noun tagger that `title_score` uses
    r_type: float  # right kind of product: 0, 0.1, 0.5 or 1. Everything is multiplied by it.
    query_match: bool  # same search phrase
    category_match: bool  # at least two parts of the path in the shop agree
    title_score: float  # share of the wanted title's nouns in the bought title, 0 to 1
    attributes_met: tuple[bool, ...]  # for each attribute asked for, whether the product has it
    options_met: tuple[bool, ...]  # for each option asked for, whether it was chosen
    price: float  # what was paid, in dollars
    price_upper: float  # highest price asked for, in dollars

    @property
    def r_price(self) -> bool:
        """The price is not too high."""
        return self.price <= self.price_upper

    @property
    def success(self) -> bool:
        """The task is solved."""
        return self.total == 1.0

    def as_info(self) -> dict[str, float | bool | str]:
        """The parts under the original's names, for JSON; those of options only where options were asked for."""
        parts = len(self.attributes_met) + len(self.options_met) + 1
        info: dict[str, float | bool | str] = {
            "r_type": self.r_type,
            "r_att": sum(self.attributes_met) / len(self.attributes_met),
            "w_att": len(self.attributes_met) / parts,
            "query_match": self.query_match,
            "category_match": self.category_match,
            "title_score": self.title_score,
        }
        if met := self.options_met:
            info |= {"r_option": sum(met) / len(met), "w_option": len(met) / parts}
        return info | {"r_price": self.r_price, "w_price": 1 / parts, "mode": self.mode, "nouns": self.nouns}


class KindMatch(NamedTuple):
    """Whether two products are of one kind; see `RewardParts`."""

    r_type: float
    query_match: bool
    category_match: bool
    title_score: float


def kind_match(product: Product, goal: Goal, nouns: NounTagger, mode: RewardMode = "fixed") -> KindMatch:
    """Compares the kind of a product with what a goal asks for.

    The mode "webshop" counts a repeated noun of the wanted title each time.
    """
    wanted = nouns.nouns(goal.name, goal.nouns)
    shared = set(wanted).intersection(nouns.nouns(product.title, product.nouns))
    size = len(wanted) if mode == "webshop" else len(set(wanted))
    title_score = len(shared) / size if size else SIMILAR_TITLE
    query_match = product.query == goal.query
    paths = [{part.strip() for part in one.product_category.split(PATH_SEPARATOR)} for one in (product, goal)]
    category_match = len(paths[0] & paths[1]) >= COMMON_PATH_PARTS
    r_type = 1.0 if query_match or category_match or title_score > SIMILAR_TITLE else 0.5
    if title_score < UNLIKE_TITLE:
        r_type = 0.1 if title_score else 0.0
    return KindMatch(r_type, query_match, category_match, title_score)


def score(
    product: Product,
    chosen: Mapping[str, str],
    price: float,
    goal: Goal,
    nouns: NounTagger,
    mode: RewardMode = "webshop",
) -> RewardParts:
    """Scores a purchase of options, value by name, for a goal; `purchase_price` says at which price in dollars.

    Raises:
        ValueError: If the mode is unknown.
    """
    if mode not in REWARD_MODES:
        raise ValueError(f"reward mode {mode!r} is unknown; use one of {', '.join(REWARD_MODES)}")
    kind = kind_match(product, goal, nouns, mode)
    texts = (product.title.lower(), " ".join(product.bullet_points).lower(), product.description.lower())
    attributes = tuple(
        any(fuzzy_match(own, attribute) for own in product.attributes)
        or any((attribute if mode == "webshop" else attribute.lower()) in text for text in texts)
        for attribute in goal.attributes
    )
    options = options_met(product, chosen, goal, mode)
    met = sum(attributes) + sum(options) + (price <= goal.price_upper)
    return RewardParts(
        total=met / (len(attributes) + len(options) + 1) * kind.r_type,
        mode=mode,
        nouns=nouns.name,
        **kind._asdict(),
        attributes_met=attributes,
        options_met=options,
        price=price,
        price_upper=goal.price_upper,
    )


def purchase_price(product: Product, chosen: Mapping[str, str], mode: RewardMode) -> float:
    """What a purchase costs in dollars: in mode "webshop" always the product's price, else that of its options."""
    return product.price if mode == "webshop" else price_with(product, chosen.values())


def options_met(
    product: Product, chosen: Mapping[str, str], goal: Goal, mode: RewardMode = "fixed"
) -> tuple[bool, ...]:
    """Which of the goal's options, in its order, are met by the values chosen so far on a product, by option name."""
    named = not isinstance(goal.options, tuple)
    asked = [("", value) for value in goal.options] if isinstance(goal.options, tuple) else [*goal.options.items()]
    if mode == "webshop":
        wanted = [printed_pair(*pair) if named else first_colour(pair[1]) for pair in asked]
        bought = [first_colour(value) for value in chosen.values()]
        return tuple(any(fuzzy_match(own, value) for own in bought) for value in wanted)

    def meets(value: str, name: str) -> bool:
        """Whether the choice made for option `name` is the closest to `value` that the product offers."""
        reached = option_closeness(value, name, chosen[name])
        if reached in (Closeness.DIFFERENT, Closeness.EQUAL):
            return reached is Closeness.EQUAL
        return all(option_closeness(value, name, offered) <= reached for offered in product.options.get(name, ()))

    unasked = [name for name in chosen if not named or name not in goal.options]
    return tuple(
        any(meets(value, name) for name in ([wanted] if named and wanted in chosen else unasked))
        for wanted, value in asked
    )


def option_closeness(wanted: str, name: str, value: str) -> Closeness:
    """How close the value of an option is to a wanted one; the option's name tells whether it is a colour."""
    return closeness(wanted, value, is_colour="color" in name or "colour" in name)


def purchase_faults(parts: RewardParts, goal: Goal) -> tuple[str, ...]:
    """What is wrong with a purchase, in words that do not tell the goal; () after the right one.

    These are "wrong kind", "wrong color", "wrong size", "wrong attribute", "wrong option" and "too dear", in this
    order, attributes and options in that of the goal.
    """
    missing: list[tuple[set[str], str]] = []
    for attribute, met in zip(goal.attributes, parts.attributes_met, strict=True):
        if not met:
            whole = attribute.lower()  # "small batch" is no size and "green tea" no colour, "medium size" is one
            missing.append(({whole} | _NAMES.intersection(whole.split()), "wrong attribute"))
    for option, met in zip(goal.options, parts.options_met, strict=True):  # names or, of goals of people, values
        if not met:
            missing.append((set(option.lower().split()), "wrong option"))
    found = ["wrong kind"] if parts.r_type < 1 else []
    for words, otherwise in missing:
        found.append("wrong color" if words & _COLORS else "wrong size" if words & _SIZES else otherwise)
    return tuple(dict.fromkeys([*found, *(["too dear"] * (not parts.r_price))]))
