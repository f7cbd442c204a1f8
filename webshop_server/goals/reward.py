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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Literal, NamedTuple

from rapidfuzz import fuzz

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal, price_with
from webshop_server.goals.nouns import NounTagger, word_list

RewardMode = Literal["webshop", "fixed"]
REWARD_MODES: tuple[RewardMode, ...] = ("webshop", "fixed")
PATH_SEPARATOR = "›"
COMMON_PATH_PARTS = 2
SIMILAR_TITLE = 0.2  # above it the kind is right; also the score where the wanted title has no nouns
UNLIKE_TITLE = 0.1  # below it the kind is wrong, whatever else agrees
_NAMES = frozenset({"size", "color", "colour"})
_SIZES = frozenset({"size", "small", "medium", "large", "xlarge"})
_COLORS = frozenset({"color", "colour", "black", "white", "red", "blue", "green", "gray", "yellow", "brown"})
FUZZY_THRESHOLD = 85  # a match scores more than this, of 100
COLOUR_WORDS = word_list("colours")
_COLOURS = frozenset(COLOUR_WORDS)
# They tell two colours apart and are none themselves: "light" must not count as "light pink".
_SHADES = frozenset({"dark", "light"})
_SIZE_WORDS = frozenset(word_list("sizes"))
# A number keeps its decimal part and a sign that is no hyphen: +1.5 and -1.5 are two lenses, 5-6 is a range.
_WORD = re.compile(r"(?:(?<![^\W_])[+-])?\d+(?:\.\d+)?|[^\W\d_]+")
_NOT_IN_A_WORD = re.compile(r"\W")
_LATIN_1 = dict.fromkeys(range(128, 256))  # what thefuzz drops under the name "ASCII only"; it keeps all above


class Closeness(IntEnum):
    """How well a chosen option value agrees with the one asked for."""

    DIFFERENT = 0
    SIMILAR_COLOUR = 1
    SAME_WORDS = 2
    EQUAL = 3


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
    goal: Goal,
    nouns: NounTagger,
    mode: RewardMode = "webshop",
    price: float | None = None,
) -> RewardParts:
    """Scores a purchase of options, value by name, for a goal.

    Without a `price` in dollars it costs in mode "webshop" the product's price, else the price of its options.
    """
    if price is None:
        price = product.price if mode == "webshop" else price_with(product, chosen.values())
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


def options_met(
    product: Product, chosen: Mapping[str, str], goal: Goal, mode: RewardMode = "fixed"
) -> tuple[bool, ...]:
    """Which of the goal's options, in its order, are met by the values chosen so far on a product, by option name."""
    if mode == "webshop":
        wanted = [printed_pair(*pair) if pair[0] else first_colour(pair[1]) for pair in goal.asked]
        bought = [first_colour(value) for value in chosen.values()]
        return tuple(any(fuzzy_match(own, value) for own in bought) for value in wanted)

    def meets(value: str, name: str) -> bool:
        """Whether the choice made for option `name` is the closest to `value` that the product offers."""
        reached = closeness(value, chosen[name], name)
        if reached in (Closeness.DIFFERENT, Closeness.EQUAL):
            return reached is Closeness.EQUAL
        return all(closeness(value, offered, name) <= reached for offered in product.options.get(name, ()))

    unasked = [name for name in chosen if name not in dict(goal.asked)]
    return tuple(
        any(meets(value, name) for name in ([wanted] if wanted and wanted in chosen else unasked))
        for wanted, value in goal.asked
    )


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


@lru_cache(maxsize=65_536)
def _prepared(text: str) -> str:
    """The text as thefuzz compares it: word characters in lower case, blanks for the rest."""
    return _NOT_IN_A_WORD.sub(" ", text.translate(_LATIN_1)).lower().strip()


def token_set_ratio(left: str, right: str) -> int:
    """The published similarity, 0 to 100: thefuzz's `token_set_ratio` with its preparation and rounding.

    It is 0 if nothing of one text is left after the preparation.

    >>> token_set_ratio("Large", "x-large"), token_set_ratio("long sleeve", "short sleeve")
    (100, 71)
    """
    return int(round(fuzz.token_set_ratio(_prepared(left), _prepared(right))))


def fuzzy_match(left: str, right: str) -> bool:
    """Whether the published reward takes two texts for the same."""
    return token_set_ratio(left, right) > FUZZY_THRESHOLD


def first_colour(text: str) -> str:
    """What the published reward puts in place of an option value: the first of `COLOUR_WORDS` in it, else itself.

    >>> first_colour("navy | red"), first_colour("fashion black"), first_colour("Red")
    ('navy', 'ash', 'Red')
    """
    return next((colour for colour in COLOUR_WORDS if colour in text), text)


def printed_pair(name: str, value: str) -> str:
    """What the published reward compares for a wanted option that has a name: a Python tuple, printed.

    Where the name or the value is a colour word, it is that.

    >>> printed_pair("color", "red"), printed_pair("color", "dark red")
    ('red', "('color', 'dark red')")
    """
    return next((colour for colour in COLOUR_WORDS if colour in (name, value)), repr((name, value)))


@lru_cache(maxsize=65_536)
def words(text: str) -> tuple[str, ...]:
    """What has to agree of an option value: its words and numbers in order, in lower case, without plurals.

    >>> words("Grey Stripes, 1.5 x -2"), words("5-6"), words("3xl")
    (('gray', 'stripe', '1.5', 'x', '-2'), ('5', '6'), ('3', 'xl'))
    """
    found = ("gray" if word == "grey" else word for word in _WORD.findall(text.lower()))
    return tuple(
        # "gas" and "s" are no plurals.
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
        for word in found
    )


def closeness(wanted: str, chosen: str, name: str = "") -> Closeness:
    """Compares a chosen value of the option `name` with the one asked for; not fuzzy, as values are clicked, not typed.

    The words are the same if they are equal in equal order; in another order too, if none is a number or a size
    (10 x 20 is not 20 x 10). Colours are similar if both name the same ones and one side has no words besides that the
    other lacks: "black" and "matte black" are, "black" and "black / white", "pink" and "light pink", "oak brown" and
    "nut brown" are not. Numbers and sizes always have to agree. Without a letter or digit, values are equal or not.
    """
    if wanted.strip().lower() == chosen.strip().lower():
        return Closeness.EQUAL
    left, right = words(wanted), words(chosen)
    if not left or [word for word in left if _is_measure(word)] != [word for word in right if _is_measure(word)]:
        return Closeness.DIFFERENT
    if left == right or (sorted(left) == sorted(right) and not any(map(_is_measure, left))):
        return Closeness.SAME_WORDS
    if "color" in name or "colour" in name:
        colours, others = set(left) & _COLOURS, [set(side) - _COLOURS for side in (left, right)]
        same = colours == set(right) & _COLOURS and bool(colours - _SHADES)
        if same and (others[0] <= others[1] or others[1] <= others[0]):
            return Closeness.SIMILAR_COLOUR
    return Closeness.DIFFERENT


def _is_measure(word: str) -> bool:
    return word in _SIZE_WORDS or word[-1].isdigit()
