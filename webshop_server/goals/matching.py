"""Whether two short texts of a shop say the same: the published fuzzy match, and a strict one without its mistakes.

The published reward uses `token_set_ratio` of thefuzz 0.19, which is 100 as soon as the words of one text are among the
other's, so "large" is as good as "x-large", and "ash" is found in "fashion". The corrected reward uses `closeness`,
which is not fuzzy on purpose: values are clicked, not typed.
"""

import re
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

import tomllib
from rapidfuzz import fuzz

FUZZY_THRESHOLD = 85  # a match scores more than this, of 100


def word_list(name: str) -> tuple[str, ...]:
    """A list of words.toml, in its order."""
    return tuple(tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))[name].split())


COLOUR_WORDS = word_list("colours")
_COLOURS = frozenset(COLOUR_WORDS)
# They tell two colours apart and are none themselves: "light" must not count as "light pink".
_SHADES = frozenset({"dark", "light"})
_SIZE_WORDS = frozenset(word_list("sizes"))
# A number keeps its decimal part and a sign that is no hyphen: +1.5 and -1.5 are two lenses, 5-6 is a range.
_WORD = re.compile(r"(?:(?<![^\W_])[+-])?\d+(?:\.\d+)?|[^\W\d_]+")
_NOT_IN_A_WORD = re.compile(r"\W")
_LATIN_1 = dict.fromkeys(range(128, 256))  # what thefuzz drops under the name "ASCII only"; it keeps all above


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


class Closeness(IntEnum):
    """How well a chosen option value agrees with the one asked for."""

    DIFFERENT = 0
    SIMILAR_COLOUR = 1
    SAME_WORDS = 2
    EQUAL = 3


def closeness(wanted: str, chosen: str, is_colour: bool = False) -> Closeness:
    """Compares a chosen option value with the one asked for.

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
    if is_colour:
        colours, others = set(left) & _COLOURS, [set(side) - _COLOURS for side in (left, right)]
        same = colours == set(right) & _COLOURS and bool(colours - _SHADES)
        if same and (others[0] <= others[1] or others[1] <= others[0]):
            return Closeness.SIMILAR_COLOUR
    return Closeness.DIFFERENT


def _is_measure(word: str) -> bool:
    return word in _SIZE_WORDS or word[-1].isdigit()
