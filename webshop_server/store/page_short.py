"""Pages of few tokens, for small models and long episodes: the observation mode `short`, which the original lacks.

Hits are numbered, long titles are cut, and a range of prices shows its lower end; a product's own page has both whole.
Buttons are not written, and only the start page says the task. `click[2]` and `buy[2]` mean the product numbered 2:

    Page 1 of 5, 50 results
    1. Soft cotton towel, blue | $12.00
    2. Linen towel | from $19.50
"""

from collections.abc import Iterator

from webshop_server.catalog.pricing import dollars
from webshop_server.catalog.product import Product
from webshop_server.store.page_text import PageText, chosen_price, filters_line, sub_page_texts
from webshop_server.store.state import PAGE_SIZE, PageState, Store, read_action

LONGEST_TITLE = 80  # characters, on a page of results
_CUT = "…"


def short_page(store: Store, state: PageState, page: PageText) -> str:
    """What an agent sees."""
    return "\n".join(_lines(store, state, page))


def _lines(store: Store, state: PageState, page: PageText) -> Iterator[str]:
    if state.kind == "start":
        yield from (f"Wanted: {_line(page.instruction)}", "Search for a product")
    elif state.kind == "results":
        yield from _results(store, state, page)
    else:
        product = store.catalog.product(state.asin)
        if state.kind == "done":
            yield from (f"Bought: {_line(product.title)}", f"Score: {page.score:.2f}")
            return
        title = _line(product.title)
        if state.kind == "sub_page":
            yield _cut(title)
            texts = (_line(text) for text in sub_page_texts(product, state.sub_page))
            yield f"{state.sub_page}: {'; '.join(text for text in texts if text) or 'none'}"
            return
        yield from (title, chosen_price(product, state))
        chosen = dict(state.options)
        for name, values in product.options.items():
            choice = f" (chosen: {chosen[name]})" if name in chosen else ""
            yield f"{name}: {', '.join(dict.fromkeys(values))}{choice}"


def _results(store: Store, state: PageState, page: PageText) -> Iterator[str]:
    found = len(store.results(state))
    yield f"Page {state.page} of {max(1, -(-found // PAGE_SIZE))}, {found} results"
    if state.filters:
        yield filters_line(state)
    for number, asin in enumerate(store.shown(state), start=first_number(state)):
        product = store.catalog.product(asin)
        yield f"{number}. {_cut(_line(product.title))} | {_lowest_price(product)}"


def _lowest_price(product: Product) -> str:
    """A product's price; of a range its lower end, as the choice of options decides."""
    return "from " * (len(product.pricing) > 1) + dollars((min(product.pricing),))


def _line(text: str) -> str:
    """A text in one line."""
    return " ".join(text.split())


def _cut(title: str) -> str:
    """A title of at most `LONGEST_TITLE` characters, cut between words where it has some."""
    if len(title) <= LONGEST_TITLE:
        return title
    kept = title[: LONGEST_TITLE - len(_CUT) + 1]  # one more, which may be the blank after a whole word
    return (kept.rpartition(" ")[0] or kept[:-1]) + _CUT


def first_number(state: PageState) -> int:
    """The number of the first hit on a page of results; they go on from page to page."""
    return (state.page - 1) * PAGE_SIZE + 1


def short_actions(store: Store, state: PageState) -> str:
    r"""The possible actions as the last line of a page, all hits and all options in a word; "" after a purchase.

    >>> short_actions(Store(catalog=None, index=None), PageState())
    '\nActions: search[words]'
    """
    if state.kind == "done":
        return ""
    named = set(numbers(store, state))
    actions = ["click[number]", "buy[number]"] if named else []
    if state.kind == "item":
        named = {value for values in store.catalog.product(state.asin).options.values() for value in values}
        actions = ["click[option]"] if named else []
    actions += [f"click[{label}]" for label in store.clickables(state) if label not in named]
    actions += ["filter[condition]"] * (state.kind == "results")
    return f"\nActions: {', '.join([*actions, 'search[words]'])}"


def with_identifier(store: Store, state: PageState, action: str) -> str:
    """An action with the identifier of a product instead of its number; other actions as they are."""
    verb, argument = read_action(action)
    if verb in ("click", "buy"):
        for asin, number in numbers(store, state).items():
            if argument == number:
                return f"{verb}[{asin}]"
    return action


def numbers(store: Store, state: PageState) -> dict[str, str]:
    """The number of each hit on a page of results, by its identifier in lower case; empty on other pages."""
    hits = store.shown(state) if state.kind == "results" else ()
    return {asin.lower(): str(number) for number, asin in enumerate(hits, start=first_number(state))}
