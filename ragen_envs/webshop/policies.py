"""Policies for the store: one by rule, one at random, and an oracle that knows the goal.

The rule is the one that published numbers are read against: search for the instruction, open the first hit, choose
every option that the instruction names, buy. It sees what a model sees. The oracle looks behind the counter: it needs
the store in its own process, because no server tells a goal before the purchase, to anybody.
Left out: reading descriptions, comparing products, a second search.
"""

import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragen_envs.webshop.env import WebShop, search_for
from ragen_envs.webshop.local_store import LocalStore, local_store
from ragen_envs.webshop.toy_shop import TASKS, ToyShop

BUTTONS = frozenset(
    {"back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now", "search"}
)
MAX_RANDOM_WORDS = 4
PAGE_SIZE = 10


class HiddenGoalError(TypeError):
    """The oracle is asked about a store that is not in this process."""


def _labels(env: WebShop) -> list[str]:
    """What can really be clicked: "search" is a button only to the eye, and a label with "[" ends an action early."""
    offered = env.session.answer.available_actions.clickables
    return [label for label in offered if label != "search" and "[" not in label]


def random_shop_action(env: WebShop, rng: np.random.Generator) -> str:
    """Uniform over what the page offers; a search is for one to four random words of the instruction.

    Args:
        env: After `reset`. It is not changed.
        rng: Source of the choice.

    Returns:
        An action.
    """
    labels = _labels(env)
    has_search_bar = env.session.answer.available_actions.has_search_bar
    choice = int(rng.integers(len(labels) + has_search_bar)) if labels else 0
    if labels and choice < len(labels):
        return f"click[{labels[choice]}]"
    return search_for(_random_words(env.session.instruction, rng))


def _random_words(text: str, rng: np.random.Generator) -> str:
    words = text.split()
    chosen = rng.integers(len(words), size=rng.integers(1, MAX_RANDOM_WORDS + 1))
    return " ".join(words[number] for number in chosen)


def scripted_shop_action(env: WebShop) -> str:
    """Searches for the instruction, opens the first hit, chooses every option that the instruction names, buys.

    Args:
        env: After `reset`. It is not changed.

    Returns:
        An action; on a page that the rule does not lead to, one that leads back to it.
    """
    session, labels = env.session, _labels(env)
    products = [label for label in labels if label not in BUTTONS]
    if "buy now" in labels:
        wanted = [value for value in products if _names(session.instruction, value)]
        chosen = _choices(session.played)
        return next((f"click[{value}]" for value in wanted if value not in chosen), "click[buy now]")
    if "back to search" in labels and "< prev" in labels and not products:
        return "click[< prev]"  # a sub page, or past the last result
    if session.answer.available_actions.has_search_bar or not products:
        return search_for(session.instruction)
    return f"click[{products[0]}]"


def _names(instruction: str, value: str) -> bool:
    """Whether an option value, in lower case, stands in the instruction as whole words."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", instruction.lower()) is not None


def _choices(played: Sequence[str]) -> set[str]:
    """Labels that were clicked since the last results page; that of the product itself is among them."""
    chosen = set()
    for action in reversed(played):
        if not action.startswith("click["):
            break
        chosen.add(action[len("click[") : -1].lower())
    return chosen


def best_shop_action(env: WebShop, actions_left: int) -> str:
    """Searches so that the goal's own product comes up, opens it, chooses the options, buys.

    Args:
        env: After `reset`, with its store in this process. It is not changed.
        actions_left: Not asked: the way is as short as the search allows.

    Returns:
        An action.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    local = _store_behind(env)
    shop = local.shop()
    goal = shop.goal(env.session.goal)
    state = local.page(env.session.played, env.parity)
    if state.asin == goal.asin and state.kind == "item":
        chosen = dict(state.options)
        missing = (value for name, value in local.options_for(goal).items() if chosen.get(name) != value)
        return f"click[{next(missing, 'buy now')}]"
    if state.asin == goal.asin and state.kind == "sub_page":
        return "click[< prev]"
    if state.kind == "results" and goal.asin in shop.store.results(state):
        if goal.asin in shop.store.shown(state):
            return f"click[{goal.asin.lower()}]"
        at = list(shop.store.results(state)).index(goal.asin)
        return "click[next >]" if at >= (state.page - 1) * PAGE_SIZE else "click[< prev]"
    return search_for(_best_query(local, goal))


def _store_behind(env: WebShop) -> LocalStore:
    if env.base_url is not None:
        raise HiddenGoalError(
            f"the goal is known to the server at {env.base_url} alone; make the environment without base_url, and with "
            "the server's catalogue, to have the same goals in this process"
        )
    return local_store(env.settings)


def _best_query(local: LocalStore, goal: Any) -> str:
    """Of a few things one may look for, that which finds the goal's product first."""
    queries = (goal.name, f"{goal.name} {goal.instruction}", goal.instruction, goal.query)
    return min(queries, key=lambda query: _rank(local, query, goal.asin))


def _rank(local: LocalStore, query: str, asin: str) -> int:
    """Place of a product among the results of a search, from 0; behind any other if it is not among them."""
    results = list(local.shop().store.results(local.page([search_for(query)], parity=True)))
    return results.index(asin) if asin in results else sys.maxsize


def random_toy_action(env: ToyShop, rng: np.random.Generator) -> str:
    """Uniform over a search for random words of the instruction, and clicking and buying each result.

    Args:
        env: After `reset`. It is not changed.
        rng: Source of the choice.

    Returns:
        An action.
    """
    hits = env.hits
    choice = int(rng.integers(1 + 2 * len(hits)))
    if choice == 0:
        return f"search:{_random_words(env.session.instruction, rng)}"
    verb = "click" if choice <= len(hits) else "buy"
    return f"{verb}:{hits[(choice - 1) % len(hits)].asin}"


def scripted_toy_action(env: ToyShop) -> str:
    """Searches for the instruction and buys the first result.

    Args:
        env: After `reset`. It is not changed.

    Returns:
        An action.
    """
    return f"buy:{env.hits[0].asin}" if env.hits else f"search:{env.session.instruction}"


def best_toy_action(env: ToyShop, actions_left: int) -> str:
    """Searches for size, color and kind of the wanted product, which no other product shares, and buys it.

    Args:
        env: After `reset`, with its store in this process. It is not changed.
        actions_left: Not asked: there is no shorter way.

    Returns:
        An action.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    goal = _store_behind(env).shop().goal(env.session.goal)
    if any(hit.asin == goal.asin for hit in env.hits):
        return f"buy:{goal.asin}"
    return f"search:{' '.join(_looks(goal.name))}"


def careless_toy_action(env: ToyShop, rng: np.random.Generator, noise: float) -> str:
    """Searches like the oracle but for words that are mistaken, and buys the first result, whatever it is.

    What to learn from: the words of a search are noisy one by one, so that a model sees what a search is made of, where
    whole searches at random would show it that nothing is to be read from the request.

    Args:
        env: After `reset`, with its store in this process. It is not changed.
        rng: Source of the mistakes.
        noise: Probability that size, color or kind, each for itself, is that of a product at random.

    Returns:
        An action.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    if env.hits:
        return f"buy:{env.hits[0].asin}"
    shop = _store_behind(env).shop()
    right = _looks(shop.goal(env.session.goal).name)
    mistaken = zip(*(_looks(shop.goal(int(goal)).name) for goal in rng.integers(TASKS, size=len(right))), strict=True)
    words = [
        drawn[slot] if rng.random() < noise else word
        for slot, (word, drawn) in enumerate(zip(right, mistaken, strict=True))
    ]
    return f"search:{' '.join(words)}"


def _looks(title: str) -> tuple[str, str, str]:
    """Size, color and kind in the title of a toy product; between them stands the material."""
    size, color, _, kind = title.lower().split(maxsplit=3)
    return size, color, kind
