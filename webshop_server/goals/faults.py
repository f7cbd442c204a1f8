"""In which way a purchase is not what was wanted, in words that do not tell the goal.

The second of the reports that this project answers lists its failures so: wrong color, kind, size, price.
"""

from collections.abc import Iterator, Sequence

from webshop_server.goals.goals import Goal
from webshop_server.goals.reward import RewardParts

_NAMES = frozenset({"size", "color", "colour"})
_SIZES = frozenset({"size", "small", "medium", "large", "xlarge"})
_COLORS = frozenset({"color", "colour", "black", "white", "red", "blue", "green", "gray", "yellow", "brown"})


def purchase_faults(parts: RewardParts, goal: Goal) -> tuple[str, ...]:
    """What is wrong with a purchase.

    Args:
        parts: How it was scored.
        goal: What was wanted.

    Returns:
        Those that hold of "wrong kind", "wrong color", "wrong size", "wrong attribute", "wrong option" and "too dear",
        in this order, attributes and options in that of the goal; () after the right purchase.
    """
    found = ["wrong kind"] if parts.r_type < 1 else []
    found += dict.fromkeys(_missing(parts, goal))
    return (*found, *(["too dear"] * (not parts.r_price)))


def _missing(parts: RewardParts, goal: Goal) -> Iterator[str]:
    for attribute, met in zip(goal.attributes, parts.attributes_met, strict=True):
        if not met:
            whole = attribute.lower()  # "small batch" is no size and "green tea" no colour, "medium size" is one
            yield _named([whole, *_NAMES.intersection(whole.split())], "wrong attribute")
    for option, met in zip(goal.options, parts.options_met, strict=True):  # names or, of goals of people, values
        if not met:
            yield _named(option.lower().split(), "wrong option")


def _named(words: Sequence[str], otherwise: str) -> str:
    if _COLORS.intersection(words):
        return "wrong color"
    return "wrong size" if _SIZES.intersection(words) else otherwise
