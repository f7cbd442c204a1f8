"""Who shops: a random shopper, the scripted rule, an oracle, and a careless customer for demonstrations.

The rule is the one that published numbers are compared with: search for the instruction, open the first hit, choose
every option that the instruction names, buy. The oracle and the customer know the goal, so they need the store in this
process.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragen_envs.webshop.local import LocalSession

if TYPE_CHECKING:
    from ragen_envs.webshop.env import WebShop
    from ragen_envs.webshop.toy_shop import ToyShop
    from webshop_server.goals.goals import Goal
    from webshop_server.store.shop import Shop
    from webshop_server.store.state import PageState

MAX_ACTION_LENGTH = 1000
"""Longer texts are invalid actions. The store's own limit for a search is not lower."""
BUTTONS = frozenset(
    {"back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now", "search"}
)
OPTION_NAME = r"\b(?:with|and) ((?:(?!\b(?:with|and)\b)[^,:]){1,30}): "
"""Of requests: the name of an option, before its value; "with sea salt with size: 1 pound" names "size"."""
PRICE_BOUND = re.compile(r",? *(?:and )?price lower than [\d.,]+ dollars")
"""Of requests: the highest price, with the words before it."""
MAX_RANDOM_WORDS = 4
PAGE_SIZE = 10
SEPARATOR = " [SEP] "  # of the texts of a page
SEARCH_DEPTH = 500  # results that the customer's search is ranked among
_A_LOOK = 2  # actions: opening a product, and going back
_HIT = re.compile(r"(\d+)\. (.*) \| ((?:from )?\$[^|]*)")
_UNSEARCHABLE = re.compile(r"[\[\]\x00-\x1f\x7f\ud800-\udfff]")
_UNCLICKABLE = re.compile(r"[\[\x00-\x1f\x7f]")
_OPTION = re.compile(OPTION_NAME)
# Words of requests that say nothing about a product.
_EMPTY = frozenset(
    "a am an and are at buy can could find for from get give has have i id im in is it like look looking me my need of "
    "on or please show some something that the there these this those to want wanted which with would you".split()
)


def search_words(text: str) -> str:
    """The part of a text that can be searched for: no brackets, which would end the action; may be empty."""
    words = " ".join(_UNSEARCHABLE.sub(" ", text).split())
    return words[: MAX_ACTION_LENGTH - len("search[]")].strip()


def search_for(text: str) -> str:
    """The action that searches for a text, or for "anything" if the text has no words.

    >>> search_for("Soap [3 pack]")
    'search[Soap 3 pack]'
    """
    return f"search[{search_words(text) or 'anything'}]"


class ShownProduct(NamedTuple):
    """A product on a page of results.

    Attributes:
        label: What is clicked to open it, in lower case.
        asin: The same as the page has it: its identifier, or its number in the mode `short`.
        title: Its title, which may be cut.
        price: Its price, such as "$12.00", "$12.00 to $15.50" or "from $12.00".
    """

    label: str
    asin: str
    title: str
    price: str


def clickables(env: "WebShop") -> tuple[str, ...]:
    """The labels that can be clicked."""
    return env.session.answer.available_actions.clickables


def products(env: "WebShop") -> list[ShownProduct]:
    """The products of a page of results, in its order; none on other pages."""
    labels, page = set(clickables(env)) - BUTTONS, env.session.answer.observation
    if env.observation_mode == "short":
        found = (_HIT.fullmatch(line) for line in page.split("\n"))
        return [ShownProduct(one[1], one[1], one[2], one[3]) for one in found if one and one[1] in labels]
    texts = page.split(SEPARATOR)
    triples = zip(texts, texts[1:], texts[2:], strict=False)
    return [
        ShownProduct(name.lower(), name, title, price)
        for name, title, price in triples
        if name.lower() in labels and price.startswith("$")
    ]


def option_groups(env: "WebShop") -> dict[str, str]:
    """The values that a product's page offers, each with the name of its option; errors are those of `known`."""
    shop, _, state = known(env)
    offered = set(clickables(env)) - BUTTONS
    options = shop.catalog.product(state.asin).options
    return {value: name for name, values in options.items() for value in values if value in offered}


def chosen_values(env: "WebShop") -> list[str]:
    """The values that are chosen now on a product's page, in its order where it shows them; see `known` for errors."""
    shop, _, state = known(env)
    chosen = dict(state.options)
    names = shop.catalog.product(state.asin).options if env.observation_mode == "short" else chosen
    return [chosen[name] for name in names if name in chosen]


def _labels(env: "WebShop") -> list[str]:
    """The labels that can be clicked.

    "search" is listed but cannot be. Nor can a label with "[", which would end the action, one with a control
    character, which is not sent, or an empty one.
    """
    return [one for one in clickables(env) if one != "search" and one.strip() and not _UNCLICKABLE.search(one)]


def random_shop_action(env: "WebShop", rng: np.random.Generator) -> str:
    """Uniform over what the page offers; a search is for one to four random words of the instruction."""
    labels = _labels(env)
    choice = int(rng.integers(len(labels) + env.session.answer.available_actions.has_search_bar)) if labels else 0
    if choice < len(labels):
        return f"click[{labels[choice]}]"
    return search_for(random_words(env.session.instruction, rng))


def random_words(text: str, rng: np.random.Generator) -> str:
    """One to four words of a text, in any order; a word may come twice."""
    words = text.split()
    chosen = rng.integers(len(words), size=rng.integers(1, MAX_RANDOM_WORDS + 1))
    return " ".join(words[number] for number in chosen)


def scripted_shop_action(env: "WebShop") -> str:
    """Searches for the instruction, opens the first hit, chooses every option that the instruction names, buys.

    On a page to which the rule does not lead, it returns an action that leads back.
    """
    session, labels = env.session, _labels(env)
    offered = [label for label in labels if label not in BUTTONS]
    if "buy now" in labels:
        # Whole words of the instruction, in lower case.
        task = session.instruction.lower()
        wanted = [value for value in offered if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", task)]
        chosen = _clicked(session.played)
        if env.observation_mode == "short":  # which shows what is chosen: of an option the value that was clicked last
            groups = option_groups(env)
            wanted = list({groups[value]: value for value in wanted}.values())
            chosen = chosen_values(env)
        done = {value.strip() for value in chosen}  # actions have no blanks around what is clicked
        return next((f"click[{value}]" for value in wanted if value.strip() not in done), "click[buy now]")
    if "back to search" in labels and "< prev" in labels and not offered:
        return "click[< prev]"  # a sub page, or past the last result
    if session.answer.available_actions.has_search_bar or not offered:
        return search_for(session.instruction)
    return f"click[{offered[0]}]"


def _clicked(played: Sequence[str]) -> list[str]:
    """Labels that were clicked since the last search, also that of the product."""
    clicks = itertools.takewhile(lambda action: action.startswith("click["), reversed(played))
    return [action[len("click[") : -1].lower() for action in clicks]


def known(env: "WebShop") -> "tuple[Shop, Goal, PageState]":
    """The shop, the goal and the page of an episode, which only a store in this process tells.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    shop, session = env.store.shop, env.session
    assert isinstance(session, LocalSession)
    return shop, shop.goal(session.goal), session.episode.state


def best_shop_action(env: "WebShop", actions_left: int) -> str:
    """Searches so that the goal's product is found, opens it if it has options to choose, buys.

    `actions_left` does not matter: the way is always as short as the search allows.

    Raises:
        HiddenGoalError: If the store is not in this process.
    """
    from webshop_server.store.winnable import own_options

    shop, goal, state = known(env)
    wanted = own_options(shop.catalog.product(goal.asin), goal)
    if state.asin == goal.asin and state.kind == "item":
        chosen = dict(state.options)
        missing = (value for name, value in wanted.items() if chosen.get(name) != value)
        return f"click[{next(missing, 'buy now')}]"
    if state.asin == goal.asin and state.kind == "sub_page":
        return "click[< prev]"
    if state.kind == "results" and goal.asin in shop.store.results(state):
        return way_to(env, shop, state, goal.asin, "click" if env.parity or wanted else "buy")
    # The one of a few queries that ranks the goal's product highest.
    queries = (goal.name, f"{goal.name} {goal.instruction}", goal.instruction, goal.query)
    return search_for(min(queries, key=lambda query: _rank_shown(shop, query, goal.asin)))


def way_to(env: "WebShop", shop: "Shop", state: "PageState", asin: str, verb: str = "click") -> str:
    """Opens (or buys) one of the results, or turns to the page on which it is.

    A page names a product by its number in the mode `short`, else by its identifier.
    """
    at = shop.store.results(state).index(asin)
    if asin in shop.store.shown(state):
        return f"{verb}[{at + 1 if env.observation_mode == 'short' else asin.lower()}]"
    return "click[next >]" if at >= (state.page - 1) * PAGE_SIZE else "click[< prev]"


def _rank_shown(shop: "Shop", query: str, asin: str) -> int:
    """Rank of a product in the results that a search shows, from 0; a large number if it is not among them."""
    from webshop_server.store.state import START

    state, _ = shop.store.act(START, search_for(query), parity=True)
    results = shop.store.results(state)
    return results.index(asin) if asin in results else SEARCH_DEPTH


def _rank(shop: "Shop", query: str, asin: str) -> int:
    """The same among the first `SEARCH_DEPTH`, also beyond those that are shown."""
    hits = shop.store.index.search(query.lower().split(), limit=SEARCH_DEPTH)
    return hits.index(asin) if asin in hits else SEARCH_DEPTH


def scripted_toy_action(env: "ToyShop") -> str:
    """Searches for the instruction and buys the first result."""
    return f"buy:{env.hits[0].asin}" if env.hits else f"search:{env.session.instruction}"


def query_of(request: str) -> list[str]:
    """The words of a request that a customer types, in its order; those of the price and of fillers are left out.

    >>> query_of("I need usda organic granolas with flavor: apple cinnamon, and price lower than 70.00 dollars")
    ['usda', 'organic', 'granolas', 'apple', 'cinnamon']
    >>> query_of("for athletes, find me pastas with natural flavors with size: 12 ounce")
    ['athletes', 'pastas', 'natural', 'flavors', '12', 'ounce']
    """
    words = _OPTION.sub(" ", PRICE_BOUND.sub("", request)).split()
    return [word for word in (word.strip(".,;:!?") for word in words) if word and word.lower() not in _EMPTY]


def careless_shop_action(env: "WebShop", actions_left: int, rng: np.random.Generator, noise: float) -> str:
    """The customer's next action of the `actions_left`, this one included; `noise` is how often a mistake is drawn.

    On every page it is drawn whether a mistake is made, and the page decides which one. The first search lacks a random
    word, and one after failures lacks a random word instead of the one that is best left out. A product on whose page
    nothing is chosen is left again, while enough actions remain. On any other product's page the options that are still
    missing are forgotten. So the second of two options is forgotten far more often than the first, and an only one
    hardly ever. Elsewhere, such as on results, the draw changes nothing.

    At ``noise=0.05``, in 9 actions for each of the first 2000 goals of `train_by_product`, a word was left out of the
    first search in 5.4 %, a product that would do was left in 4.4 %, and an option was forgotten in 3.8 %: in 3 of 639
    requests with one option, and in 72 of 1064 with more. What is wanted was bought in 79 % (83 % at ``noise=0``; what
    is missing there are attributes, which it does not compare).

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    shop, goal, state = known(env)
    errs = rng.random() < noise  # drawn on every page, so that the same draws follow whatever the page is
    if state.kind == "sub_page":
        return "click[< prev]"
    if state.kind == "item":
        return _from_item(shop, goal, state, actions_left, errs)
    if state.kind == "results" and (asin := _next_to_open(shop, goal, state, actions_left)):
        return way_to(env, shop, state, asin)
    return _search(env, shop, goal, state, rng, errs)


def _looks_right(shop: "Shop", asin: str, goal: "Goal") -> bool:
    """Whether a product is of the kind that is asked for, at the price among the results, of a range its lower end."""
    parts = shop.buy(goal, shop.catalog.product(asin), {}, "fixed")
    return parts.r_type == 1 and parts.r_price


def will_do(shop: "Shop", asin: str, goal: "Goal") -> bool:
    """Whether a product that looks right has the price and options that are asked for."""
    if not _looks_right(shop, asin, goal):
        return False
    parts = shop.buy(goal, shop.catalog.product(asin), _choices_for(shop, asin, goal), "fixed")
    return parts.r_price and all(parts.options_met)


def _choices_for(shop: "Shop", asin: str, goal: "Goal") -> Mapping[str, str]:
    """The values of a product's options that come closest to those that are asked for, by name."""
    from webshop_server.store.winnable import closest_options

    return closest_options(shop.catalog.product(asin), goal)


def _needed(wanted: Mapping[str, str]) -> int:
    """Actions from the results to the purchase: opening, options, buying."""
    return 2 + len(wanted)


def _can_buy_another(shop: "Shop", goal: "Goal", actions_left: int) -> bool:
    """Whether another search can still end in the purchase of the goal's product."""
    from webshop_server.store.winnable import own_options

    return actions_left > _needed(own_options(shop.catalog.product(goal.asin), goal))


def _from_item(shop: "Shop", goal: "Goal", state: "PageState", actions_left: int, errs: bool) -> str:
    """Chooses what is asked for and buys; leaves a product that will not do, while another one can still be bought."""
    wanted = _choices_for(shop, state.asin, goal)
    chosen = dict(state.options)
    missing = [value for name, value in wanted.items() if chosen.get(name) != value]
    can_leave = _can_buy_another(shop, goal, actions_left)
    if can_leave and not chosen and (errs or not will_do(shop, state.asin, goal)):
        return "click[< prev]"
    return "click[buy now]" if errs or not missing or actions_left == 1 else f"click[{missing[0]}]"


def _next_to_open(shop: "Shop", goal: "Goal", state: "PageState", actions_left: int) -> str | None:
    """The product to open: the first new one that looks right, or the first one that will do if no look can be spared.

    None if nothing that was found will do, and another search can still end in a purchase.
    """
    hits, shown = list(shop.store.results(state)), list(shop.store.shown(state))
    new = [asin for asin in hits if asin not in state.seen]

    def turns(asin: str) -> int:
        return abs(hits.index(asin) // PAGE_SIZE + 1 - state.page)

    in_reach = (
        (asin, spare)
        for asin in dict.fromkeys((*new, *hits))
        if will_do(shop, asin, goal)
        and (spare := actions_left - _needed(_choices_for(shop, asin, goal)) - turns(asin)) >= 0
    )
    target, spare = next(in_reach, (None, 0))
    first = next((asin for asin in new if asin in shown and _looks_right(shop, asin, goal)), None)
    if target is None:
        return None if _can_buy_another(shop, goal, actions_left) else first or next(iter(shown), None)
    return first if first and spare >= _A_LOOK else target


def _search(
    env: "WebShop", shop: "Shop", goal: "Goal", state: "PageState", rng: np.random.Generator, errs: bool
) -> str:
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
    best = fewer[0] if errs else min(fewer, key=lambda kept: _rank(shop, " ".join(kept), goal.asin))
    return search_for(" ".join(best))


def _without_one(words: Sequence[str], rng: np.random.Generator) -> list[list[str]]:
    """The words without one of them, for each of them, in random order; a single word stays."""
    if len(words) < 2:
        return [list(words)]
    return [[*words[:place], *words[place + 1 :]] for place in rng.permutation(len(words))]
