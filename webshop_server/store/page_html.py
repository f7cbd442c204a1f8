"""Pages as HTML: for browsers, for programs written for the original, and for the observation mode `html`.

Templates are compiled once and escape everything. They contain the texts of `page_text.pieces`.
"""

import pprint
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from webshop_server.catalog.pricing import dollars
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.store.filters import Filter, categories
from webshop_server.store.links import Links
from webshop_server.store.page_text import (
    RATING,
    PageText,
    chosen_price,
    filters_line,
    json_for_html,
    listed_price,
    price_line,
    results_heading,
    sub_page_texts,
)
from webshop_server.store.state import MAX_QUERY, PageState, Store

_COLORS_OFFERED = 24
_NONE = "None"


@dataclass(frozen=True)
class TargetText:
    """What was asked for, as the page of a purchase shows it; empty where the original's text environment is."""

    asin: str = ""
    goal_options: str = ""
    attributes: str = ""
    price_upper: str = ""
    instruction_text: str = ""
    category: str = ""
    product_category: str = ""
    query: str = ""


@dataclass(frozen=True)
class Receipt:
    """What the page of a purchase says, as text. The defaults are what the original's text environment shows.

    Without `goal` or `details` the page has no such elements.
    """

    asin: str
    options: str
    score: str
    code: str = _NONE
    attributes: str = _NONE
    category: str = _NONE
    query: str = _NONE
    product_category: str = _NONE
    goal: TargetText | None = field(default_factory=TargetText)
    goal_text: str = _NONE
    details: str | None = _NONE


def full_receipt(
    product: Product,
    options: Mapping[str, str],
    score: float,
    code: str,
    goal: Goal | None = None,
    details: Mapping[str, object] | None = None,
) -> Receipt:
    """The receipt of the classic pages.

    Args:
        product: What was bought.
        options: With which options.
        score: What it earned, 0 to 1.
        code: The code a paid worker would hand in.
        goal: What was asked for; None keeps it secret.
        details: Parts of the score; None keeps them secret.

    Returns:
        The texts.
    """
    target = None if goal is None else _target(goal)
    return Receipt(
        asin=product.asin,
        options=json_for_html(dict(options)),
        score=str(score),
        code=code,
        attributes=str(list(product.attributes)),
        category=product.category,
        query=product.query,
        product_category=product.product_category,
        goal=None if target is None else TargetText(**{name: str(value) for name, value in target.items()}),
        goal_text=_NONE if target is None else pprint.pformat(target),
        details=None if details is None else pprint.pformat(dict(details)),
    )


def _target(goal: Goal) -> dict[str, object]:
    """A goal under the names of `TargetText`."""
    goal_options = list(goal.options) if isinstance(goal.options, tuple) else dict(goal.options)
    return {
        "asin": goal.asin,
        "goal_options": goal_options,
        "attributes": list(goal.attributes),
        "price_upper": goal.price_upper,
        "instruction_text": goal.instruction,
        "category": goal.category,
        "product_category": goal.product_category,
        "query": goal.query,
    }


class HtmlPages:
    """Renders pages. One object serves all threads."""

    def __init__(self, store: Store) -> None:
        """Compiles the templates.

        Args:
            store: The store whose pages these are.
        """
        self._store = store
        environment = Environment(
            loader=PackageLoader("webshop_server.store"), autoescape=True, undefined=StrictUndefined, auto_reload=False
        )
        names = ("start", "results", "item", "sub_page", "done", "error")
        self._templates = {name: environment.get_template(f"{name}.html.j2") for name in names}

    def render(self, state: PageState, page: PageText, receipt: Receipt | None = None, again: str = "") -> str:
        """Renders a page.

        Args:
            state: The page.
            page: What it says beside its products. In parity mode only people get a form for filters.
            receipt: For the page of a purchase; None shows what the text environment shows.
            again: Where "Shop again" leads on that page; "" leaves it out.

        Returns:
            An HTML document.
        """
        if state.kind == "done":
            shown = receipt or Receipt(state.asin, json_for_html(dict(state.options)), str(page.score))
            return self._templates["done"].render(receipt=asdict(shown), again=again)
        links = Links(page.session, state)
        known: dict[str, object] = {"instruction": page.instruction, "links": links, "state": state}
        if state.kind == "start":
            return self._templates["start"].render(known, max_query=MAX_QUERY)
        if state.kind == "results":
            return self._templates["results"].render(known | self._results(state, page))
        product = self._store.catalog.product(state.asin)
        if state.kind == "item":
            return self._templates["item"].render(known | self._item(state, page, product))
        texts = sub_page_texts(product, state.sub_page)
        empty = not any(text.strip() for text in texts)
        return self._templates["sub_page"].render(known, product=product, texts=texts, empty=empty)

    def error(self, status: int, title: str, message: str, again: str, again_label: str) -> str:
        """Renders a page that says what went wrong, with a link to go on."""
        return self._templates["error"].render(
            status=status, title=title, message=message, again=again, again_label=again_label
        )

    def _results(self, state: PageState, page: PageText) -> dict[str, object]:
        has_next = self._store.has_next(state)
        return {
            "heading": results_heading(self._store, state),
            "filters": filters_line(state) if state.filters else "",
            "has_next": page.parity or has_next,
            "hides_next": page.people and not has_next,
            "products": [
                (product, listed_price(product, page), dollars(product.pricing) if page.people else "")
                for product in map(self._store.catalog.product, self._store.shown(state))
            ],
            "form": self._form(state) if page.people or not page.parity else None,
            "picture": picture_url,
        }

    def _form(self, state: PageState) -> dict[str, object]:
        """What the form for filters offers, taken from the results without filters, and how it is filled in."""
        found = self._store.results(PageState("results", state.keywords, 1))
        products = [self._store.catalog.product(asin) for asin in found[:_COLORS_OFFERED]]
        chosen = {one.slot: one for one in state.filters}
        plain = [("price", "<"), ("category", "="), ("color", "=")]
        price, category, color = (_value(chosen.get(slot)) for slot in plain)
        departments = {categories(product)[0] for product in products} | ({category} if category else set())
        colors = dict.fromkeys(value for product in products for value in product.options.get("color", ()))
        return {
            "price_max": price,
            "category": category,
            "color": color,
            "categories": sorted(departments),
            "colors": list(colors)[:_COLORS_OFFERED],
            "others": [str(one) for one in state.filters if one.slot not in plain],
        }

    def _item(self, state: PageState, page: PageText, product: Product) -> dict[str, object]:
        chosen = dict(state.options)
        images = [product.option_images.get(value) for value in chosen.values()]
        return {
            "product": product,
            "chosen": chosen,
            "image": next((image for image in reversed(images) if image), product.image),
            "price": price_line(product, state, page),
            "shown_price": f"Price: {chosen_price(product, state)}" if page.people else "",
            "rating": RATING,
            "sub_pages": self._store.sub_pages,
            "picture": picture_url,
        }


def _value(one: Filter | None) -> str:
    return "" if one is None else one.value


def picture_url(product: Product, chosen: Mapping[str, str] | None = None) -> str:
    """Address of the drawing of a product, in the colour that was chosen."""
    color = (chosen or {}).get("color", "")
    return f"/picture/{quote(product.asin, safe='')}.svg" + ("?" + urlencode({"color": color}) if color else "")
