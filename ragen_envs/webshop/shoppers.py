"""A shopper for demonstrations: it buys what is wanted in the way a customer could, and makes a customer's mistakes.

It searches with words of the request only (nobody who reads a request knows the title that the oracle searches for),
opens results from the first on, and buys the first product that offers what is asked for. Beyond the page it knows from
the goal which results are of the right kind and which word to leave out of a search that found nothing. Its mistakes
(`careless_shop_action`) are a word left out of a search, a good product left again, an option forgotten.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragen_envs.webshop.env import WebShop, search_for
from ragen_envs.webshop.local_store import LocalStore, store_behind
from ragen_envs.webshop.policies import PAGE_SIZE, way_to
from ragen_envs.webshop.reading import OPTION_NAME, PRICE_BOUND

_A_LOOK = 2  # actions: opening a product, and going back
_OPTION = re.compile(OPTION_NAME)
# Words of requests that say nothing about a product.
_EMPTY = frozenset(
    "a am an and are at buy can could find for from get give has have i id im in is it like look looking me my need of "
    "on or please show some something that the there these this those to want wanted which with would you".split()
)


def query_of(request: str) -> list[str]:
    """The words of a request that a customer types, in its order; those of the price and of fillers are left out.

    >>> query_of("I need usda organic granolas with flavor: apple cinnamon, and price lower than 70.00 dollars")
    ['usda', 'organic', 'granolas', 'apple', 'cinnamon']
    >>> query_of("for athletes, find me pastas with natural flavors with size: 12 ounce")
    ['athletes', 'pastas', 'natural', 'flavors', '12', 'ounce']
    """
    words = _OPTION.sub(" ", PRICE_BOUND.sub("", request)).split()
    return [word for word in (word.strip(".,;:!?") for word in words) if word and word.lower() not in _EMPTY]


def careless_shop_action(env: WebShop, actions_left: int, rng: np.random.Generator, noise: float) -> str:
    """The shopper's next action.

    On every page it is drawn whether a mistake is made, and the page decides which one. The first search lacks a random
    word, and one after failures lacks a random word instead of the one that is best left out. A product on whose page
    nothing is chosen is left again, while enough actions remain. On any other product's page the options that are still
    missing are forgotten. So the second of two options is forgotten far more often than the first, and an only one
    hardly ever. Elsewhere, such as on results, the draw changes nothing.

    At ``noise=0.05``, in 9 actions for each of the first 2000 goals of `train_by_product`, a word was left out of the
    first search in 5.4 %, a product that would do was left in 4.4 %, and an option was forgotten in 3.8 %: in 3 of 639
    requests with one option, and in 72 of 1064 with more. What is wanted was bought in 79 % (83 % at ``noise=0``; what
    is missing there are attributes, which it does not compare).

    Args:
        env: After `reset`, with its store in this process. It is not changed.
        actions_left: How many actions the episode still allows, this one included.
        rng: Source of the mistakes.
        noise: Probability that a mistake is drawn, on each page.

    Returns:
        An action.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    local = store_behind(env.base_url, env.settings)
    goal, state = local.shop().goal(env.session.goal), local.page(env.session.played, env.parity)
    errs = rng.random() < noise  # drawn on every page, so that the same draws follow whatever the page is
    if state.kind == "sub_page":
        return "click[< prev]"
    if state.kind == "item":
        return _from_item(local, goal, state, actions_left, errs)
    if state.kind == "results" and (asin := _next_to_open(local, goal, state, actions_left)):
        return way_to(env, local.shop().store, state, asin)
    return _search(env, local, goal, state, rng, errs)


def _from_item(local: LocalStore, goal: Any, state: Any, actions_left: int, errs: bool) -> str:
    """Chooses what is asked for and buys; leaves a product that will not do, while another one can still be bought."""
    wanted = local.choices(state.asin, goal)
    chosen = dict(state.options)
    missing = [value for name, value in wanted.items() if chosen.get(name) != value]
    can_leave = actions_left > _needed(local.options_for(goal))
    if can_leave and not chosen and (errs or not local.will_do(state.asin, goal)):
        return "click[< prev]"
    return "click[buy now]" if errs or not missing or actions_left == 1 else f"click[{missing[0]}]"


def _needed(wanted: Mapping[str, str]) -> int:
    """Actions from the results to the purchase: opening, options, buying."""
    return 2 + len(wanted)


def _next_to_open(local: LocalStore, goal: Any, state: Any, actions_left: int) -> str | None:
    """The product to open: the first new one that looks right, or the first one that will do if no look can be spared.

    None if nothing that was found will do, and another search can still end in a purchase.
    """
    store = local.shop().store
    hits, shown = list(store.results(state)), list(store.shown(state))
    new = [asin for asin in hits if asin not in state.seen]
    in_reach = (
        (asin, spare)
        for asin in dict.fromkeys((*new, *hits))
        if local.will_do(asin, goal)
        and (spare := actions_left - _needed(local.choices(asin, goal)) - _turns(hits, asin, state)) >= 0
    )
    target, spare = next(in_reach, (None, 0))
    first = next((asin for asin in new if asin in shown and local.looks_right(asin, goal)), None)
    if target is None:
        can_search = actions_left > _needed(local.options_for(goal))
        return None if can_search else first or next(iter(shown), None)
    return first if first and spare >= _A_LOOK else target


def _turns(hits: Sequence[str], asin: str, state: Any) -> int:
    """How many pages of results a product is away."""
    return abs(hits.index(asin) // PAGE_SIZE + 1 - state.page)


def _search(env: WebShop, local: LocalStore, goal: Any, state: Any, rng: np.random.Generator, errs: bool) -> str:
    """The words of the request; after a search that found nothing the whole request, once; then fewer words.

    One more word is left out after each failure: that without which the goal's product ranks best, or by mistake any
    one. Where none is left to leave out, the shopper begins again with all.
    """
    request = env.session.instruction
    whole, words = search_for(request), query_of(request)
    if not state.keywords:
        fewer = _without_one(words, rng)
        return search_for(" ".join(fewer[0] if errs else words))
    if whole.lower() not in map(str.lower, env.session.played):
        return whole
    if search_for(" ".join(state.keywords)) != whole.lower():
        tried = [word for word in words if word.lower() in state.keywords]
        words = tried if len(tried) > 1 else words
    fewer = _without_one(words, rng)
    best = fewer[0] if errs else min(fewer, key=lambda kept: local.rank(" ".join(kept), goal.asin))
    return search_for(" ".join(best))


def _without_one(words: Sequence[str], rng: np.random.Generator) -> list[list[str]]:
    """The words without one of them, for each of them, in random order; a single word stays."""
    if len(words) < 2:
        return [list(words)]
    return [[*words[:place], *words[place + 1 :]] for place in rng.permutation(len(words))]
