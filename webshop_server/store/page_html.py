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
from webshop_server.store.state import MAX_QUERY, PageState, Store

_SAFE = "'[]{}:, ()<>$!*;@"  # for reading; everything with a meaning in a path or a query is quoted


class HtmlPages:
    """Renders pages. One object serves all threads."""

    def __init__(self, store: Store) -> None:
        """Compiles the templates, which take what they write from `store` and from the functions of `page_text`."""
        self._catalog = store.catalog
        environment = Environment(
            loader=PackageLoader("webshop_server.store"), autoescape=True, undefined=StrictUndefined, auto_reload=False
        )
        environment.globals |= {"store": store, "texts": page_text, "picture": picture_url, "image": main_image}
        environment.globals["max_query"] = MAX_QUERY
        names = ("start", "results", "item", "sub_page", "done", "error")
        self._templates = {name: environment.get_template(f"{name}.html.j2") for name in names}

    def render(self, state: PageState, page: PageText, code: str = "", carried: str = "") -> str:
        """Renders a page.

        The page of a purchase without a `code`, which a paid worker would hand in, is that of the original's text
        environment. What is `carried` for programs, of `Answer.as_json`, stands in the element `#webshop`.
        """
        return self._templates[state.kind].render(
            state=state,
            page=page,
            links=Links(page.session, state),
            product=self._catalog.product(state.asin) if state.asin else None,
            chosen=dict(state.options),
            code=code,
            carried=carried,
        )

    def error(self, status: int, title: str, message: str) -> str:
        """Renders a page that says what went wrong, with a link to go on."""
        return self._templates["error"].render(status=status, title=title, message=message, carried="")


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


def main_image(product: Product, chosen: Mapping[str, str]) -> str:
    """Address of the image that the source has of a product, of the option chosen last if there is one."""
    images = [product.option_images.get(value) for value in chosen.values()]
    return next((image for image in reversed(images) if image), product.image)


def picture_url(product: Product, chosen: Mapping[str, str] | None = None) -> str:
    """Address of the drawing of a product, in the colour that was chosen."""
    color = (chosen or {}).get("color", "")
    return f"/picture/{quote(product.asin, safe='')}.svg" + ("?" + urlencode({"color": color}) if color else "")
