"""What a customer reads on a page of the store: the products of a page of results, the options of a product.

For rules and thoughts, which see what a model sees. They read the modes `text` and `short`; on pages of other modes
they find nothing.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ragen_envs.webshop.env import WebShop

BUTTONS = frozenset(
    {"back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now", "search"}
)
OPTION_NAME = r"\b(?:with|and) ((?:(?!\b(?:with|and)\b)[^,:]){1,30}): "
"""Of requests: the name of an option, before its value; "with sea salt with size: 1 pound" names "size"."""
PRICE_BOUND = re.compile(r",? *(?:and )?price lower than [\d.,]+ dollars")
"""Of requests: the highest price, with the words before it."""
_SEPARATOR = " [SEP] "
_HIT = re.compile(r"(\d+)\. (.*) \| ((?:from )?\$[^|]*)")
_CHOSEN = re.compile(r".*?: .* \(chosen: (.*)\)")


class ShownProduct(NamedTuple):
    """A product on a page of results.

    Attributes:
        label: What is clicked to open it, in lower case.
        name: The label as the page has it.
        title: Its title, which may be cut.
        price: Its price, such as "$12.00", "$12.00 to $15.50" or "from $12.00".
    """

    label: str
    name: str
    title: str
    price: str


def clickables(env: WebShop) -> tuple[str, ...]:
    """The labels that can be clicked."""
    return env.session.answer.available_actions.clickables


def products(env: WebShop) -> list[ShownProduct]:
    """The products of a page of results, in its order; none on other pages."""
    labels, page = set(clickables(env)) - BUTTONS, env.session.answer.observation
    if env.observation_mode == "short":
        found = (_HIT.fullmatch(line) for line in page.split("\n"))
        return [ShownProduct(one[1], one[1], one[2], one[3]) for one in found if one and one[1] in labels]
    texts = page.split(_SEPARATOR)
    triples = zip(texts, texts[1:], texts[2:], strict=False)
    return [
        ShownProduct(name.lower(), name, title, price)
        for name, title, price in triples
        if name.lower() in labels and price.startswith("$")
    ]


def can_read_options(env: WebShop) -> bool:
    """Whether pages of this mode are read here."""
    return env.observation_mode in ("text", "short")


def option_groups(env: WebShop) -> dict[str, str]:
    """The values that a product's page offers, each with the name of its option."""
    labels, page = [label for label in clickables(env) if label not in BUTTONS], env.session.answer.observation
    groups: dict[str, str] = {}
    if env.observation_mode == "short":
        for line in page.split("\n"):
            name, _, values = line.partition(": ")
            listed = f", {values.rpartition(' (chosen: ')[0] or values}, "
            groups |= {label: name for label in labels if f", {label}, " in listed}
        return groups
    name, shown = "", _without_blanks(labels)
    for text in page.split(_SEPARATOR):
        if text.lower() in shown:
            groups[shown[text.lower()]] = name
        else:
            name = text.lower()
    return groups


def _without_blanks(labels: Iterable[str]) -> dict[str, str]:
    """Labels by what texts and actions have of them: the one without blanks around it, else the first."""
    every = list(labels)
    return {label.strip(): label for label in reversed(every)} | {label: label for label in every}


def chosen_values(env: WebShop) -> list[str]:
    """The values that are chosen now on a product's page: the last one of each option that was clicked there."""
    if env.observation_mode == "short":
        found = (_CHOSEN.fullmatch(line) for line in env.session.answer.observation.split("\n"))
        return [one[1] for one in found if one]
    groups, last = option_groups(env), dict[str, str]()
    shown = _without_blanks(groups)
    for action in reversed(env.session.played):
        said = action.lower().removeprefix("click[").removesuffix("]")
        label = shown.get(said.strip(), said)
        if label in groups:
            last.setdefault(groups[label], label)
        elif label not in BUTTONS:
            break
    return list(reversed(last.values()))
