"""What a shopper who knows the goal buys, and what to choose on any other product.

Some of the original's goals cannot be solved: on the public set, buying a goal's own product with its own options
scores below 1 for 458 of 6910. Nor are goals with an option that no click chooses: an empty value, a button's name, one
shared by two options, a bracket, blanks around it, a control character.
"""

import re

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.goals.reward import FUZZY_THRESHOLD, closeness, token_set_ratio
from webshop_server.store.state import BACK, BUY, PREVIOUS, SEARCH, SUB_PAGES, meant, parse_action

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BUTTONS = {SEARCH, BUY, BACK, PREVIOUS, *(name.lower() for name in SUB_PAGES)}


def own_options(product: Product, goal: Goal) -> dict[str, str]:
    """The options to choose, value by name, when a goal's own product is bought."""
    if isinstance(goal.options, tuple):
        return closest_options(product, goal)
    return {name: value for name, value in goal.options.items() if can_be_clicked(product, name, value)}


def closest_options(product: Product, goal: Goal) -> dict[str, str]:
    """The options to choose, value by name, when any product is bought for a goal.

    For each option asked for it is the closest value under its name, or where the product has no such option, among all
    that the goal does not name. What the goal leaves open is left open, and so is that of which nothing similar is
    offered.
    """
    others = [name for name in product.options if name not in dict(goal.asked)]
    chosen: dict[str, str] = {}
    for wanted_name, wanted in goal.asked:
        names = [wanted_name] if wanted_name and wanted_name in product.options else others
        pairs = [(name, value) for name in names if name not in chosen for value in product.options[name]]
        rated = [
            (closeness(wanted, value, name), token_set_ratio(wanted, value), name, value)
            for name, value in pairs
            if can_be_clicked(product, name, value)
        ]
        close, ratio, name, value = max(rated, key=lambda entry: entry[:2], default=(0, 0, "", ""))
        if close or ratio > FUZZY_THRESHOLD:
            chosen[name] = value
    return chosen


def can_be_clicked(product: Product, name: str, value: str) -> bool:
    """Whether `click[value]` on a product's page chooses this value of an option."""
    owners = [other for other, values in product.options.items() if value in values]  # the last one has a value
    if owners[-1:] != [name] or value in _BUTTONS or not value.strip() or _CONTROL.search(value):
        return False
    every = [one for values in product.options.values() for one in values]
    return meant(value.strip(), every) == value and parse_action(f"click[{value}]") == ("click", value)
