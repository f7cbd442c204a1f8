"""The store as a Flask application: pages for people and for programs.

The addresses are the original's: a path carries all of a page's state, GET and POST do the same, `/fixed_17` plays goal
17, and a session's goal follows from its name. A program may begin a session with rules of its own, in the query of its
start page (`requests.asked_for`); then each of its pages carries the store's answer as JSON in the element `#webshop`,
and the field `action` that is sent to the start page is carried out. A session buys once. Anybody can buy for goal 17
while others shop for it, so the page of a purchase shows the goal only with `--reveal-goals`.
"""

import hashlib
import logging
import random
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from flask import Flask, Response, redirect, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from webshop_server.catalog import Catalog, UnknownProductError
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import GoalError, UnknownGoalError
from webshop_server.goals.reward import REWARD_MODES, RewardMode
from webshop_server.server import requests
from webshop_server.server.requests import refuse
from webshop_server.server.sessions import (
    MAX_SESSIONS,
    BusySessionError,
    Sessions,
    UnknownSessionError,
    Visit,
    private_folder,
)
from webshop_server.store.filters import Filter
from webshop_server.store.links import Links
from webshop_server.store.page_html import Receipt
from webshop_server.store.page_text import PageText
from webshop_server.store.pictures import svg
from webshop_server.store.shop import Rules, Shop, open_shop
from webshop_server.store.state import PAGE_SIZE, START, PageKind, PageState

_BOTH = ("GET", "POST")
_FORM_FILTERS = {"price_max": "price<=", "category": "category=", "color": "color="}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_LONGEST_ACTION = 4000  # characters
_FORMAT = 3  # of what is kept of sessions
_log = logging.getLogger(__name__)


def create_app(
    catalog: str | Path | Catalog = "synthetic",
    *,
    seed: int = 0,
    human_goals: bool = False,
    reward_mode: RewardMode = "webshop",
    nouns: str | None = None,
    show_attributes: bool = False,
    reveal_goals: bool = False,
    cache_dir: str | Path | None = None,
    sessions: str | Path | None = None,
    max_sessions: int = MAX_SESSIONS,
) -> Flask:
    """Makes the store as a WSGI application, ready to serve, also by several processes.

    Args:
        catalog: "toy", "synthetic", "synthetic:N", the path of the public data, or an open catalogue.
        seed: Of prices, and of what the bundled catalogues hold.
        human_goals: Whether the tasks are those that people wrote.
        reward_mode: How purchases are scored where a session does not say so itself.
        nouns: Name of the noun tagger; None takes the nouns of the catalogue, or rules where it has none.
        show_attributes: Whether product pages have a page of attributes.
        reveal_goals: Whether the page of a purchase tells the goal and the parts of its score. Everyone can then learn
            any goal: goals are numbered, and `/fixed_17` plays number 17.
        cache_dir: Where files made from the catalogue go; None for beside it.
        sessions: The file that keeps sessions, in a folder that only this user can write. None for one among the
            temporary files, which all processes of this user share that serve the same goals by the same rules.
        max_sessions: About how many sessions are kept.

    Raises:
        CatalogError, GoalError: If the catalogue cannot be opened, or makes no tasks.
        OSError: If the folder of sessions belongs to somebody else.
        ValueError: If another argument has no meaning, or the tagger is not installed.
    """
    if reward_mode not in REWARD_MODES:
        raise ValueError(f"reward_mode={reward_mode!r} is unknown; use one of {', '.join(REWARD_MODES)}")
    shop = open_shop(
        catalog, seed=seed, human_goals=human_goals, nouns=nouns, show_attributes=show_attributes, cache_dir=cache_dir
    )
    if sessions is None:
        kind = (_FORMAT, shop.catalog.hash, seed, human_goals, nouns, show_attributes, reward_mode)
        sessions = private_folder() / f"{hashlib.sha256(repr(kind).encode()).hexdigest()[:16]}.sqlite"
    kept = Sessions(sessions, max_sessions)
    pages = Pages(shop, kept, reward_mode, reveal_goals)
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = requests.MAX_BODY
    app.url_map.merge_slashes = False  # a search may have "//" in it
    pages.add_to(app)
    _add_errors(app, shop)
    app.after_request(_add_headers)
    return app


class Pages:
    """The routes. One object serves all threads."""

    def __init__(self, shop: Shop, sessions: Sessions, formula: RewardMode, reveal_goals: bool) -> None:
        """Keeps what the routes need; see `create_app`."""
        self._shop, self._sessions, self._reveal_goals = shop, sessions, reveal_goals
        self._rules = Rules(reward=formula, parity=True)

    def add_to(self, app: Flask) -> None:
        """Adds the routes; `/<session_id>` takes every path of one part that is left."""
        add = app.add_url_rule
        item = "<session_id>/<asin>/<path:keywords>/<page>"
        add("/", view_func=self.home, methods=_BOTH)
        add("/healthz", view_func=self.healthz)
        add("/robots.txt", view_func=lambda: Response("User-agent: *\nDisallow: /\n", mimetype="text/plain"))
        add("/favicon.ico", endpoint="icon", view_func=lambda: app.send_static_file("icon.svg"))
        add("/picture/<asin>.svg", view_func=self.picture)
        add("/drawing/<session_id>.svg", view_func=self.drawing)
        add("/<session_id>", view_func=self.start, methods=_BOTH)
        add("/search_results/<session_id>/<path:keywords>/<page>", view_func=self.results, methods=_BOTH)
        add(f"/item_page/{item}/<options>", view_func=self.item, methods=_BOTH)
        add(f"/item_sub_page/{item}/<sub_page>/<options>", endpoint="sub_page", view_func=self.item, methods=_BOTH)
        add("/done/<session_id>/<asin>/<options>", view_func=self.done, methods=_BOTH)

    def home(self) -> ResponseReturnValue:
        """A new session for every visitor. The original sends all of them to the same one."""
        return redirect(f"/{secrets.token_urlsafe(24)}")

    def healthz(self) -> Mapping[str, bool]:
        """Whether episodes can be played: the store is open, and sessions can be kept."""
        self._sessions.check()
        return {"ready": True}

    def start(self, session_id: str) -> ResponseReturnValue:
        """The start page; with a query from its form, the way to the results; with an action, where it leads.

        Asking for the head begins nothing.
        """
        name = requests.session_name(session_id)
        if "action" in request.form:
            return self._act(name, request.form["action"])
        visit = self._fresh(name)
        if request.method == "HEAD":
            return self._page(name, visit, START)
        if visit.carries:
            self._sessions.put(name, visit)
        else:
            visit = self._sessions.begin(name, visit)
        query = request.form.get("search_query", "")
        if query.strip():
            requests.check_query(query)
            return redirect(Links(name, PageState("results", tuple(query.lower().split(" ")), 1)).results())
        return self._page(name, visit, START)

    def _fresh(self, name: str) -> Visit:
        """A new session, by the rules of the query or, without one, by its name."""
        try:
            if request.args:
                split, asked, rules = requests.asked_for(request.args.to_dict(), self._rules.reward)
                return Visit(self._shop.start(self._shop.find_goal(split, **asked), rules), carries=True)
            number = requests.fixed_goal(name)
            if number is None:
                digest = hashlib.sha256(f"{self._shop.catalog.hash} {name}".encode()).digest()
                number = self._shop.goals.sample(random.Random(int.from_bytes(digest[:8], "big")))
            return Visit(self._shop.start(number, self._rules))
        except (GoalError, UnknownGoalError) as error:
            refuse(404, str(error))

    def _act(self, name: str, action: str) -> Response:
        """Carries out an action of a session with rules of its own."""
        if len(action) > _LONGEST_ACTION:
            refuse(400, f"an action has at most {_LONGEST_ACTION} characters, this has {len(action)}")

        def act(visit: Visit) -> Visit:
            if not visit.carries:
                refuse(400, "an action is for a session that began with rules, such as /NAME?goal=17&mode=text")
            return replace(visit, episode=self._shop.step(visit.episode, action))

        visit = self._changed(name, act)
        return self._page(name, visit, visit.episode.state)

    def results(self, session_id: str, keywords: str, page: str) -> Response:
        """A page of results; one after the last is empty, as in the original."""
        visit = self._changed(session_id)
        words, number = requests.search_words(keywords), requests.number(page, "page")
        return self._page(session_id, visit, PageState("results", words, number, filters=_filters()))

    def item(
        self, session_id: str, asin: str, keywords: str, page: str, options: str, sub_page: str = ""
    ) -> ResponseReturnValue:
        """A product, or its description, features or reviews. A choice that a form sends has its own address."""
        visit = self._changed(session_id)
        if sub_page and sub_page not in (allowed := self._shop.store.sub_pages):  # in its exact case
            refuse(404, f"there is no page {sub_page[:40]!r}; use one of {', '.join(allowed)}")
        chosen = requests.chosen_options(options, _fields(), self._product(asin))
        words, number = requests.search_words(keywords), requests.number(page, "page")
        kind: PageKind = "sub_page" if sub_page else "item"
        state = PageState(kind, words, number, asin, chosen, sub_page, filters=_filters())
        if request.form:
            links = Links(session_id, state)
            return redirect(links.sub_page(sub_page) if sub_page else links.item(), 303)
        return self._page(session_id, visit, state)

    def done(self, session_id: str, asin: str, options: str) -> Response:
        """The purchase, once a session. Old programs buy with GET, so GET buys; asking for the head does not."""
        if request.method == "HEAD":
            refuse(405, "a purchase is made with POST or GET")
        self._changed(session_id)
        product = self._product(asin)
        chosen = requests.chosen_options(options, _fields(), product)
        state = PageState("done", asin=product.asin, options=chosen)

        def buy(present: Visit) -> Visit:
            episode = present.episode
            if episode.done:
                refuse(409, "this session has bought; its start page begins a new one")
            parts = self._shop.buy(self._shop.goal(episode.goal), product, dict(chosen), episode.rules.formula)
            return replace(present, episode=replace(episode, state=state, parts=parts, reward=parts.total))

        return self._page(session_id, self._changed(session_id, buy), state)

    def picture(self, asin: str) -> Response:
        """A drawing of a product."""
        drawing = svg(self._product(asin), request.args.get("color", "")[:60])
        return Response(drawing, mimetype="image/svg+xml", headers={"Cache-Control": "max-age=86400"})

    def drawing(self, session_id: str) -> Response:
        """A drawing of what the page of an episode shows."""
        hits = requests.number(request.args.get("hits", "10"), "hits", PAGE_SIZE)
        episode = self._changed(session_id).episode
        return Response(self._shop.picture(episode, hits), mimetype="image/svg+xml")

    def _changed(self, session_id: str, change: Callable[[Visit], Visit] = lambda visit: visit) -> Visit:
        name = requests.session_name(session_id)
        try:
            return self._sessions.update(name, change)
        except UnknownSessionError:
            refuse(404, f"there is no session {name}, or newer ones have taken its place; open /{name} first")
        except BusySessionError as error:
            refuse(409, f"{error}; send a session's requests one after the other")

    def _product(self, asin: str) -> Product:
        try:
            return self._shop.catalog.product(asin)
        except UnknownProductError as error:
            refuse(404, str(error))

    def _page(self, name: str, visit: Visit, state: PageState) -> Response:
        """A page of a session, with the store's answer in it where the session has rules of its own."""
        episode = visit.episode
        goal, parts = self._shop.goal(episode.goal), episode.parts if state.kind == "done" else None
        carried, receipt = "", None
        if visit.carries:
            facts = {"store": self._shop.about()} if state.kind == "start" else {}
            told = self._shop.answer(replace(episode, state=state))
            carried = told.as_json(goal=goal.id, instruction=goal.instruction, **facts)
        if parts is not None:
            code = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10].upper()
            receipt = Receipt(code, goal, parts.as_info()) if self._reveal_goals else Receipt(code)
        score = None if parts is None else parts.total
        text = PageText(goal.instruction, name, score, parity=episode.rules.parity, people=True)
        html = self._shop.html.render(state, text, receipt, f"/{quote(name)}", carried)
        return Response(html.encode("utf-8", "replace"), mimetype="text/html")


def _fields() -> Mapping[str, str]:
    """The chosen options that a form sent."""
    return request.form.to_dict() if request.method == "POST" else {}


def _filters() -> tuple[Filter, ...]:
    """The filters of the query: `filter=price<50`, or the fields of the form on the page."""
    filled = (
        prefix + request.args[name] for name, prefix in _FORM_FILTERS.items() if request.args.get(name, "").strip()
    )
    return requests.filters([*request.args.getlist("filter"), *filled])


def _add_errors(app: Flask, shop: Shop) -> None:
    """Answers every refusal with a page; Flask logs what was not foreseen, and makes 500 of it."""

    def page(status: int, title: str, message: str) -> Response:
        shown = shop.html.error(status, title, message[:1].upper() + message[1:])
        return Response(shown.encode("utf-8", "replace"), status, mimetype="text/html")

    def by_flask(error: HTTPException) -> Response:
        status = error.code or 500
        if status < 400:
            return Response(status=status, headers=error.get_headers())
        return page(status, error.name, error.description or "")

    def no_sessions(error: sqlite3.Error) -> Response:
        _log.error("sessions cannot be kept: %s", error)
        response = page(503, "Not now", f"sessions cannot be kept ({error}); try again in a while")
        response.headers["Retry-After"] = "2"
        return response

    app.register_error_handler(HTTPException, by_flask)
    app.register_error_handler(sqlite3.Error, no_sessions)


def _add_headers(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    if response.mimetype == "text/html":
        response.headers["Cache-Control"] = "no-store"
    return response
