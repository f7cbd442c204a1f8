"""What an agent reads on a page: the observation modes `text`, `text_rich` and `url` of the original.

The original renders HTML and parses it again, which takes most of its time. Here a page is a list of pieces of text
with roles, exactly those that bs4's `html.parser` finds on the original's pages: blanks at their ends count, and blanks
alone count unless there is a line break among them. A test compares them with the templates.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from webshop_server.catalog.pricing import dollars
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import price_with
from webshop_server.store.state import BACK, BUY, NEXT, PREVIOUS, PageState, Store

SEPARATOR = " [SEP] "
BASE_URL = "http://127.0.0.1:3000"  # what the original's text environment pretends, whatever the port
RATING = "N.A."  # the original's reviews were never published
SCORE_HEADING = "Your score (min 0.0, max 1.0)"
LABELS = {BACK: "Back to Search", PREVIOUS: "< Prev", NEXT: "Next >", BUY: "Buy Now"}
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
    # Whether HTML also has what people want, without text of its own: cents in prices, a form for filters, and no
    # button to a page without results.
    people: bool = False


def observation(store: Store, state: PageState, page: PageText, mode: str) -> str:
    """Writes what an agent sees.

    The mode is "text" (pieces joined by " [SEP] "), "text_rich" (a line each, what can be clicked in marks) or "url".

    Raises:
        ValueError: If the mode is another one.
    """
    address = url(state, page.session)
    return address if mode == "url" else written(pieces(store, state, page), mode, address, state.seen)


def written(shown: Iterable[Piece], mode: str, address: str, seen: Sequence[str]) -> str:
    """Writes the pieces of a page in the mode "text" or "text_rich".

    An option counts as clicked if its value is in the page's `url` in double quotes, as the original looks: values that
    JSON escapes never do. A link is clicked if its product was `seen`.

    Raises:
        ValueError: If the mode is another one.
    """
    if mode == "text":
        return SEPARATOR.join(text.strip() for _, text in shown)
    if mode != "text_rich":
        raise ValueError(f"observation mode {mode!r} is unknown here; use text, text_rich or url")
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
    keywords = "+".join(state.keywords)
    options = dict(state.options)
    if state.kind == "results":
        path = f"search_results/{session}/{keywords}/{state.page}"
    elif state.kind == "item":
        path = f"item_page/{session}/{state.asin}/{keywords}/{state.page}/{json.dumps(options)}"
    elif state.kind == "sub_page":
        path = f"item_sub_page/{session}/{state.asin}/{keywords}/{state.page}/{state.sub_page}/{options}"
    else:
        path = f"done/{session}/{state.asin}/{options}"
    return f"{base}/{path}{filter_query(state)}"


def filter_query(state: PageState) -> str:
    """The filters of a state as the query of a URL, quoted; "" without filters."""
    return "".join(f"{'&' if at else '?'}filter={quote(str(one), safe='')}" for at, one in enumerate(state.filters))


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
    yield from (("text", "Instruction:"), ("text", page.instruction), ("button", LABELS[BACK]))
    if state.kind == "results":
        yield from _results(store, state, page)
        return
    yield "button", LABELS[PREVIOUS]
    product = store.catalog.product(state.asin)
    if state.kind == "item":
        yield from _item(store, state, page, product)
    else:
        yield from (("text", text) for text in sub_page_texts(product, state.sub_page))


def _results(store: Store, state: PageState, page: PageText) -> Iterator[Piece]:
    yield "text", results_heading(store, state)
    if state.filters:
        yield "text", filters_line(state)
    if state.page > 1:
        yield "button", LABELS[PREVIOUS]
    if page.parity or store.has_next(state):
        yield "button", LABELS[NEXT]
    for asin in store.shown(state):
        product = store.catalog.product(asin)
        yield from (("link", asin), ("text", product.title), ("text", listed_price(product, page)))


def results_heading(store: Store, state: PageState) -> str:
    """The line over the results."""
    return f"Page {state.page} (Total results: {len(store.results(state))})"


def filters_line(state: PageState) -> str:
    """The line that names the filters; shown only where there are some."""
    return "Filters: " + ", ".join(map(str, state.filters))


def _item(store: Store, state: PageState, page: PageText, product: Product) -> Iterator[Piece]:
    for name, values in product.options.items():
        yield "text", name
        yield from (("option", value) for value in values)
    price = price_line(product, state, page)
    yield from (("text", product.title), ("text", price), ("text", f"Rating: {RATING}"))
    yield from (("button", name) for name in store.sub_pages)
    yield "button", LABELS[BUY]


def listed_price(product: Product, page: PageText) -> str:
    """The price among the results: as the original writes it in parity mode, else with cents."""
    return product.price_text if page.parity else dollars(product.pricing)


def price_line(product: Product, state: PageState, page: PageText) -> str:
    """The price on a product's page; beyond parity that of the chosen options, where they have prices of their own."""
    return f"Price: {product.price_text if page.parity else chosen_price(product, state)}"


def chosen_price(product: Product, state: PageState) -> str:
    """What people read on a product's page: the price of the chosen options, or the listed one where they have none."""
    chosen = [value for _, value in state.options]
    if product.option_prices.keys().isdisjoint(chosen):
        return dollars(product.pricing)
    return dollars((price_with(product, chosen),))


def sub_page_texts(product: Product, sub_page: str) -> tuple[str, ...]:
    """The texts of one of a product's sub pages; none for Reviews, which the original never had."""
    if sub_page == "Description":
        return (product.description,)
    if sub_page == "Features":
        return tuple(f" {text}" for text in product.bullet_points)
    if sub_page == "Attributes":
        path = (product.category, product.query, product.product_category)
        return (*(f" {text}" for text in product.attributes), *path)
    return ()


def json_for_html(options: dict[str, str]) -> str:
    """Options as Flask's `tojson` writes them on the page of a purchase: keys sorted, "<", ">", "&" and "'" escaped."""
    text = json.dumps(options, sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("'", "\\u0027")


def receipt(state: PageState, score: float | None) -> Iterator[Piece]:
    """The page after a purchase. The original's text environment leaves out what it does not hand to the template."""
    texts = [
        *("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"),
        *("Purchased", "asin", state.asin, "options", json_for_html(dict(state.options)), "attrs", "None"),
        *("category", "None", "query", "None", "product category", "None"),
        *("Target", "asin", "options", "attrs", "price upper", "instuction text"),
        *("category", "product category", "query", "Goal ", "None"),
        *("Reward", SCORE_HEADING, str(score), "Reward Details ", "None"),
    ]
    yield from (("text", text) for text in texts)
