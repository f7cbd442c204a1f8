"""Who shops: a random shopper, the scripted rule, an oracle, and a careless customer for demonstrations.

The rule is the one that published numbers are compared with: search for the instruction, open the first hit, choose
every option that the instruction names, buy. The oracle and the customer know the goal, so they need the store in this
process. The first part of the file is what everybody reads on a page, in the modes `text` and `short`.
"""

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

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
SEARCH_DEPTH = 500  # results that the customer's search is ranked among
_A_LOOK = 2  # actions: opening a product, and going back
_SEPARATOR = " [SEP] "
_HIT = re.compile(r"(\d+)\. (.*) \| ((?:from )?\$[^|]*)")
_CHOSEN = re.compile(r".*?: .* \(chosen: (.*)\)")
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
        name: The label as the page has it.
        title: Its title, which may be cut.
        price: Its price, such as "$12.00", "$12.00 to $15.50" or "from $12.00".
    """

    label: str
    name: str
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
    texts = page.split(_SEPARATOR)
    triples = zip(texts, texts[1:], texts[2:], strict=False)
    return [
        ShownProduct(name.lower(), name, title, price)
        for name, title, price in triples
        if name.lower() in labels and price.startswith("$")
    ]


def can_read_options(env: "WebShop") -> bool:
    """Whether pages of this mode are read here."""
    return env.observation_mode in ("text", "short")


def option_groups(env: "WebShop") -> dict[str, str]:
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


def chosen_values(env: "WebShop") -> list[str]:
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


def _labels(env: "WebShop") -> list[str]:
    """The labels that can be clicked.

    "search" is listed but cannot be. Nor can a label with "[", which would end the action, one with a control
    character, which is not sent, or an empty one.
    """
    offered = env.session.answer.available_actions.clickables
    return [label for label in offered if label != "search" and label.strip() and not _UNCLICKABLE.search(label)]


def random_shop_action(env: "WebShop", rng: np.random.Generator) -> str:
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


def scripted_shop_action(env: "WebShop") -> str:
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


def known(env: "WebShop") -> "tuple[Shop, Goal, PageState]":
    """The shop, the goal and the page of an episode, which only a store in this process tells.

    Raises:
        HiddenGoalError: If the store is elsewhere.
    """
    shop, session = env.store.shop, env.session
    return shop, shop.goal(session.goal), session.episode.state


def goal_difficulty(env: "WebShop") -> int:
    """Attributes and options that the goal asks for, and 1 for a highest price; errors are those of `known`."""
    from webshop_server.goals.goals import NO_PRICE_BOUND

    _, goal, _ = known(env)
    return len(goal.attributes) + len(goal.options) + (goal.price_upper < NO_PRICE_BOUND)


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

    Args:
        env: The environment.
        shop: Its shop.
        state: The page of results.
        asin: A product among all the results of the search.
        verb: "click" or "buy".
    """
    at = list(shop.store.results(state)).index(asin)
    if asin in shop.store.shown(state):
        return f"{verb}[{at + 1 if env.observation_mode == 'short' else asin.lower()}]"
    return "click[next >]" if at >= (state.page - 1) * PAGE_SIZE else "click[< prev]"


def _rank_shown(shop: "Shop", query: str, asin: str) -> int:
    """Rank of a product in the results of a search, from 0; a very large number if it is not found."""
    from webshop_server.store.state import START

    state, _ = shop.store.act(START, search_for(query), parity=True)
    results = list(shop.store.results(state))
    return results.index(asin) if asin in results else sys.maxsize


def _rank(shop: "Shop", query: str, asin: str) -> int:
    """The same among the first `SEARCH_DEPTH`, also beyond those that are shown."""
    hits = list(shop.store.index.search(query.lower().split(), limit=SEARCH_DEPTH))
    return hits.index(asin) if asin in hits else SEARCH_DEPTH


def random_toy_action(env: "ToyShop", rng: np.random.Generator) -> str:
    """Uniform over a search for random words of the instruction, and clicking or buying each result."""
    hits = env.hits
    choice = int(rng.integers(1 + 2 * len(hits)))
    if choice == 0:
        return f"search:{_random_words(env.session.instruction, rng)}"
    verb = "click" if choice <= len(hits) else "buy"
    return f"{verb}:{hits[(choice - 1) % len(hits)].asin}"


def scripted_toy_action(env: "ToyShop") -> str:
    """Searches for the instruction and buys the first result."""
    return f"buy:{env.hits[0].asin}" if env.hits else f"search:{env.session.instruction}"


def best_toy_action(env: "ToyShop", actions_left: int) -> str:
    """Searches for size, color and kind of the wanted product, which only this product has, and buys it.

    `actions_left` does not matter: there is no shorter way.

    Raises:
        HiddenGoalError: If the store is not in this process.
    """
    _, goal, _ = known(env)
    if any(hit.asin == goal.asin for hit in env.hits):
        return f"buy:{goal.asin}"
    return f"search:{' '.join(_looks(goal.name))}"


def careless_toy_action(env: "ToyShop", rng: np.random.Generator, noise: float, tasks: int) -> str:
    """Searches like the oracle, but with some wrong words, and buys the first result, even if it is wrong.

    This is for demonstrations. Each word of a search is noisy by itself, so that a model sees what a search consists
    of. From searches that are random as a whole, it would learn to ignore the request.

    Args:
        env: The environment; its store is in this process.
        rng: Source of the mistakes.
        noise: Probability, separately for size, color and kind, that it is that of a random product.
        tasks: Number of all goals.

    Raises:
        HiddenGoalError: If the store is not in this process.
    """
    if env.hits:
        return f"buy:{env.hits[0].asin}"
    shop, goal, _ = known(env)
    right = _looks(goal.name)
    mistaken = zip(*(_looks(shop.goal(int(goal)).name) for goal in rng.integers(tasks, size=len(right))), strict=True)
    words = [
        drawn[slot] if rng.random() < noise else word
        for slot, (word, drawn) in enumerate(zip(right, mistaken, strict=True))
    ]
    return f"search:{' '.join(words)}"


def _looks(title: str) -> tuple[str, str, str]:
    """Size, color and kind in the title of a toy product; the material is before the kind."""
    size, color, _, kind = title.lower().split(maxsplit=3)
    return size, color, kind


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
    """Whether a product is of the kind that is asked for, at the price among the results.

    Of a range that is the lower end. An option may cost less, which is not seen before the product is opened.
    """
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
    in_reach = (
        (asin, spare)
        for asin in dict.fromkeys((*new, *hits))
        if will_do(shop, asin, goal)
        and (spare := actions_left - _needed(_choices_for(shop, asin, goal)) - _turns(hits, asin, state)) >= 0
    )
    target, spare = next(in_reach, (None, 0))
    first = next((asin for asin in new if asin in shown and _looks_right(shop, asin, goal)), None)
    if target is None:
        return None if _can_buy_another(shop, goal, actions_left) else first or next(iter(shown), None)
    return first if first and spare >= _A_LOOK else target


def _turns(hits: Sequence[str], asin: str, state: "PageState") -> int:
    """How many pages of results a product is away."""
    return abs(hits.index(asin) // PAGE_SIZE + 1 - state.page)


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
