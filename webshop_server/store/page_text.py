"""What an agent reads on a page: the modes `text`, `text_rich` and `url` of the original, and `short`, which it lacks.

The original renders HTML and parses it again, which takes most of its time. Here a page is a list of pieces of text
with roles, exactly those that bs4's `html.parser` finds on the original's pages: blanks at their ends count, and blanks
alone count unless there is a line break among them. A test compares them with the templates.

The mode `short` is for small models and long episodes. Hits are numbered, long titles are cut, and a range of prices
shows its lower end; a product's own page has both whole. Buttons are not written, and only the start page says the
task. `click[2]` and `buy[2]` mean the product numbered 2:

    Page 1 of 5, 50 results
    1. Soft cotton towel, blue | $12.00
    2. Linen towel | from $19.50
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from jinja2.utils import htmlsafe_json_dumps

from webshop_server.catalog.product import Product, dollars
from webshop_server.goals.goals import price_with
from webshop_server.store.state import PAGE_SIZE, SEARCH, SUB_PAGES, PageState, Store, read_action

SEPARATOR = " [SEP] "
BASE_URL = "http://127.0.0.1:3000"  # what the original's text environment pretends, whatever the port
RATING = "N.A."  # the original's reviews were never published
SCORE_HEADING = "Your score (min 0.0, max 1.0)"
LONGEST_TITLE = 80  # characters, on a short page of results
_CUT = "…"
_BLANKS = " \n\t\f\r"  # what HTML calls white space

Role = Literal["text", "button", "option", "link"]
Piece = tuple[Role, str]


@dataclass(frozen=True)
class PageText:
    """What a page says beside its products."""

    instruction: str  # the task
    session: str = "0"  # name of the session in URLs
    score: float | None = None  # what the purchase earned, in 0 to 1; None before
    parity: bool = False  # whether to show what the original shows


def observation(store: Store, state: PageState, page: PageText, mode: str) -> str:
    """Writes what an agent sees.

    The mode is "text" (pieces joined by " [SEP] "), "text_rich" (a line each, what can be clicked in marks), "url" or
    "short".
    """
    address = url(state, page.session)
    if mode == "url":
        return address
    if mode == "short":
        return "\n".join(_short_lines(store, state, page))
    return written(pieces(store, state, page), mode, address, state.seen)


def written(shown: Iterable[Piece], mode: str, address: str, seen: Sequence[str]) -> str:
    """Writes the pieces of a page in the mode "text" or "text_rich".

    An option counts as clicked if its value is in the page's `url` in double quotes, as the original looks: values that
    JSON escapes never do. A link is clicked if its product was `seen`.
    """
    if mode == "text":
        return SEPARATOR.join(text.strip() for _, text in shown)
    clicked: list[str] = []
    lines: list[str] = []
    for role, text in shown:
        if role == "text":
            lines.append(text)
        elif role == "button":
            lines.append(f"[button] {text} [button_]")
        elif role == "link":
            mark = "clicked button" if text in seen else "button"
            lines.append(f"\n[{mark}] {text} [{mark}_]")
        elif f'"{text}"' in address:
            clicked.append(f"You have clicked {text}.")
            lines.append(f"  [clicked button] {text} [clicked button_]")
        else:
            lines.append(f"  [button] {text} [button_]")
    return "".join(f"{line}\n" for line in [*reversed(clicked), *lines])


def url(state: PageState, session: str, base: str = BASE_URL) -> str:
    """The address the original's text environment would show: readable, unquoted, options in two notations."""
    if state.kind == "start":
        return f"{base}/{session}"
    keywords, options = "+".join(state.keywords), dict(state.options)
    if state.kind == "results":
        path = f"search_results/{session}/{keywords}/{state.page}"
    elif state.kind == "item":
        path = f"item_page/{session}/{state.asin}/{keywords}/{state.page}/{json.dumps(options)}"
    elif state.kind == "sub_page":
        path = f"item_sub_page/{session}/{state.asin}/{keywords}/{state.page}/{state.sub_page}/{options}"
    else:
        path = f"done/{session}/{state.asin}/{options}"
    filters = "&".join(f"filter={quote(str(one), safe='')}" for one in state.filters)
    return f"{base}/{path}" + (f"?{filters}" if filters else "")


def pieces(store: Store, state: PageState, page: PageText) -> Iterator[Piece]:
    """All text on a page in the order of reading, a role with each."""
    for role, text in _all_pieces(store, state, page):
        if text.strip(_BLANKS):
            yield role, text
        elif text and "\n" not in text:
            yield role, " "


def _all_pieces(store: Store, state: PageState, page: PageText) -> Iterator[Piece]:
    if state.kind == "start":
        yield from (("text", "WebShop"), ("text", "Instruction: "), ("text", page.instruction), ("button", "Search"))
        return
    if state.kind == "done":
        yield from receipt(state, page.score)
        return
    yield from (("text", "Instruction:"), ("text", page.instruction), ("button", "Back to Search"))
    if state.kind == "results":
        yield "text", results_heading(store, state)
        if state.filters:
            yield "text", filters_line(state)
        if state.page > 1:
            yield "button", "< Prev"
        if page.parity or store.has_next(state):
            yield "button", "Next >"
        for product in map(store.catalog.product, store.shown(state)):
            yield from (("link", product.asin), ("text", product.title), ("text", price(product, page)))
        return
    yield "button", "< Prev"
    product = store.catalog.product(state.asin)
    if state.kind == "sub_page":
        yield from (("text", text) for text in sub_page_texts(product, state.sub_page))
        return
    for name, values in product.options.items():
        yield "text", name
        yield from (("option", value) for value in values)
    cost = price(product, page, dict(state.options).values())
    yield from (("text", product.title), ("text", f"Price: {cost}"), ("text", f"Rating: {RATING}"))
    yield from (("button", name) for name in (*SUB_PAGES, "Buy Now"))


def results_heading(store: Store, state: PageState) -> str:
    """The line over the results."""
    return f"Page {state.page} (Total results: {len(store.results(state))})"


def filters_line(state: PageState) -> str:
    """The line that names the filters; shown only where there are some."""
    return "Filters: " + ", ".join(map(str, state.filters))


def price(product: Product, page: PageText, chosen: Collection[str] = ()) -> str:
    """The price as the original writes it in parity mode; else with cents, and that of the chosen values of options."""
    if page.parity:
        return product.price_text
    if product.option_prices.keys().isdisjoint(chosen):
        return dollars(product.pricing)
    return dollars((price_with(product, chosen),))


def sub_page_texts(product: Product, sub_page: str) -> tuple[str, ...]:
    """The texts of one of a product's sub pages; none for Reviews, which the original never had."""
    if sub_page == "Description":
        return (product.description,)
    return tuple(f" {text}" for text in product.bullet_points) if sub_page == "Features" else ()


def receipt(state: PageState, score: float | None) -> Iterator[Piece]:
    """The page after a purchase. The original's text environment leaves out what it does not hand to the template."""
    chosen = str(htmlsafe_json_dumps(dict(state.options), sort_keys=True))  # as Flask's tojson
    texts = [
        *("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"),
        *("Purchased", "asin", state.asin, "options", chosen, "attrs", "None"),
        *("category", "None", "query", "None", "product category", "None"),
        *("Target", "asin", "options", "attrs", "price upper", "instuction text"),
        *("category", "product category", "query", "Goal ", "None"),
        *("Reward", SCORE_HEADING, str(score), "Reward Details ", "None"),
    ]
    yield from (("text", text) for text in texts)


def _short_lines(store: Store, state: PageState, page: PageText) -> Iterator[str]:
    if state.kind == "start":
        yield from (f"Wanted: {_line(page.instruction)}", "Search for a product")
    elif state.kind == "results":
        found = len(store.results(state))
        yield f"Page {state.page} of {max(1, -(-found // PAGE_SIZE))}, {found} results"
        if state.filters:
            yield filters_line(state)
        for number, product in enumerate(map(store.catalog.product, store.shown(state)), start=first_number(state)):
            # Of a range of prices the lower end, as the choice of options decides.
            lowest = "from " * (len(product.pricing) > 1) + dollars((min(product.pricing),))
            yield f"{number}. {_cut(_line(product.title))} | {lowest}"
    else:
        product = store.catalog.product(state.asin)
        title = _line(product.title)
        if state.kind == "done":
            yield from (f"Bought: {title}", f"Score: {page.score:.2f}")
        elif state.kind == "sub_page":
            texts = filter(None, map(_line, sub_page_texts(product, state.sub_page)))
            yield from (_cut(title), f"{state.sub_page}: {'; '.join(texts) or 'none'}")
        else:
            chosen = dict(state.options)
            yield from (title, price(product, page, chosen.values()))
            for name, values in product.options.items():
                choice = f" (chosen: {chosen[name]})" if name in chosen else ""
                yield f"{name}: {', '.join(dict.fromkeys(values))}{choice}"


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


def numbers(store: Store, state: PageState) -> dict[str, str]:
    """The number of each hit on a page of results, by its identifier in lower case; empty on other pages."""
    hits = store.shown(state) if state.kind == "results" else ()
    return {asin.lower(): str(number) for number, asin in enumerate(hits, start=first_number(state))}


def with_identifier(store: Store, state: PageState, action: str) -> str:
    """An action with the identifier of a product instead of its number; other actions as they are."""
    verb, argument = read_action(action)
    named = {number: asin for asin, number in numbers(store, state).items()} if verb in ("click", "buy") else {}
    return f"{verb}[{named[argument]}]" if argument in named else action


def actions_line(state: PageState, clickables: Sequence[str], parity: bool) -> str:
    r"""The possible actions as the last line of an observation.

    >>> actions_line(PageState(), [], parity=False)
    '\nAvailable actions: search[<words>]'
    >>> actions_line(PageState("item"), ["back to search"], parity=False)
    '\nAvailable actions: search[<words>], click[back to search]'
    """
    # The original's pages understand searches everywhere, too, but its list has them where there is a field.
    can_search = state.kind == "start" if parity else state.kind != "done"
    actions = ["search[<words>]"] if can_search else []
    actions += [f"click[{target}]" for target in clickables if target != SEARCH]
    if state.kind == "results" and not parity:
        actions += ["filter[<condition>]", "buy[<id>]"]
    return "\nAvailable actions: " + ", ".join(actions) if actions else ""


def short_actions(store: Store, state: PageState) -> str:
    r"""The same after a short page, all hits and all options in a word; "" after a purchase.

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
