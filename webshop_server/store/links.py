"""Addresses of the classic pages, as the original's `url_for` wrote them, quoted.

A page's whole state is in its path: keywords as the repr of a list (or plain text, one keyword), options as the repr of
a dict. Two things lead nowhere in the original and differ: many blanks in a search become one, and "/" in an option is
an escape inside the string, since WSGI cannot tell it from the "/" between two parts.
"""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from webshop_server.store.page_text import filter_query
from webshop_server.store.state import PageState

_SAFE = "'[]{}:, ()<>$!*;@"  # for reading; everything with a meaning in a path or a query is quoted


class Links:
    """Addresses of the pages around one page of one session."""

    def __init__(self, session: str, state: PageState) -> None:
        """Takes what all links of the page share."""
        self._session = quote(session, safe="")
        self._state = state
        self._keywords = _quoted(_keywords(state.keywords))
        self._query = filter_query(state)

    @property
    def start(self) -> str:
        """The start page."""
        return f"/{self._session}"

    def results(self, page: int | None = None, filters: bool = True) -> str:
        """A page of results, by default the one last seen."""
        number = self._state.page if page is None else page
        return f"/search_results/{self._session}/{self._keywords}/{number}{self._query if filters else ''}"

    def item(self, asin: str | None = None, options: Mapping[str, str] | None = None) -> str:
        """A product, by default the present one with the present options."""
        asin = self._state.asin if asin is None else asin
        rest = f"{self._state.page}/{self._options(options)}{self._query}"
        return f"/item_page/{self._session}/{quote(asin, safe='')}/{self._keywords}/{rest}"

    def choose(self, name: str, value: str) -> str:
        """The present product with one more option chosen."""
        return self.item(options={**dict(self._state.options), name: value})

    def sub_page(self, name: str) -> str:
        """Description, Features, Reviews or Attributes of the present product."""
        rest = f"{self._keywords}/{self._state.page}/{name}/{self._options(None)}{self._query}"
        return f"/item_sub_page/{self._session}/{quote(self._state.asin, safe='')}/{rest}"

    @property
    def done(self) -> str:
        """The purchase of the present product."""
        return f"/done/{self._session}/{quote(self._state.asin, safe='')}/{self._options(None)}"

    def _options(self, options: Mapping[str, str] | None) -> str:
        text = str(dict(self._state.options if options is None else options))
        return _quoted(text.replace("/", "\\x2f"))


def _keywords(words: Sequence[str]) -> str:
    """Keywords as they appear in an address, before quoting.

    One goes as plain text, unless it would be read as a list, or taken away as a part of a path that is empty or dots.
    """
    if len(words) == 1 and words[0] not in ("", ".", "..") and not words[0].startswith(("[", "/")):
        return words[0]
    kept = [word for word in words if word]
    # repr makes ten characters of one that is not printable, and an address has a bound; JSON leaves it as it is.
    return str(kept) if all(map(str.isprintable, kept)) else json.dumps(kept, ensure_ascii=False)


def _quoted(text: str) -> str:
    return quote(text, safe=_SAFE)
