"""Pages as HTML: for browsers, for programs written for the original, and for the observation mode `html`.

Templates are compiled once and escape everything. They contain the texts of `page_text.pieces`. A page's whole state is
in its address, as in the original: keywords as the repr of a list (or plain text, one keyword), options as the repr of
a dict. Two things lead nowhere in the original and differ: many blanks in a search become one, and "/" in an option is
an escape inside the string, since WSGI cannot tell it from the "/" between two parts.
"""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from webshop_server.catalog.product import Product
from webshop_server.store import page_text
from webshop_server.store.page_text import PageText
from webshop_server.store.state import MAX_QUERY, SUB_PAGES, PageState, Store

_SAFE = "'[]{}:, ()<>$!*;@"  # for reading; everything with a meaning in a path or a query is quoted


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

    def render(self, state: PageState, page: PageText, code: str = "", carried: str = "") -> str:
        """Renders a page.

        The page of a purchase without a `code`, which a paid worker would hand in, is that of the original's text
        environment. What is `carried` for programs, of `Answer.as_json`, stands in the element `#webshop`.
        """
        links = Links(page.session, state)
        known: dict[str, object] = {"page": page, "links": links, "state": state, "carried": carried}
        if state.kind == "start":
            return self._templates["start"].render(known, max_query=MAX_QUERY)
        if state.kind == "results":
            return self._templates["results"].render(known | self._results(state, page))
        product = self._store.catalog.product(state.asin)
        known |= {"product": product, "picture": picture_url}
        if state.kind == "done":
            options = page_text.json_for_html(dict(state.options))
            return self._templates["done"].render(known, code=code, options=options)
        if state.kind == "item":
            return self._templates["item"].render(known | self._item(state, page, product))
        texts = page_text.sub_page_texts(product, state.sub_page)
        return self._templates["sub_page"].render(known, texts=texts, empty=not any(text.strip() for text in texts))

    def error(self, status: int, title: str, message: str) -> str:
        """Renders a page that says what went wrong, with a link to go on."""
        return self._templates["error"].render(status=status, title=title, message=message, carried="")

    def _results(self, state: PageState, page: PageText) -> dict[str, object]:
        products = map(self._store.catalog.product, self._store.shown(state))
        return {
            "heading": page_text.results_heading(self._store, state),
            "filters": page_text.filters_line(state) if state.filters else "",
            "has_next": page.parity or self._store.has_next(state),
            "products": [(product, page_text.listed_price(product, page)) for product in products],
            "picture": picture_url,
        }

    def _item(self, state: PageState, page: PageText, product: Product) -> dict[str, object]:
        chosen = dict(state.options)
        images = [product.option_images.get(value) for value in chosen.values()]
        return {
            "chosen": chosen,
            "image": next((image for image in reversed(images) if image), product.image),
            "price": page_text.price_line(product, state, page),
            "rating": page_text.RATING,
            "sub_pages": SUB_PAGES,
        }


class Links:
    """Addresses of the pages around one page of one session, quoted."""

    def __init__(self, session: str, state: PageState) -> None:
        """Takes what all links of the page share."""
        self.start = f"/{quote(session, safe='')}"
        self._session, self._state = quote(session, safe=""), state
        self._keywords = quote(_keywords(state.keywords), safe=_SAFE)

    def results(self, page: int | None = None) -> str:
        """A page of results, by default the one last seen."""
        return f"/search_results/{self._session}/{self._keywords}/{self._state.page if page is None else page}"

    def item(self, asin: str | None = None, options: Mapping[str, str] | None = None, sub_page: str = "") -> str:
        """A product or its sub page, by default the present product with the present options."""
        asin = quote(self._state.asin if asin is None else asin, safe="")
        rest = f"{self._state.page}/{sub_page and f'{sub_page}/'}{self._options(options)}"
        return f"/item_{'sub_' * bool(sub_page)}page/{self._session}/{asin}/{self._keywords}/{rest}"

    def choose(self, name: str, value: str) -> str:
        """The present product with one more option chosen."""
        return self.item(options={**dict(self._state.options), name: value})

    @property
    def done(self) -> str:
        """The purchase of the present product."""
        return f"/done/{self._session}/{quote(self._state.asin, safe='')}/{self._options(None)}"

    def _options(self, options: Mapping[str, str] | None) -> str:
        text = str(dict(self._state.options if options is None else options))
        return quote(text.replace("/", "\\x2f"), safe=_SAFE)


def _keywords(words: Sequence[str]) -> str:
    """Keywords as they appear in an address, before quoting.

    One goes as plain text, unless it would be read as a list, or taken away as a part of a path that is empty or dots.
    """
    if len(words) == 1 and words[0] not in ("", ".", "..") and not words[0].startswith(("[", "/")):
        return words[0]
    kept = [word for word in words if word]
    # repr makes ten characters of one that is not printable, and an address has a bound; JSON leaves it as it is.
    return str(kept) if all(map(str.isprintable, kept)) else json.dumps(kept, ensure_ascii=False)


def picture_url(product: Product, chosen: Mapping[str, str] | None = None) -> str:
    """Address of the drawing of a product, in the colour that was chosen."""
    color = (chosen or {}).get("color", "")
    return f"/picture/{quote(product.asin, safe='')}.svg" + ("?" + urlencode({"color": color}) if color else "")
