"""What a customer thinks before an action in a store: what of the request is matched, and what is missing.

Everything is read from the page and the request, as a model reads them. The goal's product, which the oracle knows, is
never named.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragen_envs.webshop.shoppers import (
    BUTTONS,
    OPTION_NAME,
    ShownProduct,
    chosen_values,
    clickables,
    option_groups,
    products,
)
from ragen_envs.wording import listed, pick

if TYPE_CHECKING:
    from ragen_envs.webshop.env import WebShop
    from ragen_envs.webshop.toy_shop import ToyShop

_LIMIT = re.compile(r"price lower than (\d+\.\d\d) dollars")
_OPTION = re.compile(rf"{OPTION_NAME}([^,:]+)(?=,|$)")
_SLOTS = (
    frozenset({"small", "medium", "large", "xlarge"}),
    frozenset({"black", "white", "red", "blue", "green", "gray", "yellow", "brown"}),
    frozenset({"shoe", "clothing", "accessory"}),
)
_PLAIN = frozenset(
    "the and with for from that this are has have you can all find looking need price lower than".split()
)
_MOST_WORDS = 4  # of a request in a sentence


def toy_thought(env: "ToyShop", actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `TextEnv.explain`."""
    request, action = env.session.instruction.lower(), actions[0]
    verb, _, what = action.partition(":")
    if verb == "search":
        return _toy_search(request, what.lower().split(), action, rng)
    hit = next((hit for hit in env.hits if hit.label == what.lower()), None)
    if hit is None:
        return f"{_budget(request)}. {pick(rng, 'I try', 'Let me try')} {action}."
    title = hit.title.lower().split()
    wanted, has = _words(request), set(title)
    fits = [word for word in title if word in wanted]
    faults = [
        f"{word} is wanted" for slot in _SLOTS for word in sorted(slot & wanted) if word not in has and slot & has
    ]
    faults += [] if _is_cheap(hit.price, request) else [f"{hit.price} is too much"]
    if faults:
        start = f"{hit.asin} is {listed(title)}" if rng.random() < 0.5 else f"{hit.asin} is not all that is asked for"
        return f"{start}: {listed(faults)}. {pick(rng, 'I try', 'Let me try')} {action}."
    told = pick(
        rng,
        f"{hit.asin} is {listed(fits)}, as asked, and costs {hit.price}",
        f"The request asks for {listed(fits)}, and {hit.asin} is that for {hit.price}",
        f"{hit.asin} matches {listed(fits)}, and {hit.price} is not too much",
    )
    return f"{told}{pick(rng, '. So', ', so I do', '. My choice is', '. I answer')} {action}."


def _toy_search(request: str, words: Sequence[str], action: str, rng: np.random.Generator) -> str:
    asked, added = _split(words, request)
    if not asked:
        start = listed(added)
        return f"{start[0].upper()}{start[1:]}: not asked for. {pick(rng, 'I try', 'Let me try')} {action}."
    # Of a mistake as of a right search: greedy play takes the most frequent beginning, which must not tell them apart.
    start = pick(
        rng,
        f"The request asks for {listed(asked)}",
        f"Wanted: {listed(asked)}",
        f"{_budget(request)}, and I look for {listed(asked)}",
        f"Among other things the request says {listed(asked)}",
    )
    if added:
        return f"{start}, but not {listed(added)}. {pick(rng, 'I try', 'Let me try')} {action}."
    return f"{start}{pick(rng, '. I begin with', ', so I do', ', so', '. First comes')} {action}."


def shop_thought(env: "WebShop", actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `TextEnv.explain`."""
    request, action = env.session.instruction.lower(), actions[0]
    verb, _, label = action.removesuffix("]").lower().partition("[")
    if verb == "search":
        return _shop_search(request, label, rng)
    if label == "buy now" or (verb == "buy" and "buy now" in clickables(env)):
        return f"{_options(env, request, rng)} {action}."
    if label in clickables(env) and "buy now" in clickables(env) and label not in BUTTONS:
        if _names(request, label):
            told = (
                f"The request names {label}, and this page offers it" if rng.random() < 0.5 else f"{label} is asked for"
            )
            return f"{told[0].upper()}{told[1:]}{pick(rng, '. So', ', so I do', '. I choose', ', hence')} {action}."
        return f"The request does not name {label}. {pick(rng, 'I try', 'Let me try')} {action}."
    product = next((one for one in products(env) if one.label == label), None)
    if product is not None:
        return f"{_about(product, request, verb, rng)} {action}."
    goes = {"next >": "see more with", "< prev": "go back with", "back to search": "go back with"}
    does = "end with" if verb == "buy" else goes.get(label, "look with")
    return f"{_left(env, request)}. I {does} {action}."


def _left(env: "WebShop", request: str) -> str:
    """Why a product is left: an option that is asked for and not to be had, if there is one; else the highest price."""
    if "buy now" in clickables(env) and env.observation_mode in ("text", "short"):
        offered = option_groups(env)
        for name, value in _OPTION.findall(_LIMIT.sub("", request)):
            if value not in offered:
                return f"The request names {name} {value}, which this page does not offer"
    return _budget(request)


def _shop_search(request: str, query: str, rng: np.random.Generator) -> str:
    """The action is called "search" only: the oracle's query has words of the product that it looks for."""
    asked = [
        word for word in _split(re.findall(r"[\w.-]*\w", query), request)[0] if len(word) > 2 and word not in _PLAIN
    ]
    asked = list(dict.fromkeys(asked))[:_MOST_WORDS]
    if not asked:
        return f"{_budget(request)}. I try search."
    start = pick(rng, "The request names", "Wanted, among other things:", "From the request I take", "I look for")
    return f"{start} {listed(asked)}{pick(rng, '. I begin with', ', so I do', ', so', '. My action is')} search."


def _options(env: "WebShop", request: str, rng: np.random.Generator) -> str:
    """What has been chosen on a product's page, and what is still missing."""
    if env.observation_mode not in ("text", "short"):
        return f"{_budget(request)}. {pick(rng, 'Now', 'So', 'I do')}"
    groups, chosen = option_groups(env), chosen_values(env)
    missing = [label for label in groups if _names(request, label) and label not in chosen]
    if missing:
        return f"The request names {listed(missing[:2])}, which I have not chosen. {pick(rng, 'I try', 'Let me try')}"
    asked = [label for label in chosen if _names(request, label)]
    if asked:
        told = pick(rng, f"I have chosen {listed(asked)}", f"{listed(asked)}: chosen, as the request says")
        return f"{told[0].upper()}{told[1:]}. {pick(rng, 'Now', 'So', 'I end with', 'What is left is')}"
    if not groups:
        return pick(rng, "I see nothing to choose here. So", "I see no options, so I do")
    return f"The request names none of the options of this page. {pick(rng, 'So', 'I do')}"


def _about(product: ShownProduct, request: str, verb: str, rng: np.random.Generator) -> str:
    """What a result has of the request; it is opened with the verb "click", or bought at once with "buy"."""
    title, price = product.title, product.price
    asin = f"Number {product.asin}" if product.asin.isdecimal() else product.asin
    whole = re.findall(r"[\w.-]*\w", title.lower())  # "t-shirt" is read as one word, and as two
    parts = dict.fromkeys(part for word in whole for part in (word, *re.findall(r"\w+", word)))
    words = [word for word in parts if len(word) > 2 and word not in _PLAIN]
    asked = _split(words, request)[0][:_MOST_WORDS]
    has = f"has {listed(asked)} in its title" if asked else "has nothing of the request in its title"
    if not _is_cheap(price, request):
        return f"{asin} {has}, but {price} is too much. {pick(rng, 'I try', 'Let me try')}"
    told = pick(rng, f"{asin} {has} and costs {price}", f"{asin} costs {price} and {has}", f"{asin} {has}")
    last = ". I end with" if verb == "buy" else ". I look at it with"
    return f"{told}{pick(rng, '. So', ', so I do', last)}" if asked else f"{told}. I try"


def _words(request: str) -> set[str]:
    """What is asked for, without the highest price."""
    return set(re.findall(r"[\w.-]*\w", _LIMIT.sub("", request)))


def _split(words: Iterable[str], request: str) -> tuple[list[str], list[str]]:
    """The words that a request has, in the singular or the plural, and the others."""
    wanted = _words(request)
    asked: list[str] = []
    added: list[str] = []
    for word in words:
        (added if wanted.isdisjoint(_numbers(word)) else asked).append(word)
    return asked, added


def _numbers(word: str) -> set[str]:
    """A word, and what its singular or its plural may be; some of these are no words, and harmless."""
    found = {word, f"{word}s", f"{word}es"}
    endings = (("y", "ies"), ("ies", "y"), ("es", ""), ("s", ""))
    return found | {word.removesuffix(end) + other for end, other in endings if word.endswith(end)}


def _names(request: str, value: str) -> bool:
    """Whether a request has an option's value as whole words; "10" is not in "10.5", nor "large" in "x-large"."""
    return re.search(rf"(?<![\w.-]){re.escape(value)}(?!\w|-\w|\.\d)", request) is not None


def _limit(request: str) -> float:
    """The highest price; infinite if the request names none."""
    found = _LIMIT.search(request)
    return float(found[1]) if found else float("inf")


def _budget(request: str) -> str:
    limit = _limit(request)
    return "No highest price is named" if limit == float("inf") else f"The price must be below {limit:.2f} dollars"


def _is_cheap(price: str, request: str) -> bool:
    """Whether a price as shown, or the lowest one of a range, is below the limit."""
    return min(float(amount.split()[0]) for amount in price.replace(",", "").split("$")[1:]) < _limit(request)
