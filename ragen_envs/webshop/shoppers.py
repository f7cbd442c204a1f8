"""Who shops: a random shopper, the rule that published numbers are compared with, an oracle, a careless customer.

The last two know the goal, so they need the store in this process.
"""

import itertools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ragen_envs.wording import phrases

if TYPE_CHECKING:
    from ragen_envs.webshop.env import LocalSession, WebShop
    from webshop_server.goals.goals import Goal
    from webshop_server.store.shop import Shop
    from webshop_server.store.state import PageState

TEXTS: Any = phrases(__file__, "words")
WORDS = {name: frozenset(words.split()) for name, words in TEXTS["words"].items()}
MAX_ACTION_LENGTH = 1000
"""Longer texts are invalid actions. The store's own limit for a search is not lower."""
BUTTONS = frozenset(
    {"back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now", "search"}
)
OPTION_NAME = r"\b(?:with|and) ((?:(?!\b(?:with|and)\b)[^,:]){1,30}): "
"""Of requests: the name of an option, before its value; "with sea salt with size: 1 pound" names "size"."""
PRICE_BOUND = re.compile(r",? *(?:and )?price lower than [\d.,]+ dollars")
"""Of requests: the highest price, with the words before it."""
SEPARATOR = " [SEP] "  # of the texts of a page
_PAGE_SIZE = 10
_ENDS = 2  # actions: opening a product and buying it, or going back
_DEPTH = 500  # results that the customer's search is ranked among
_HIT = re.compile(r"(\d+)\. (.*) \| ((?:from )?\$[^|]*)")
_UNSEARCHABLE = re.compile(r"[\[\]\x00-\x1f\x7f\ud800-\udfff]")
_UNCLICKABLE = re.compile(r"[\[\x00-\x1f\x7f]")


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
    """A product on a page of results."""

    label: str  # what is clicked to open it, in lower case
    asin: str  # the same as the page has it: its identifier, or its number in the mode `short`
    title: str  # which may be cut
    price: str  # such as "$12.00", "$12.00 to $15.50" or "from $12.00"


def clickables(env: "WebShop") -> tuple[str, ...]:
    """The labels that can be clicked."""
    return env.session.answer.available_actions.clickables


def products(env: "WebShop") -> list[ShownProduct]:
    """The products of a page of results, in its order; none on other pages."""
    labels, page = set(clickables(env)) - BUTTONS, env.session.answer.observation
    if env.observation_mode == "short":
        found = (_HIT.fullmatch(line) for line in page.split("\n"))
        return [ShownProduct(one[1], *one.groups()) for one in found if one and one[1] in labels]
    texts = page.split(SEPARATOR)
    triples = (one for one in zip(texts, texts[1:], texts[2:], strict=False) if one[2].startswith("$"))
    return [ShownProduct(one[0].lower(), *one) for one in triples if one[0].lower() in labels]


def options_of_page(env: "WebShop") -> tuple[dict[str, str], list[str]]:
    """Of a product's page: the values on offer, each with the name of its option, and the values that are chosen now.

    The latter in the page's order where it shows them, in the mode `short`. For errors see `known`.
    """
    shop, _, state = known(env)
    offered = set(clickables(env)) - BUTTONS
    options, chosen = shop.catalog.product(state.asin).options, dict(state.options)
    names = options if env.observation_mode == "short" else chosen
    groups = {value: name for name, values in options.items() for value in values if value in offered}
    return groups, [chosen[name] for name in names if name in chosen]


def _labels(env: "WebShop") -> list[str]:
    """The labels that can be clicked; not "search", nor one that is empty or that no action can have in it."""
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
    return " ".join(words[number] for number in rng.integers(len(words), size=rng.integers(1, 5)))


def scripted_shop_action(env: "WebShop") -> str:
    """Searches for the instruction, opens the first hit, chooses every option that the instruction names, buys.

    On a page to which the rule does not lead, it returns an action that leads back.
    """
    session, labels = env.session, _labels(env)
    offered = [label for label in labels if label not in BUTTONS]
    if "buy now" in labels:
        task = session.instruction.lower()
        wanted = [value for value in offered if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", task)]
        # What was clicked since the last search, also the product.
        clicks = itertools.takewhile(lambda action: action.startswith("click["), reversed(session.played))
        chosen = [action[len("click[") : -1].lower() for action in clicks]
        if env.observation_mode == "short":  # which shows what is chosen: of an option the value that was clicked last
            groups, chosen = options_of_page(env)
            wanted = list({groups[value]: value for value in wanted}.values())
        done = {value.strip() for value in chosen}  # actions have no blanks around what is clicked
        return next((f"click[{value}]" for value in wanted if value.strip() not in done), "click[buy now]")
    if "back to search" in labels and "< prev" in labels and not offered:
        return "click[< prev]"  # a sub page, or past the last result
    if session.answer.available_actions.has_search_bar or not offered:
        return search_for(session.instruction)
    return f"click[{offered[0]}]"


def known(env: "WebShop") -> "tuple[Shop, Goal, PageState]":
    """The shop, the goal and the page of an episode; a `HiddenGoalError` if the store is not in this process."""
    shop, session = env.store.shop, cast("LocalSession", env.session)
    return shop, shop.goal(session.goal), session.episode.state


def best_shop_action(env: "WebShop", actions_left: int) -> str:
    """Searches for the goal's product, opens it if options are to be chosen, buys. For errors see `known`."""
    from webshop_server.store.state import START
    from webshop_server.store.winnable import own_options

    shop, goal, state = known(env)

    def rank(query: str) -> int:
        results = shop.store.results(shop.store.act(START, search_for(query), parity=True)[0])
        return results.index(goal.asin) if goal.asin in results else _DEPTH

    wanted = own_options(shop.catalog.product(goal.asin), goal)
    if state.asin == goal.asin and state.kind == "item":
        chosen = dict(state.options)
        missing = (value for name, value in wanted.items() if chosen.get(name) != value)
        return f"click[{next(missing, 'buy now')}]"
    if state.asin == goal.asin and state.kind == "sub_page":
        return "click[< prev]"
    if state.kind == "results" and goal.asin in shop.store.results(state):
        return way_to(env, goal.asin, "click" if env.parity or wanted else "buy")
    # The one of a few queries that ranks the goal's product highest.
    return search_for(min((goal.name, f"{goal.name} {goal.instruction}", goal.instruction, goal.query), key=rank))


def way_to(env: "WebShop", asin: str, verb: str = "click") -> str:
    """Opens (or buys) one of the results, or turns to the page on which it is."""
    shop, _, state = known(env)
    at = shop.store.results(state).index(asin)
    if asin in shop.store.shown(state):
        return f"{verb}[{at + 1 if env.observation_mode == 'short' else asin.lower()}]"
    return "click[next >]" if at // _PAGE_SIZE >= state.page - 1 else "click[< prev]"


def query_of(request: str) -> list[str]:
    """The words of a request that a customer types, in its order; those of the price and of fillers are left out.

    >>> query_of("I need usda organic granolas with flavor: apple cinnamon, and price lower than 70.00 dollars")
    ['usda', 'organic', 'granolas', 'apple', 'cinnamon']
    """
    words = re.sub(OPTION_NAME, " ", PRICE_BOUND.sub("", request)).split()
    return [word for word in (word.strip(".,;:!?") for word in words) if word and word.lower() not in WORDS["empty"]]


def careless_shop_action(env: "WebShop", actions_left: int, rng: np.random.Generator, noise: float) -> str:
    """The customer's next action of the `actions_left`, this one included; `noise` is how often a mistake is drawn.

    On every page it is drawn whether a mistake is made, and the page decides which one: a search lacks a random word, a
    product on whose page nothing is chosen is left again while enough actions remain, and on any other product's page
    the options that are still missing are forgotten. Elsewhere the draw changes nothing.

    At ``noise=0.05``, in 9 actions for each of the first 2000 goals of `train_by_product`, a word was left out of the
    first search in 5.4 %, a product that would do was left in 4.4 %, and an option was forgotten in 3.8 % (72 of 1064
    requests with several, 3 of 639 with one). What is wanted was bought in 79 % (83 % at ``noise=0``; what is missing
    there are attributes, which it does not compare). For errors see `known`.
    """
    from webshop_server.store.winnable import closest_options, own_options

    shop, goal, state = known(env)
    errs = rng.random() < noise  # drawn on every page, so that the same draws follow whatever the page is
    # Whether another search can still end in the purchase of the goal's product.
    can_search = actions_left > _ENDS + len(own_options(shop.catalog.product(goal.asin), goal))
    if state.kind == "sub_page":
        return "click[< prev]"
    if state.kind == "item":
        chosen = dict(state.options)
        wanted = closest_options(shop.catalog.product(state.asin), goal)
        missing = [value for name, value in wanted.items() if chosen.get(name) != value]
        if can_search and not chosen and (errs or appeal(shop, state.asin, goal) < 2):
            return "click[< prev]"
        return "click[buy now]" if errs or not missing or actions_left == 1 else f"click[{missing[0]}]"
    if state.kind == "results" and (asin := _next_to_open(env, actions_left, can_search)):
        return way_to(env, asin)
    return _search(env, rng, errs)


def appeal(shop: "Shop", asin: str, goal: "Goal") -> int:
    """1 for a product of the kind that is asked for, at the price among the results; 2 if its options will do; else 0.

    Among the results, a range of prices counts by its lower end.
    """
    from webshop_server.store.winnable import closest_options

    product = shop.catalog.product(asin)
    seen = shop.buy(goal, product, {}, "fixed")
    if seen.r_type < 1 or not seen.r_price:
        return 0
    parts = shop.buy(goal, product, closest_options(product, goal), "fixed")
    return 2 if parts.r_price and all(parts.options_met) else 1


def _next_to_open(env: "WebShop", actions_left: int, can_search: bool) -> str | None:
    """The product to open: the first new one that looks right, or the first one that will do if no look can be spared.

    None if nothing that was found will do, and another search can still end in a purchase.
    """
    from webshop_server.store.winnable import closest_options

    shop, goal, state = known(env)
    hits, shown = list(shop.store.results(state)), list(shop.store.shown(state))
    new = [asin for asin in hits if asin not in state.seen]

    def spare(asin: str) -> int:
        """Actions that are left over if this one is bought."""
        turns = abs(hits.index(asin) // _PAGE_SIZE + 1 - state.page)
        return actions_left - _ENDS - len(closest_options(shop.catalog.product(asin), goal)) - turns

    able = (asin for asin in dict.fromkeys((*new, *hits)) if appeal(shop, asin, goal) == 2 and spare(asin) >= 0)
    target = next(able, None)
    first = next((asin for asin in new if asin in shown and appeal(shop, asin, goal)), None)
    if target is None:
        return None if can_search else first or next(iter(shown), None)
    return first if first and spare(target) >= _ENDS else target


def _search(env: "WebShop", rng: np.random.Generator, errs: bool) -> str:
    """The words of the request; after a search that found nothing the whole request, once; then fewer words.

    One more word is left out after each failure: that without which the goal's product ranks best, or by mistake any
    one. Where none is left to leave out, the shopper begins again with all.
    """
    shop, goal, state = known(env)

    def rank(words: Iterable[str]) -> int:
        hits = shop.store.index.search(" ".join(words).lower().split(), limit=_DEPTH)
        return hits.index(goal.asin) if goal.asin in hits else _DEPTH

    whole, words = search_for(env.session.instruction), query_of(env.session.instruction)
    if state.keywords:
        if whole.lower() not in map(str.lower, env.session.played):
            return whole
        if search_for(" ".join(state.keywords)) != whole.lower():
            tried = [word for word in words if word.lower() in state.keywords]
            words = tried if len(tried) > 1 else words
    places = rng.permutation(len(words)) if len(words) > 1 else ()
    fewer = [[*words[:place], *words[place + 1 :]] for place in places] or [words]
    if errs:
        words = fewer[0]
    elif state.keywords:
        words = min(fewer, key=rank)
    return search_for(" ".join(words))
