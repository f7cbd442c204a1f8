"""A shopper for demonstrations: it finds what is wanted in the way that a customer could, and makes their mistakes.

It knows the goal, as the oracle does, so that its episodes succeed. But it searches with words of the request only,
because nobody who reads the request could know the title, on which the oracle's search depends; a few goals cannot be
found by any of them. Its mistakes are those of people: a word is left out of a search, another result is opened and
left again, an option is forgotten. All but the last can be made good, and cost actions; those among results are made
only while enough actions are left.
Left out: reading descriptions, comparing products, filters.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragen_envs.webshop.env import WebShop, search_for
from ragen_envs.webshop.local_store import LocalStore, store_behind
from ragen_envs.webshop.policies import way_to

_LIMIT = re.compile(r",? *(?:and )?price lower than [\d.,]+ dollars")
_OPTION = re.compile(r"\b(?:with|and) ([^,:]{1,30}): ")
# Words of requests that say nothing about a product.
_EMPTY = frozenset(
    "a am an and are at buy can could find for from get give has have i id im in is it like look looking me my need of "
    "on or please show some something that the there these this those to want wanted which with would you".split()
)


def query_of(request: str) -> list[str]:
    """The words of a request that a customer types, in its order; those of the price and of fillers are left out.

    >>> query_of("I need usda organic granolas with flavor: apple cinnamon, and price lower than 70.00 dollars")
    ['usda', 'organic', 'granolas', 'apple', 'cinnamon']
    """
    words = _OPTION.sub(" ", _LIMIT.sub("", request)).split()
    return [word for word in (word.strip(".,;:!?") for word in words) if word and word.lower() not in _EMPTY]


def careless_shop_action(env: WebShop, actions_left: int, rng: np.random.Generator, noise: float) -> str:
    """The shopper's next action.

    Args:
        env: After `reset`, with its store in this process. It is not changed.
        actions_left: How many actions the episode still allows, this one included.
        rng: Source of the mistakes.
        noise: Probability of a mistake, wherever one can be made.

    Returns:
        An action.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    local = store_behind(env.base_url, env.settings)
    goal, state = local.shop().goal(env.session.goal), local.page(env.session.played, env.parity)
    errs = rng.random() < noise  # drawn on every page, so that the same draws follow whatever the page is
    if state.kind in ("item", "sub_page") and (state.asin != goal.asin or state.kind == "sub_page"):
        return "click[< prev]"
    if state.kind == "item":
        chosen = dict(state.options)
        missing = [value for name, value in local.options_for(goal).items() if chosen.get(name) != value]
        return "click[buy now]" if errs or not missing else f"click[{missing[0]}]"
    if state.kind == "results" and goal.asin in local.shop().store.results(state):
        return _from_results(env, local, goal, state, errs and actions_left > _needed(local, goal) + 2)
    return _search(env, local, goal, state, rng, errs)


def _needed(local: LocalStore, goal: Any) -> int:
    """Actions from the results to the purchase: opening, options, buying."""
    return 2 + len(local.options_for(goal))


def _from_results(env: WebShop, local: LocalStore, goal: Any, state: Any, errs: bool) -> str:
    """Opens the product, or another one first, or turns the page on which it is."""
    store = local.shop().store
    others = [asin for asin in store.shown(state) if asin not in (goal.asin, *state.seen)]
    return way_to(env, store, state, others[0] if errs and others else goal.asin)


def _search(env: WebShop, local: LocalStore, goal: Any, state: Any, rng: np.random.Generator, errs: bool) -> str:
    """The words of the request; after a search that did not find the product the whole request, once; then fewer words.

    One more word is left out after each failure: that without which the product ranks best, or by mistake any one.
    Where none is left to leave out, the shopper begins again with all.
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
