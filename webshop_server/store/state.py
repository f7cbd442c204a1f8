"""The store as a state machine: which page a shopper sees, and what an action does to it.

It is pure: the same `PageState` and action give the same result in any process. In parity mode transitions are the
original's, oddities included. Beyond parity, "next >" is offered only where there is a next page, "search" is no
button, `filter[…]` narrows a results page, and `buy[id]` buys a product that the page shows.
"""

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Literal

from webshop_server.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import price_with
from webshop_server.search.index import SearchIndex, is_special

RESULTS_LIMIT = 50
PAGE_SIZE = 10
SEARCH, BUY, BACK, NEXT, PREVIOUS = "search", "buy now", "back to search", "next >", "< prev"
SUB_PAGES = ("Description", "Features", "Reviews")
MAX_QUERY = 1000  # characters of a search
BUY_NOW = "now"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # no search has one
_REMEMBERED_SEARCHES = 1024
SEARCH_DEPTH = 500  # hits of a search, or of a list such as `<c> fashion`, that filters look at; of `<r>`, the sample
MAX_FILTERS = 8
MAX_FILTER = 100  # characters
_FILTER = re.compile(r"([^<>=]+)(<=|>=|<|>|=)([^<>=].*)", re.DOTALL)
_DOLLARS = re.compile(r"\$?(\d{1,7}(?:\.\d{1,2})?)", re.ASCII)
_WORD = re.compile(r"\w+")
_COLOURS = ("color", "colour")  # one filter, whichever of the two an option is called
_COMPARES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}

PageKind = Literal["start", "results", "item", "sub_page", "done"]
EventKind = Literal["invalid", "searched", "filtered", "turned", "opened", "chose", "read", "returned", "bought"]
"""What an action did; "invalid" if it was not understood or not possible here."""


@dataclass(frozen=True)
class Filter:
    """One condition on a product."""

    name: str  # "price", "category" or the name of an option, in lower case
    comparison: str  # one of `_COMPARES`; "=" unless the name is "price"
    value: str  # dollars without a sign ("49.5"), or text in lower case

    @property
    def slot(self) -> tuple[str, str]:
        """Filters with the same slot replace each other: there is one lower bound, one upper bound and one colour."""
        return self.name, self.comparison[0]

    def __str__(self) -> str:
        """As it is written in an action.

        >>> str(parse_filter("Price < $50"))
        'price<50'
        """
        return f"{self.name}{self.comparison}{self.value}"

    def accepts(self, product: Product) -> bool:
        """Whether `product` passes.

        Prices are those that a purchase may cost: where options have prices of their own, "<" looks for the cheapest
        and ">" for the dearest. The words of any other filter must all occur in one value of the option of that name
        or, where a product has no such option, in its title: much is sold in one colour only.
        """
        if self.name == "price":
            prices = (*product.option_prices.values(), price_with(product, ()))
            return any(_COMPARES[self.comparison](price, float(self.value)) for price in prices)
        if self.name == "category":  # a department, or a part of a path
            path = map(str.strip, product.product_category.lower().split("›"))
            return self.value in (product.category.lower(), *path)
        wanted = set(_WORD.findall(self.value))
        names = _COLOURS if self.name in _COLOURS else (self.name,)
        texts = [value for name in names for value in product.options.get(name, ())] or [product.title.lower()]
        return any(wanted <= set(_WORD.findall(text)) for text in texts)


def parse_filter(text: str) -> Filter | None:
    """Reads what is in the brackets of `filter[…]`, whatever its case.

    What is not one gives None: no comparison, a price that is no number, "<" on something else.
    """
    match = _FILTER.fullmatch(text.lower()) if len(text) <= MAX_FILTER else None
    if match is None:
        return None
    name, comparison, value = match[1].strip(), match[2], match[3].strip()
    name = _COLOURS[0] if name in _COLOURS else name
    if name != "price":
        return Filter(name, "=", value) if name and comparison == "=" and _WORD.search(value) else None
    dollars = _DOLLARS.fullmatch(value)
    if dollars is None:
        return None
    return Filter(name, comparison, f"{float(dollars[1]):.2f}".rstrip("0").rstrip("."))


def with_filter(filters: tuple[Filter, ...], added: Filter) -> tuple[Filter, ...]:
    """Adds a filter in place of the one in the same slot; the last `MAX_FILTERS` are kept."""
    return (*(old for old in filters if old.slot != added.slot), added)[-MAX_FILTERS:]


@dataclass(frozen=True)
class PageState:
    """What is on the screen."""

    kind: PageKind = "start"  # which page
    keywords: tuple[str, ...] = ()  # last search, one word each; empty on the start page
    page: int = 0  # number of the results page, from 1; 0 before a search
    asin: str = ""  # product shown or bought, or ""
    options: tuple[tuple[str, str], ...] = ()  # chosen values by option name, in the order they were first chosen
    sub_page: str = ""  # one of `SUB_PAGES`, or ""
    seen: tuple[str, ...] = ()  # products opened since the last start page, in the order of opening
    filters: tuple[Filter, ...] = ()  # filters on the results


START = PageState()
INVALID: EventKind = "invalid"


def meant(argument: str, labels: Sequence[str]) -> str:
    """The label that a click means whose blanks were taken off: the same one, else the first that is alike without."""
    if argument in labels:
        return argument
    return next((label for label in labels if label.strip() == argument), argument)


def parse_action(action: str) -> tuple[str, str]:
    r"""Splits `name[argument]` as the original's expression `(.+)\[(.+)\]` does, in linear time.

    The name goes up to the last "[" that leaves an argument, the argument to the last "]"; text after it and further
    lines are ignored. An action of another form gives ("", "").

    >>> parse_action("click[size [cm]] now")
    ('click[size ', 'cm]')
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    return ("", "") if start < 0 else (line[:start], line[start + 1 : end])


def read_action(action: str, *, parity: bool = False) -> tuple[str, str]:
    """What an action says: name and argument, or ("", "").

    In parity the name must be in lower case, and blanks around the argument belong to it, as in the original.

    >>> read_action(" Click[ Next > ]")
    ('click', 'next >')
    """
    name, argument = parse_action(action)
    return (name, argument.lower()) if parity else (name.strip().lower(), argument.strip().lower())


class Store:
    """The pages over one catalogue and its index."""

    def __init__(self, catalog: Catalog, index: SearchIndex) -> None:
        """Keeps the two; builds nothing."""
        self.catalog, self.index = catalog, index
        self._remembered = lru_cache(maxsize=_REMEMBERED_SEARCHES)(self._found)

    def results(self, state: PageState) -> Sequence[str]:
        """Identifiers of all results of the state's search, best first, filtered."""
        if not state.keywords:
            return ()
        return self._remembered(state.keywords, state.filters)

    def _found(self, keywords: tuple[str, ...], filters: tuple[Filter, ...]) -> Sequence[str]:
        if not filters:
            found = self.index.search(keywords, limit=RESULTS_LIMIT)
            return found if is_special(keywords) else tuple(found)  # a list of a category reads what is looked at
        # A list is whole whatever the limit; the sample of `<r>` depends on it, and must be the one that was shown.
        deep = self.index.search(keywords, limit=RESULTS_LIMIT if is_special(keywords) else SEARCH_DEPTH)
        products = ((asin, self.catalog.product(asin)) for asin in islice(deep, SEARCH_DEPTH))
        passed = (asin for asin, product in products if all(one.accepts(product) for one in filters))
        return tuple(islice(passed, RESULTS_LIMIT))

    def shown(self, state: PageState) -> Sequence[str]:
        """Identifiers of the products on a results page."""
        first = (state.page - 1) * PAGE_SIZE
        return self.results(state)[first : first + PAGE_SIZE]

    def has_next(self, state: PageState) -> bool:
        """Whether there are more results after those of a results page."""
        return len(self.results(state)) > state.page * PAGE_SIZE

    def clickables(self, state: PageState, *, parity: bool = False) -> list[str]:
        """What can be clicked, in lower case, in the order of the page; in parity mode also what only seems so."""
        if state.kind == "start":
            return [SEARCH] if parity else []
        if state.kind == "done":
            return []
        if state.kind == "sub_page":
            return [BACK, PREVIOUS]
        if state.kind == "results":
            turns = [PREVIOUS] * (state.page > 1) + [NEXT] * (parity or self.has_next(state))
            return list(dict.fromkeys([BACK, *turns, *(asin.lower() for asin in self.shown(state))]))
        buttons = [BACK, PREVIOUS, *(name.lower() for name in SUB_PAGES), BUY]
        return list(dict.fromkeys([*buttons, *self._values(state)]))

    def _values(self, state: PageState) -> Mapping[str, str]:
        """Option name by value, in the order of the page. Of two names with one value the last counts, as there."""
        options = self.catalog.product(state.asin).options
        return {value: name for name, values in options.items() for value in values}

    def act(self, state: PageState, action: str, *, parity: bool = False) -> tuple[PageState, EventKind]:
        """Carries out an action: the next state, the same one if it is invalid, and what happened.

        An action is `search[words]` or `click[button, link or option]`; beyond parity also `filter[condition]` and
        `buy[id]`, in any case, with or without surrounding blanks.
        """
        name, argument = read_action(action, parity=parity)
        if state.kind == "done":
            return state, INVALID
        if name == "search" and argument and len(argument) <= MAX_QUERY and not CONTROL.search(argument):
            found = PageState("results", tuple(argument.split(" ")), 1, seen=state.seen)
            return found, "searched"
        if name == "filter" and state.kind == "results" and not parity:
            added = parse_filter(argument)
            if added is None and argument != "all":
                return state, INVALID
            filters = () if added is None else with_filter(state.filters, added)
            return replace(state, page=1, filters=filters), "filtered"
        if name == "buy" and not parity:
            on_its_page = state.kind in ("item", "sub_page")
            if argument in self.buyable(state) or (on_its_page and argument == BUY_NOW):
                opened = state if on_its_page else self._click(state, argument)[0]  # from the results without options
                return self._click(opened, BUY)
        if name == "click" and argument != SEARCH:
            labels = self.clickables(state, parity=parity)
            argument = argument if parity else meant(argument, labels)
            if argument in labels:
                return self._click(state, argument)
        return state, INVALID

    def buyable(self, state: PageState) -> list[str]:
        """Identifiers of the products that `buy[id]` can buy here, in lower case: those on the page."""
        shown = self.shown(state) if state.kind == "results" else (state.asin,) if state.kind != "done" else ()
        return [asin.lower() for asin in shown if asin]

    def _click(self, state: PageState, target: str) -> tuple[PageState, EventKind]:
        """Follows what is in `clickables`. The order of the tests decides where names collide, as in the original."""
        if target == BUY:
            return replace(state, kind="done", sub_page=""), "bought"
        if target == BACK:
            return START, "returned"
        if state.kind == "results":
            if target in (NEXT, PREVIOUS):
                return replace(state, page=state.page + (1 if target == NEXT else -1)), "turned"
            asin = next(asin for asin in self.shown(state) if asin.lower() == target)
            seen = state.seen if asin in state.seen else (*state.seen, asin)
            return replace(state, kind="item", asin=asin, options=(), seen=seen), "opened"
        if target == PREVIOUS and state.kind == "sub_page":
            return replace(state, kind="item", sub_page=""), "returned"
        if target == PREVIOUS:
            return replace(state, kind="results", asin="", options=()), "returned"
        for sub_page in SUB_PAGES:
            if target == sub_page.lower():
                return replace(state, kind="sub_page", sub_page=sub_page), "read"
        options = dict(state.options)
        options[self._values(state)[target]] = target
        return replace(state, options=tuple(options.items())), "chose"
