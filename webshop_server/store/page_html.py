"""Pages as HTML: for browsers, for programs written for the original, and for the observation mode `html`.

Templates are compiled once and escape everything. They contain the texts of `page_text.pieces`.
"""

import pprint
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from webshop_server.catalog.pricing import dollars
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.store import page_text
from webshop_server.store.filters import categories
from webshop_server.store.links import Links
from webshop_server.store.page_text import PageText
from webshop_server.store.state import MAX_QUERY, PageState, Store

_COLORS_OFFERED = 24
# Names of what was asked for, on the page of a purchase.
_TARGET = tuple("asin goal_options attributes price_upper instruction_text category product_category query".split())


@dataclass(frozen=True)
class Receipt:
    """What the page of a purchase says beside product, options and score."""

    code: str  # the code a paid worker would hand in
    goal: Goal | None = None  # what was asked for; None keeps it secret
    details: Mapping[str, object] | None = None  # parts of the score; None keeps them secret


class HtmlPages:
    """Renders pages. One object serves all threads."""

    def __init__(self, store: Store) -> None:
        """Compiles the templates."""
        self._store = store
        environment = Environment(
            loader=PackageLoader("webshop_server.store"), autoescape=True, undefined=StrictUndefined, auto_reload=False
        )
        names = ("start", "results", "item", "sub_page", "done", "error")
        self._templates = {name: environment.get_template(f"{name}.html.j2") for name in names}

    def render(
        self, state: PageState, page: PageText, receipt: Receipt | None = None, again: str = "", carried: str = ""
    ) -> str:
        """Renders a page.

        In parity mode only people get a form for filters. The page of a purchase without a receipt is that of the
        original's text environment; `again` is where "Shop again" leads on it, "" leaves it out. What is `carried` for
        programs, of `Answer.as_json`, stands in the element `#webshop`.
        """
        if state.kind == "done":
            told = self._bought(state, page.score, receipt)
            return self._templates["done"].render(receipt=told, again=again, carried=carried)
        links = Links(page.session, state)
        known: dict[str, object] = {"instruction": page.instruction, "links": links, "state": state, "carried": carried}
        if state.kind == "start":
            return self._templates["start"].render(known, max_query=MAX_QUERY)
        if state.kind == "results":
            return self._templates["results"].render(known | self._results(state, page))
        product = self._store.catalog.product(state.asin)
        if state.kind == "item":
            return self._templates["item"].render(known | self._item(state, page, product))
        texts = page_text.sub_page_texts(product, state.sub_page)
        empty = not any(text.strip() for text in texts)
        return self._templates["sub_page"].render(known, product=product, texts=texts, empty=empty)

    def _bought(self, state: PageState, score: float | None, receipt: Receipt | None) -> dict[str, object]:
        """The texts of the page of a purchase, under the names of its template."""
        known = {"asin": state.asin, "options": page_text.json_for_html(dict(state.options)), "score": str(score)}
        if receipt is None:  # the original's text environment hands nothing else to the template
            names = ("code", "attributes", "category", "query", "product_category", "goal_text", "details")
            return {**known, **dict.fromkeys(names, "None"), "goal": dict.fromkeys(_TARGET, "")}
        product, goal = self._store.catalog.product(state.asin), receipt.goal
        target: dict[str, object] | None = None
        if goal is not None:
            options = list(goal.options) if isinstance(goal.options, tuple) else dict(goal.options)
            values = (goal.asin, options, list(goal.attributes), goal.price_upper, goal.instruction)
            target = dict(zip(_TARGET, (*values, goal.category, goal.product_category, goal.query), strict=True))
        return {
            **known,
            **{name: getattr(product, name) for name in ("category", "query", "product_category")},
            "code": receipt.code,
            "attributes": str(list(product.attributes)),
            "goal": target and {name: str(value) for name, value in target.items()},
            "goal_text": pprint.pformat(target),
            "details": receipt.details and pprint.pformat(dict(receipt.details)),
        }

    def error(self, status: int, title: str, message: str) -> str:
        """Renders a page that says what went wrong, with a link to go on."""
        return self._templates["error"].render(status=status, title=title, message=message, carried="")

    def _results(self, state: PageState, page: PageText) -> dict[str, object]:
        has_next = self._store.has_next(state)
        return {
            "heading": page_text.results_heading(self._store, state),
            "filters": page_text.filters_line(state) if state.filters else "",
            "has_next": page.parity or has_next,
            "hides_next": page.people and not has_next,
            "products": [
                (product, page_text.listed_price(product, page), dollars(product.pricing) if page.people else "")
                for product in map(self._store.catalog.product, self._store.shown(state))
            ],
            "form": self._form(state) if page.people or not page.parity else None,
            "picture": picture_url,
        }

    def _form(self, state: PageState) -> dict[str, object]:
        """What the form for filters offers, taken from the results without filters, and how it is filled in."""
        found = self._store.results(PageState("results", state.keywords, 1))
        products = [self._store.catalog.product(asin) for asin in found[:_COLORS_OFFERED]]
        chosen = {one.slot: one.value for one in state.filters}
        plain = [("price", "<"), ("category", "="), ("color", "=")]
        price, category, color = (chosen.get(slot, "") for slot in plain)
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
            "price": page_text.price_line(product, state, page),
            "shown_price": f"Price: {page_text.chosen_price(product, state)}" if page.people else "",
            "rating": page_text.RATING,
            "sub_pages": self._store.sub_pages,
            "picture": picture_url,
        }


def picture_url(product: Product, chosen: Mapping[str, str] | None = None) -> str:
    """Address of the drawing of a product, in the colour that was chosen."""
    color = (chosen or {}).get("color", "")
    return f"/picture/{quote(product.asin, safe='')}.svg" + ("?" + urlencode({"color": color}) if color else "")
