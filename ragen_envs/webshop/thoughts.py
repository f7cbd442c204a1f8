"""What a customer thinks before an action in a store: what of the request is matched, and what is missing.

Everything is read from the page and the request, and the goal's product, which the oracle knows, is never named.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragen_envs.webshop import shoppers
from ragen_envs.webshop.shoppers import TEXTS, WORDS
from ragen_envs.wording import listed, pick

if TYPE_CHECKING:
    from ragen_envs.webshop.env import WebShop
    from ragen_envs.webshop.toy_shop import ToyShop

_LIMIT = re.compile(r"price lower than (\d+\.\d\d) dollars")
_OPTION = re.compile(rf"{shoppers.OPTION_NAME}([^,:]+)(?=,|$)")
_SLOTS = (WORDS["sizes"], WORDS["colors"], WORDS["kinds"])
_MOST_WORDS = 4  # of a request in a sentence


def toy_thought(env: "ToyShop", actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `TextEnv.explain`."""
    request, action = env.session.instruction.lower(), actions[0]
    verb, _, what = action.partition(":")
    if verb == "search":
        asked, added = _split(what.lower().split(), request)
        if not asked:
            return f"{_upper(listed(added))}: not asked for. {_say(rng, 'trial')} {action}."
        start = _say(rng, "toy_search", words=listed(asked), budget=_budget(request))
        if added:
            return f"{start}, but not {listed(added)}. {_say(rng, 'trial')} {action}."
        return f"{start}{_say(rng, 'toy_search_end')} {action}."
    hit = next((hit for hit in env.hits if hit.label == what.lower()), None)
    if hit is None:
        return f"{_budget(request)}. {_say(rng, 'trial')} {action}."
    title = hit.title.lower().split()
    wanted, has = _words(request), set(title)
    faults = [f"{word} is wanted" for slot in _SLOTS if slot & has for word in sorted(slot & wanted - has)]
    faults += [] if _is_cheap(hit.price, request) else [f"{hit.price} is too much"]
    if faults:
        start = f"{hit.asin} is {listed(title)}" if rng.random() < 0.5 else f"{hit.asin} is not all that is asked for"
        return f"{start}: {listed(faults)}. {_say(rng, 'trial')} {action}."
    fits = listed([word for word in title if word in wanted])
    told = _say(rng, "toy_result", id=hit.asin, words=fits, price=hit.price)
    return f"{told}{_say(rng, 'toy_result_end')} {action}."


def shop_thought(env: "WebShop", actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `TextEnv.explain`.

    A search is called "search" only: the oracle's query has words of the product that it looks for.
    """
    request, action = env.session.instruction.lower(), actions[0]
    verb, _, label = action.removesuffix("]").lower().partition("[")
    labels = shoppers.clickables(env)
    if verb == "search":
        asked = _asked(re.findall(r"[\w.-]*\w", label), request)
        if not asked:
            return f"{_budget(request)}. I try search."
        return f"{_say(rng, 'search')} {listed(asked)}{_say(rng, 'search_end')} search."
    if label == "buy now" or (verb == "buy" and "buy now" in labels):
        return f"{_chosen(env, request, rng)} {action}."
    if label in labels and "buy now" in labels and label not in shoppers.BUTTONS:
        if not _names(request, label):
            return f"The request does not name {label}. {_say(rng, 'trial')} {action}."
        told = f"The request names {label}, and this page offers it" if rng.random() < 0.5 else f"{label} is asked for"
        return f"{_upper(told)}{_say(rng, 'option_end')} {action}."
    product = next((one for one in shoppers.products(env) if one.label == label), None)
    if product is not None:
        return f"{_about(product, request, verb, rng)} {action}."
    # Why a product is left: an option that is asked for and not to be had, if there is one; else the highest price.
    why = _budget(request)
    if "buy now" in labels and env.observation_mode in ("text", "short"):
        offered, _ = shoppers.options_of_page(env)
        asked_for = _OPTION.findall(_LIMIT.sub("", request))
        lacking = (f"{name} {value}" for name, value in asked_for if value not in offered)
        why = next((f"The request names {one}, which this page does not offer" for one in lacking), why)
    return f"{why}. I {'end with' if verb == 'buy' else TEXTS['goes'].get(label, 'look with')} {action}."


def _chosen(env: "WebShop", request: str, rng: np.random.Generator) -> str:
    """What has been chosen on a product's page, and what is still missing."""
    if env.observation_mode not in ("text", "short"):
        return f"{_budget(request)}. {_say(rng, 'unseen')}"
    groups, chosen = shoppers.options_of_page(env)
    missing = [label for label in groups if _names(request, label) and label not in chosen]
    if missing:
        return f"The request names {listed(missing[:2])}, which I have not chosen. {_say(rng, 'trial')}"
    asked = [label for label in chosen if _names(request, label)]
    if asked:
        return f"{_upper(_say(rng, 'chosen', options=listed(asked)))}. {_say(rng, 'chosen_end')}"
    if not groups:
        return _say(rng, "no_options")
    return f"The request names none of the options of this page. {_say(rng, 'other_options')}"


def _about(product: shoppers.ShownProduct, request: str, verb: str, rng: np.random.Generator) -> str:
    """What a result has of the request; it is opened with the verb "click", or bought at once with "buy"."""
    asin = f"Number {product.asin}" if product.asin.isdecimal() else product.asin
    whole = re.findall(r"[\w.-]*\w", product.title.lower())  # "t-shirt" is read as one word, and as two
    asked = _asked((part for word in whole for part in (word, *re.findall(r"\w+", word))), request)
    has = f"has {listed(asked)} in its title" if asked else "has nothing of the request in its title"
    if not _is_cheap(product.price, request):
        return f"{asin} {has}, but {product.price} is too much. {_say(rng, 'trial')}"
    told = _say(rng, "result", id=asin, has=has, price=product.price)
    return f"{told}{_say(rng, f'result_{verb}')}" if asked else f"{told}. I try"


def _say(rng: np.random.Generator, name: str, **parts: str) -> str:
    """One of the phrases by this name, with its parts."""
    return pick(rng, *TEXTS["phrases"][name]).format(**parts)


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _words(request: str) -> set[str]:
    """What is asked for, without the highest price."""
    return set(re.findall(r"[\w.-]*\w", _LIMIT.sub("", request)))


def _split(words: Iterable[str], request: str) -> tuple[list[str], list[str]]:
    """The words that a request has, in the singular or the plural, and the others."""
    wanted = _words(request)
    asked: list[str] = []
    added: list[str] = []
    endings = (("", "s"), ("", "es"), ("y", "ies"), ("ies", "y"), ("es", ""), ("s", ""))
    for word in words:  # of the forms that it may have some are no words, and harmless
        forms = {word, *(word.removesuffix(end) + other for end, other in endings if word.endswith(end))}
        (added if wanted.isdisjoint(forms) else asked).append(word)
    return asked, added


def _asked(words: Iterable[str], request: str) -> list[str]:
    """The first different words that say something and that a request has."""
    telling = dict.fromkeys(word for word in words if len(word) > 2 and word not in WORDS["plain"])
    return _split(telling, request)[0][:_MOST_WORDS]


def _names(request: str, value: str) -> bool:
    """Whether a request has an option's value as whole words; "10" is not in "10.5", nor "large" in "x-large"."""
    return re.search(rf"(?<![\w.-]){re.escape(value)}(?!\w|-\w|\.\d)", request) is not None


def _budget(request: str) -> str:
    found = _LIMIT.search(request)
    return f"The price must be below {found[1]} dollars" if found else "No highest price is named"


def _is_cheap(price: str, request: str) -> bool:
    """Whether a price as shown, or the lowest one of a range, is below the highest price of a request."""
    found = _LIMIT.search(request)
    lowest = min(float(amount.split()[0]) for amount in price.replace(",", "").split("$")[1:])
    return found is None or lowest < float(found[1])
