"""Policies for the store: a scripted rule, a random policy, and an oracle that knows the goal.

The rule is the one that published numbers are compared with: search for the instruction, open the first hit, choose
every option that the instruction names, buy. The oracle needs the store in this process, because a server never shows
the goal before the purchase.
"""

import re
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ragen_envs.webshop.env import WebShop, search_for
from ragen_envs.webshop.local_store import LocalStore, store_behind
from ragen_envs.webshop.reading import BUTTONS, chosen_values, option_groups
from ragen_envs.webshop.toy_shop import TASKS, ToyShop

MAX_RANDOM_WORDS = 4
PAGE_SIZE = 10
_UNCLICKABLE = re.compile(r"[\[\x00-\x1f\x7f]")


def _labels(env: WebShop) -> list[str]:
    """The labels that can be clicked.

    "search" is listed but cannot be. Nor can a label with "[", which would end the action, one with a control
    character, which is not sent, or an empty one.
    """
    offered = env.session.answer.available_actions.clickables
    return [label for label in offered if label != "search" and label.strip() and not _UNCLICKABLE.search(label)]


def random_shop_action(env: WebShop, rng: np.random.Generator) -> str:
    """Uniform over what the page offers; a search is for one to four random words of the instruction."""
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

    On a page to which the rule does not lead, it returns an action that leads back.
    """
    session, labels = env.session, _labels(env)
    products = [label for label in labels if label not in BUTTONS]
    if "buy now" in labels:
        wanted = [value for value in products if _names(session.instruction, value)]
        chosen: Collection[str] = _choices(session.played)
        if env.observation_mode == "short":  # which shows what is chosen: of an option the value that was clicked last
            groups = option_groups(env)
            wanted = list({groups.get(value, value): value for value in wanted}.values())
            chosen = chosen_values(env)
        done = {value.strip() for value in chosen}  # actions have no blanks around what is clicked
        return next((f"click[{value}]" for value in wanted if value.strip() not in done), "click[buy now]")
    if "back to search" in labels and "< prev" in labels and not products:
        return "click[< prev]"  # a sub page, or past the last result
    if session.answer.available_actions.has_search_bar or not products:
        return search_for(session.instruction)
    return f"click[{products[0]}]"


def _names(instruction: str, value: str) -> bool:
    """Whether the instruction contains an option value, in lower case, as whole words."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", instruction.lower()) is not None


def _choices(played: Sequence[str]) -> set[str]:
    """Labels that were clicked since the last results page, including that of the product."""
    chosen = set()
    for action in reversed(played):
        if not action.startswith("click["):
            break
        chosen.add(action[len("click[") : -1].lower())
    return chosen


def best_shop_action(env: WebShop, actions_left: int) -> str:
    """Searches so that the goal's product is found, opens it if it has options to choose, buys.

    `actions_left` does not matter: the way is always as short as the search allows.

    Raises:
        HiddenGoalError: If the store is not in this process.
    """
    local = store_behind(env.base_url, env.settings)
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
        at_once = not env.parity and not local.options_for(goal)
        return way_to(env, shop.store, state, goal.asin, "buy" if at_once else "click")
    return search_for(_best_query(local, goal))


def way_to(env: WebShop, store: Any, state: Any, asin: str, verb: str = "click") -> str:
    """Opens (or buys) one of the results, or turns to the page on which it is.

    A page names a product by its number in the mode `short`, else by its identifier.

    Args:
        env: The environment.
        store: Its `webshop_server.store.state.Store`.
        state: The page of results, a `webshop_server.store.state.PageState`.
        asin: A product among all the results of the search.
        verb: "click" or "buy".
    """
    at = list(store.results(state)).index(asin)
    if asin in store.shown(state):
        return f"{verb}[{at + 1 if env.observation_mode == 'short' else asin.lower()}]"
    return "click[next >]" if at >= (state.page - 1) * PAGE_SIZE else "click[< prev]"


def _best_query(local: LocalStore, goal: Any) -> str:
    """The one of a few queries that ranks the goal's product highest."""
    queries = (goal.name, f"{goal.name} {goal.instruction}", goal.instruction, goal.query)
    return min(queries, key=lambda query: _rank(local, query, goal.asin))


def _rank(local: LocalStore, query: str, asin: str) -> int:
    """Rank of a product in the results of a search, from 0; a very large number if it is not found."""
    results = list(local.shop().store.results(local.page([search_for(query)], parity=True)))
    return results.index(asin) if asin in results else sys.maxsize


def random_toy_action(env: ToyShop, rng: np.random.Generator) -> str:
    """Uniform over a search for random words of the instruction, and clicking or buying each result."""
    hits = env.hits
    choice = int(rng.integers(1 + 2 * len(hits)))
    if choice == 0:
        return f"search:{_random_words(env.session.instruction, rng)}"
    verb = "click" if choice <= len(hits) else "buy"
    return f"{verb}:{hits[(choice - 1) % len(hits)].asin}"


def scripted_toy_action(env: ToyShop) -> str:
    """Searches for the instruction and buys the first result."""
    return f"buy:{env.hits[0].asin}" if env.hits else f"search:{env.session.instruction}"


def best_toy_action(env: ToyShop, actions_left: int) -> str:
    """Searches for size, color and kind of the wanted product, which only this product has, and buys it.

    `actions_left` does not matter: there is no shorter way.

    Raises:
        HiddenGoalError: If the store is not in this process.
    """
    goal = store_behind(env.base_url, env.settings).shop().goal(env.session.goal)
    if any(hit.asin == goal.asin for hit in env.hits):
        return f"buy:{goal.asin}"
    return f"search:{' '.join(_looks(goal.name))}"


def careless_toy_action(env: ToyShop, rng: np.random.Generator, noise: float) -> str:
    """Searches like the oracle, but with some wrong words, and buys the first result, even if it is wrong.

    This is for demonstrations. Each word of a search is noisy by itself, so that a model sees what a search consists
    of. From searches that are random as a whole, it would learn to ignore the request.

    Args:
        env: The environment; its store is in this process.
        rng: Source of the mistakes.
        noise: Probability, separately for size, color and kind, that it is that of a random product.

    Raises:
        HiddenGoalError: If the store is not in this process.
    """
    if env.hits:
        return f"buy:{env.hits[0].asin}"
    shop = store_behind(env.base_url, env.settings).shop()
    right = _looks(shop.goal(env.session.goal).name)
    mistaken = zip(*(_looks(shop.goal(int(goal)).name) for goal in rng.integers(TASKS, size=len(right))), strict=True)
    words = [
        drawn[slot] if rng.random() < noise else word
        for slot, (word, drawn) in enumerate(zip(right, mistaken, strict=True))
    ]
    return f"search:{' '.join(words)}"


def _looks(title: str) -> tuple[str, str, str]:
    """Size, color and kind in the title of a toy product; the material is before the kind."""
    size, color, _, kind = title.lower().split(maxsplit=3)
    return size, color, kind
