"""The classic pages: the original's routes, for people with a browser and for programs written for the original.

The path carries all of a page's state, GET and POST do the same, and `fixed_17` plays goal 17, as there. A session's
goal follows from its name, so every process gives it the same one, and it buys once. Anybody can therefore buy for goal
17 while others shop for it, so the page of a purchase shows the goal only with `--reveal-goals`.
"""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from flask import Blueprint, Response, redirect, request

from webshop_server.catalog import UnknownProductError
from webshop_server.catalog.product import Product
from webshop_server.goals.reward import RewardMode
from webshop_server.server.metrics import Metrics
from webshop_server.server.pictures import svg
from webshop_server.server.session_log import SessionLog
from webshop_server.server.sessions import BusySessionError, SessionStore, Tokens, UnknownSessionError
from webshop_server.server.validation import (
    RequestError,
    check_query,
    chosen_options,
    fixed_goal,
    page_number,
    read_filters,
    search_words,
    session_name,
    sub_page_name,
)
from webshop_server.store.filters import Filter
from webshop_server.store.links import Links
from webshop_server.store.page_html import full_receipt
from webshop_server.store.page_text import PageText
from webshop_server.store.shop import Shop
from webshop_server.store.state import PageState

_BOTH = ("GET", "POST")
_FORM_FILTERS = {"price_max": "price<=", "category": "category=", "color": "color="}


@dataclass(frozen=True)
class Visit:
    """What is remembered of a classic session.

    Attributes:
        goal: Number of the goal.
        done: Whether something was bought.
    """

    goal: int
    done: bool = False


class ClassicPages:
    """The routes. One object serves all threads."""

    def __init__(
        self,
        shop: Shop,
        sessions: SessionStore[Visit],
        *,
        formula: RewardMode,
        metrics: Metrics,
        log: SessionLog | None = None,
        reveal_goals: bool = False,
    ) -> None:
        """Keeps what the routes need.

        Args:
            shop: The shop.
            sessions: Where visits are remembered.
            formula: How purchases are scored.
            metrics: Counts sessions and purchases.
            log: Where visits are written down, or None.
            reveal_goals: Whether the page of a purchase tells the goal and the parts of the score.
        """
        self._shop, self._sessions, self._formula = shop, sessions, formula
        self._metrics, self._log, self._reveal_goals = metrics, log, reveal_goals
        self._tokens = Tokens()

    def blueprint(self) -> Blueprint:
        """The routes, to be registered last: `/<session_id>` takes every path of one part that is left."""
        routes = Blueprint("classic", __name__)
        item = "<session_id>/<asin>/<path:keywords>/<page>"
        routes.add_url_rule("/", view_func=self.home, methods=_BOTH)
        routes.add_url_rule("/picture/<asin>.svg", view_func=self.picture)
        routes.add_url_rule("/<session_id>", view_func=self.start, methods=_BOTH)
        routes.add_url_rule(
            "/search_results/<session_id>/<path:keywords>/<page>", view_func=self.results, methods=_BOTH
        )
        routes.add_url_rule(f"/item_page/{item}/<options>", view_func=self.item, methods=_BOTH)
        routes.add_url_rule(f"/item_sub_page/{item}/<sub_page>/<options>", view_func=self.sub_page, methods=_BOTH)
        routes.add_url_rule("/done/<session_id>/<asin>/<options>", view_func=self.done, methods=_BOTH)
        return routes

    def home(self) -> Response:
        """A new session for every visitor. The original sends all of them to the same one."""
        return _moved(f"/{self._tokens.new()}")

    def start(self, session_id: str) -> Response:
        """The start page; with a query from its form, the way to the results. Asking for the head begins nothing."""
        name = session_name(session_id)
        if request.method == "HEAD":
            return self._page(name, Visit(self._goal_of(name)), PageState())
        visit = self._visited(name)
        query = request.form.get("search_query", "")
        if query.strip():
            check_query(query)
            found = PageState("results", tuple(query.lower().split(" ")), 1)
            return _moved(Links(name, found).results())
        self._write(name, "index", visit)
        return self._page(name, visit, PageState())

    def results(self, session_id: str, keywords: str, page: str) -> Response:
        """A page of results; one after the last is empty, as in the original."""
        name, visit = self._visit(session_id)
        state = PageState("results", search_words(keywords), page_number(page), filters=_filters())
        self._write(name, "search_results", visit, state)
        return self._page(name, visit, state)

    def item(self, session_id: str, asin: str, keywords: str, page: str, options: str) -> Response:
        """A product."""
        name, visit = self._visit(session_id)
        state = self._product_state(asin, keywords, page, options)
        if request.form:  # a choice was sent: show it under its own address
            return _moved(Links(name, state).item(), 303)
        self._write(name, "item_page", visit, state)
        return self._page(name, visit, state)

    def sub_page(self, session_id: str, asin: str, keywords: str, page: str, sub_page: str, options: str) -> Response:
        """Description, features or reviews of a product."""
        name, visit = self._visit(session_id)
        shown = sub_page_name(sub_page, self._shop.store.sub_pages)
        state = self._product_state(asin, keywords, page, options)
        if request.form:
            return _moved(Links(name, state).sub_page(shown), 303)
        state = PageState("sub_page", state.keywords, state.page, asin, state.options, shown, filters=state.filters)
        self._write(name, "item_sub_page", visit, state)
        return self._page(name, visit, state)

    def done(self, session_id: str, asin: str, options: str) -> Response:
        """The purchase, once a session. Old programs buy with GET, so GET buys; asking for the head does not."""
        if request.method == "HEAD":
            raise RequestError(405, "method_not_allowed", "a purchase is made with POST or GET")
        name, visit = self._visit(session_id)
        product = self._product(asin)
        chosen = chosen_options(options, _fields(), product)

        def buy(present: Visit) -> tuple[Visit, Visit]:
            if present.done:
                raise RequestError(409, "already_bought", "this session has bought; its start page begins a new one")
            bought = Visit(present.goal, done=True)
            return bought, bought

        try:
            visit = self._sessions.update(_key(name), buy)
        except UnknownSessionError:
            message = f"this session is over: it was not used for long, or made room for newer ones; open /{name} again"
            raise RequestError(410, "session_gone", message) from None
        except BusySessionError as error:
            raise RequestError(409, "busy", f"{error}; buy once") from error
        self._metrics.count("purchases")
        goal = self._shop.goal(visit.goal)
        parts = self._shop.buy(goal, product, dict(chosen), self._formula)
        details = parts.as_info()
        state = PageState("done", asin=product.asin, options=chosen)
        self._write(name, "done", visit, state, reward=parts.total, reward_info=details, price=parts.price)
        code = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10].upper()
        revealed = (goal, details) if self._reveal_goals else (None, None)
        receipt = full_receipt(product, dict(chosen), parts.total, code, *revealed)
        text = PageText(goal.instruction, name, parts.total, parity=True, people=True)
        return Response(self._shop.html.render(state, text, receipt, again=f"/{quote(name)}"), mimetype="text/html")

    def picture(self, asin: str) -> Response:
        """A drawing of a product."""
        drawing = svg(self._product(asin), request.args.get("color", "")[:60])
        return Response(drawing, mimetype="image/svg+xml", headers={"Cache-Control": "max-age=86400"})

    def _visited(self, name: str) -> Visit:
        """The session of a start page: the running one, or a new one."""
        visit, is_new = self._sessions.begin(_key(name), Visit(self._goal_of(name)), lambda present: present.done)
        if is_new:
            self._metrics.count("sessions_created")
        return visit

    def _goal_of(self, name: str) -> int:
        number = fixed_goal(name)
        if number is None:
            digest = hashlib.sha256(f"{self._shop.catalog.hash} {name}".encode()).digest()
            return self._shop.goals.sample(random.Random(int.from_bytes(digest[:8], "big")))
        if number >= len(self._shop.goals):
            raise RequestError(404, "unknown_goal", f"there is no goal {number}; use 0 to {len(self._shop.goals) - 1}")
        return number

    def _visit(self, session_id: str) -> tuple[str, Visit]:
        name = session_name(session_id)
        try:
            return name, self._sessions.get(_key(name))
        except UnknownSessionError:
            message = f"there is no session {name}, or it was not used for long; open /{name} first"
            raise RequestError(404, "unknown_session", message) from None

    def _product(self, asin: str) -> Product:
        try:
            return self._shop.catalog.product(asin)
        except UnknownProductError as error:
            raise RequestError(404, "unknown_product", str(error)) from error

    def _product_state(self, asin: str, keywords: str, page: str, options: str) -> PageState:
        product = self._product(asin)
        chosen = chosen_options(options, _fields(), product)
        return PageState("item", search_words(keywords), page_number(page), asin, chosen, filters=_filters())

    def _page(self, name: str, visit: Visit, state: PageState) -> Response:
        text = PageText(self._shop.goal(visit.goal).instruction, name, parity=True, people=True)
        return Response(self._shop.html.render(state, text), mimetype="text/html")

    def _write(self, name: str, page: str, visit: Visit, state: PageState | None = None, **content: object) -> None:
        if self._log is None:
            return
        shown = {} if state is None else _content(self._shop, state)
        record = {"page": page, "url": request.full_path.rstrip("?"), "goal": visit.goal, "content": shown, **content}
        self._log.write(name, record)


def _content(shop: Shop, state: PageState) -> dict[str, object]:
    content: dict[str, object] = {"keywords": state.keywords, "page": state.page}
    if state.kind == "results":
        return {**content, "search_result_asins": shop.store.shown(state)}
    return {**content, "asin": state.asin, "options": dict(state.options)}


def _key(name: str) -> str:
    """Keys of classic sessions; those of the API begin otherwise, so that no name can be another's token."""
    return f"classic {name}"


def _moved(address: str, status: int = 302) -> Response:
    response = redirect(address, status)
    assert isinstance(response, Response)
    return response


def _fields() -> Mapping[str, str]:
    """The chosen options that a form sent."""
    return request.form.to_dict() if request.method == "POST" else {}


def _filters() -> tuple[Filter, ...]:
    """The filters of the query: `filter=price<50`, or the fields of the form on the page."""
    filled = (
        prefix + request.args[name] for name, prefix in _FORM_FILTERS.items() if request.args.get(name, "").strip()
    )
    return read_filters([*request.args.getlist("filter"), *filled])
