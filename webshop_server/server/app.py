"""The store as a Flask application: pages for people and for programs.

The addresses are the original's: a path carries all of a page's state, GET and POST do the same, `/fixed_17` plays goal
17, and a session's goal follows from its name. A program may begin a session with rules of its own, in the query of its
start page (`_asked_for`); then each of its pages carries the store's answer as JSON in the element `#webshop`, and the
field `action` that is sent to the start page is carried out. A session buys once. Anybody can buy for goal 17 while
others shop for it, so the page of a purchase does not show the goal.
"""

import ast
import hashlib
import json
import logging
import random
import re
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flask import Flask, Response, abort, redirect, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, NotFound, ServiceUnavailable
from werkzeug.routing import IntegerConverter
from werkzeug.wsgi import get_input_stream

from webshop_server.catalog import Catalog, UnknownProductError
from webshop_server.catalog.product import Product
from webshop_server.goals.goals import SPLITS, GoalError, UnknownGoalError
from webshop_server.goals.reward import REWARD_MODES, RewardMode
from webshop_server.server.sessions import MAX_SESSIONS, Sessions, UnknownSessionError, private_folder
from webshop_server.store.answer import MODES, REWARDS
from webshop_server.store.page_html import Links
from webshop_server.store.page_text import PageText
from webshop_server.store.pictures import svg
from webshop_server.store.shop import Episode, Rules, Shop, open_shop
from webshop_server.store.state import CONTROL, MAX_QUERY, PAGE_SIZE, START, PageState

MAX_BODY = 64 * 1024  # bytes
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_LONGEST_ACTION = _LONGEST_LITERAL = 4000  # characters
_FORMAT = 6  # of what is kept of sessions
_NAME = re.compile(r"[A-Za-z0-9_.~:@-]{1,128}")  # of a session
_FIXED = re.compile(r"(?:.*_)?(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_NUMBERS = ("goal", "index", "seed")
_CHOICES = {"split": SPLITS, "mode": MODES, "reward": REWARDS, "parity": ("0", "1"), "show_actions": ("0", "1")}
_log = logging.getLogger(__name__)


class _Page(IntegerConverter):  # of results
    regex = r"[0-9]{1,6}"

    def to_python(self, value: str) -> int:
        return int(value) or abort(404, "results begin with page 1, so there is no page 0")


def create_app(
    catalog: str | Path | Catalog = "synthetic",
    *,
    seed: int = 0,
    human_goals: bool = False,
    reward_mode: RewardMode = "webshop",
    nouns: str | None = None,
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
        cache_dir: Where files made from the catalogue go; None for beside it.
        sessions: The file that keeps sessions, in a folder that only this user can write. None for one among the
            temporary files, which all processes of this user share that serve the same goals by the same rules.
        max_sessions: How many sessions are kept.

    Raises:
        CatalogError, GoalError: If the catalogue cannot be opened, or makes no tasks.
        OSError: If the folder of sessions belongs to somebody else.
        ValueError: If another argument has no meaning, or the tagger is not installed.
    """
    if reward_mode not in REWARD_MODES:
        raise ValueError(f"reward_mode={reward_mode!r} is unknown; use one of {', '.join(REWARD_MODES)}")
    shop = open_shop(catalog, seed=seed, human_goals=human_goals, nouns=nouns, cache_dir=cache_dir)
    if sessions is None:
        kind = (_FORMAT, shop.catalog.hash, seed, human_goals, nouns, reward_mode)
        sessions = private_folder() / f"{hashlib.sha256(repr(kind).encode()).hexdigest()[:16]}.sqlite"
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.url_map.merge_slashes = False  # a search may have "//" in it
    app.url_map.converters["page"] = _Page
    _add_pages(app, shop, Sessions(sessions, max_sessions), Rules(reward=reward_mode, parity=True))
    _add_errors(app, shop)

    @app.before_request
    def small_enough() -> None:
        """A body too large is read to its end: gunicorn would end the connection without a word to the client."""
        if MAX_BODY < (request.content_length or 0) <= 256 * MAX_BODY:
            body = get_input_stream(request.environ)
            while body.read(MAX_BODY):
                pass
            abort(413)

    @app.after_request
    def guarded(response: Response) -> Response:
        response.headers.update(_HEADERS)
        if response.mimetype == "text/html":
            response.headers["Cache-Control"] = "no-store"
        return response

    return app


def _add_pages(app: Flask, shop: Shop, sessions: Sessions, rules: Rules) -> None:
    """Adds the routes; `rules` are those of sessions that do not say so themselves."""
    address = "<session>/<asin>/<path:keywords>/<page:page>"

    def route(address: str) -> Any:
        return app.route(address, methods=["GET", "POST"])

    def shown(name: str, episode: Episode, state: PageState) -> Response:
        """A page of a session, with the store's answer in it where the session has rules of its own."""
        carried, code = "", ""
        goal, parts = shop.goal(episode.goal), episode.parts if state.kind == "done" else None
        if episode.rules.carries:
            facts = {"store": shop.about()} if state.kind == "start" else {}
            told = shop.answer(replace(episode, state=state))
            carried = told.as_json(goal=goal.id, instruction=goal.instruction, **facts)
        if parts is not None:  # the code a paid worker would hand in
            code = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10].upper()
        page = PageText(goal.instruction, name, None if parts is None else parts.total, parity=episode.rules.parity)
        html = shop.html.render(state, page, code, carried)
        return Response(html.encode("utf-8", "replace"), mimetype="text/html")

    @route("/")
    def home() -> ResponseReturnValue:
        """A new session for every visitor. The original sends all of them to the same one."""
        return redirect(f"/{secrets.token_urlsafe(24)}")

    @app.route("/healthz")
    def healthz() -> Mapping[str, bool]:
        """Whether episodes can be played: the store is open, and sessions can be kept."""
        sessions.put("", Episode(0))  # no session has this name
        return {"ready": True}

    @app.route("/picture/<asin>.svg")
    def picture(asin: str) -> Response:
        """A drawing of a product."""
        drawing = svg(shop.catalog.product(asin), request.args.get("color", "")[:60])
        return Response(drawing, mimetype="image/svg+xml", headers={"Cache-Control": "max-age=86400"})

    @app.route("/drawing/<session>.svg")
    def drawing(session: str) -> Response:
        """A drawing of what the page of an episode shows."""
        return Response(shop.picture(sessions.update(session), PAGE_SIZE), mimetype="image/svg+xml")

    @route("/<session>")
    def start(session: str) -> ResponseReturnValue:
        """The start page; with a query from its form, the way to the results; with an action, where it leads.

        Asking for the head begins nothing.
        """
        if (action := request.form.get("action")) is not None:
            episode = sessions.update(session, lambda old: acted(old, action))
            return shown(session, episode, episode.state)
        episode = begun = fresh(session)
        if request.method != "HEAD":  # a visitor who comes back goes on
            goes_on = not begun.rules.carries
            episode = sessions.update(session, lambda old: old if goes_on and not old.done else begun, begun)
        if (query := request.form.get("search_query", "")).strip():
            words = _checked(tuple(query.lower().split(" ")))
            return redirect(Links(session, PageState("results", words, 1)).results())
        return shown(session, episode, START)

    def fresh(name: str) -> Episode:
        """A new session, by the rules of the query or, without one, by its name."""
        if not _NAME.fullmatch(name):
            abort(404, f"the session {name[:40]!r} needs a name of 1 to 128 letters, digits and _.~:@-")
        if request.args:
            split, asked, own = _asked_for(request.args.to_dict(), rules.reward)
            return shop.start(shop.find_goal(split, **asked), own)
        if "fixed" not in name:
            digest = hashlib.sha256(f"{shop.catalog.hash} {name}".encode()).digest()
            return shop.start(shop.goals.sample(random.Random(int.from_bytes(digest[:8], "big"))), rules)
        if (number := _FIXED.fullmatch(name)) is None:
            abort(404, f"the name {name!r} has 'fixed' in it but no number after its last '_'")
        return shop.start(int(number[1]), rules)

    def acted(episode: Episode, action: str) -> Episode:
        """Carries out an action of a session with rules of its own."""
        if len(action) > _LONGEST_ACTION:
            abort(400, f"an action has at most {_LONGEST_ACTION} characters, this has {len(action)}")
        if not episode.rules.carries:
            abort(400, "an action is for a session that began with rules, such as /NAME?goal=17&mode=text")
        return shop.step(episode, action)

    @route("/search_results/<session>/<path:keywords>/<page:page>")
    def results(session: str, keywords: str, page: int) -> Response:
        """A page of results; one after the last is empty, as in the original."""
        return shown(session, sessions.update(session), PageState("results", _words(keywords), page))

    @route(f"/item_page/{address}/<options>")
    @route(f"/item_sub_page/{address}/<any(Description, Features, Reviews):sub>/<options>")
    def item(session: str, asin: str, keywords: str, page: int, options: str, sub: str = "") -> ResponseReturnValue:
        """A product, or its description, features or reviews. A choice that a form sends has its own address."""
        episode, chosen = sessions.update(session), _chosen_options(options, shop.catalog.product(asin))
        state = PageState("sub_page" if sub else "item", _words(keywords), page, asin, chosen, sub)
        if request.form:
            return redirect(Links(session, state).item(sub_page=sub), 303)
        return shown(session, episode, state)

    @route("/done/<session>/<asin>/<options>")
    def done(session: str, asin: str, options: str) -> Response:
        """The purchase, once a session. Old programs buy with GET, so GET buys; asking for the head does not."""
        if request.method == "HEAD":
            abort(405, "a purchase is made with POST or GET")
        product = shop.catalog.product(asin)
        state = PageState("done", asin=product.asin, options=_chosen_options(options, product))

        def bought(episode: Episode) -> Episode:
            if episode.done:
                abort(409, "this session has bought; its start page begins a new one")
            parts = shop.buy(shop.goal(episode.goal), product, dict(state.options), episode.rules.formula)
            return replace(episode, state=state, parts=parts, reward=parts.total)

        return shown(session, sessions.update(session, bought), state)


def _add_errors(app: Flask, shop: Shop) -> None:
    """Answers every refusal with a page; Flask logs what was not foreseen, and makes 500 of it."""

    def refused(error: HTTPException) -> Any:
        response = error.get_response()
        if (status := error.code or 500) >= 400:
            message = error.description or ""
            page = shop.html.error(status, error.name, message[:1].upper() + message[1:])
            response.data = page.encode("utf-8", "replace")
        return response

    def no_sessions(error: sqlite3.Error) -> Any:
        _log.error("sessions cannot be kept: %s", error)
        told = f"sessions cannot be kept ({error}); try again in a while"
        return refused(ServiceUnavailable(told, retry_after=2))

    app.register_error_handler(HTTPException, refused)
    app.register_error_handler(sqlite3.Error, no_sessions)
    for kind in (GoalError, UnknownGoalError, UnknownProductError, UnknownSessionError):
        app.register_error_handler(kind, lambda error: refused(NotFound(str(error))))


def _asked_for(query: Mapping[str, str], formula: str) -> tuple[str, dict[str, int], Rules]:
    """Reads the query of a start page: the arguments of `Shop.find_goal` and of `Rules`."""
    for name, value in query.items():
        if not (_NUMBER.fullmatch(value) if name in _NUMBERS else value in _CHOICES.get(name, ())):
            choices = "; ".join(f"{field}: {', '.join(values)}" for field, values in _CHOICES.items())
            told = f"{name[:40]}={value[:40]!r} is not understood. {', '.join(_NUMBERS)}: a whole number from 0 on"
            abort(400, f"{told}; {choices}")
    numbers = {name: int(query[name]) for name in _NUMBERS if name in query}
    if len(numbers) > 1:
        abort(400, "give only one of goal, index and seed")
    parity, shows = (query.get(name) == "1" for name in ("parity", "show_actions"))
    rules = Rules(query.get("mode", "text"), query.get("reward", formula), parity, shows, carries=True)
    if parity and rules.mode == "short":
        abort(400, "mode 'short' is not the original's; leave parity out, or take 'text'")
    return query.get("split", "all"), numbers, rules


def _words(text: str) -> tuple[str, ...]:
    """Reads the keywords of an address: a list, or plain text, which is one keyword as in the original."""
    words: Any = literal(text) if text.startswith("[") else [text]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        abort(400, f"the keywords {text[:60]!r} cannot be read: write a list of strings, or words")
    return _checked(tuple(words))


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    """Refuses queries that no shopper writes: blank ones, long ones, and those with control characters in them."""
    query = " ".join(words)
    if not query.strip():
        abort(400, "the search is blank; write what to look for")
    if len(query) > MAX_QUERY or CONTROL.search(query):
        abort(400, f"a search has at most {MAX_QUERY} characters, and no control character; this has {len(query)}")
    return words


def _chosen_options(text: str, product: Product) -> tuple[tuple[str, str], ...]:
    """Reads the options of an address, and those of a form that add to them."""
    options = literal(text)
    if not isinstance(options, dict):
        abort(400, f"the options {text[:60]!r} cannot be read: write a dict of strings")
    options = {**options, **request.form.to_dict()}
    for name, value in options.items():
        if not isinstance(name, str) or value not in product.options.get(name, ()):
            told = f"product {product.asin} has no option {name!r:.40} with the value {value!r:.40}"
            abort(400, f"{told}; take one from its page")
    return tuple(options.items())


def literal(text: str) -> Any:
    """What a text stands for in JSON or in Python's notation, as programs for the original write it; None if nothing.

    >>> literal('''['red', "men's"]'''), literal('{"fit type": "men"}'), literal("print()")
    (['red', "men's"], {'fit type': 'men'}, None)
    """
    if len(text) > _LONGEST_LITERAL:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
            json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be shown
            return found
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None
