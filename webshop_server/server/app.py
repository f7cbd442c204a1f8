"""The store as a Flask application: the shop, its routes, errors, headers and counters put together."""

import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from webshop_server.catalog import Catalog, open_catalog
from webshop_server.goals.goals import make_goals
from webshop_server.goals.nouns import noun_tagger
from webshop_server.goals.reward import REWARD_MODES, RewardMode
from webshop_server.search.index import SearchIndex
from webshop_server.server.api import JsonApi, as_json
from webshop_server.server.metrics import Metrics
from webshop_server.server.routes import ClassicPages
from webshop_server.server.session_log import SessionLog
from webshop_server.server.sessions import Sessions, SessionStore, Tokens
from webshop_server.server.validation import MAX_BODY, RequestError
from webshop_server.store.shop import Shop

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
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
    log: str | Path | None = None,
    sessions: SessionStore[Any] | None = None,
    tokens: Tokens | None = None,
    metrics: Metrics | None = None,
) -> Flask:
    """Makes the store as a WSGI application, ready to serve. Two applications share nothing but files.

    Args:
        catalog: "toy", "synthetic", "synthetic:N", the path of the public data, or an open catalogue.
        seed: Of prices, and of what the bundled catalogues hold.
        human_goals: Whether the tasks are those that people wrote.
        reward_mode: How purchases on the classic pages are scored. Sessions of the API choose for themselves.
        nouns: Name of the noun tagger; None takes the nouns of the catalogue, or rules where it has none.
        show_attributes: Whether product pages have a page of attributes.
        reveal_goals: Whether the classic page of a purchase tells the goal and the parts of its score. Everyone can
            then learn any goal: goals are numbered, and `/fixed_17` plays number 17.
        cache_dir: Where files made from the catalogue go; None for beside it.
        log: A folder for logs of sessions, or None.
        sessions: Where they are kept; None for `Sessions()` in this process.
        tokens: Names the API's sessions; None draws a secret.
        metrics: Where to count; None for this process alone.

    Returns:
        The application.

    Raises:
        CatalogError, GoalError: If the catalogue cannot be opened, or makes no tasks.
        NounTaggerError: If the tagger is unknown or not installed.
        OSError: If the folder for logs cannot be written.
        ValueError: If another argument has no meaning.
    """
    _check_mode(reward_mode)
    shop = open_shop(
        catalog, seed=seed, human_goals=human_goals, nouns=nouns, show_attributes=show_attributes, cache_dir=cache_dir
    )
    kept: SessionStore[Any] = Sessions() if sessions is None else sessions
    written, counted = None if log is None else SessionLog(log), metrics or Metrics()
    api = JsonApi(shop, kept, tokens=tokens or Tokens(), metrics=counted, log=written)
    classic = ClassicPages(shop, kept, formula=reward_mode, metrics=counted, log=written, reveal_goals=reveal_goals)
    return _assembled(shop, kept, counted, [api.blueprint(), classic.blueprint()])


def _check_mode(reward_mode: str) -> None:
    if reward_mode not in REWARD_MODES:
        raise ValueError(f"reward_mode={reward_mode!r} is unknown; use one of {', '.join(REWARD_MODES)}")


def _assembled(shop: Shop, sessions: SessionStore[Any], metrics: Metrics, routes: Iterable[Blueprint]) -> Flask:
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.extensions["webshop"] = shop  # for a caller who serves it in the same process
    app.url_map.merge_slashes = False  # a search may have "//" in it
    _add_status(app, sessions, metrics)
    for blueprint in routes:
        app.register_blueprint(blueprint)
    _add_errors(app, shop)
    app.after_request(_add_headers)
    app.wsgi_app = _counted(app.wsgi_app, metrics)  # type: ignore[assignment, method-assign]  # as Flask's manual says
    return app


def open_shop(
    catalog: str | Path | Catalog = "synthetic",
    *,
    seed: int = 0,
    human_goals: bool = False,
    nouns: str | None = None,
    show_attributes: bool = False,
    cache_dir: str | Path | None = None,
) -> Shop:
    """Opens a catalogue with its index and its goals; for arguments and errors see `create_app`."""
    products = catalog if isinstance(catalog, Catalog) else open_catalog(catalog, seed=seed, cache_dir=cache_dir)
    known = next(products.products()).nouns is not None
    tagger = noun_tagger(nouns or ("precomputed" if known else "rules"))
    goals = make_goals(products, human=human_goals)
    return Shop(products, SearchIndex.open(products), goals, tagger, show_attributes=show_attributes)


def _add_status(app: Flask, sessions: SessionStore[Any], metrics: Metrics) -> None:
    """The routes for those who run the server, and two addresses that browsers and robots ask for."""

    def healthz() -> Response:
        return as_json({"ready": True})

    def numbers() -> Response:
        return Response(metrics.text(len(sessions)), content_type="text/plain; version=0.0.4; charset=utf-8")

    def robots() -> Response:
        return Response("User-agent: *\nDisallow: /\n", mimetype="text/plain")

    app.add_url_rule("/healthz", view_func=healthz)
    app.add_url_rule("/metrics", view_func=numbers)
    app.add_url_rule("/robots.txt", view_func=robots)
    app.add_url_rule("/favicon.ico", endpoint="icon", view_func=lambda: app.send_static_file("icon.svg"))


def _add_errors(app: Flask, shop: Shop) -> None:
    """Answers every refusal, as JSON under /api and as a page elsewhere."""

    def answer(status: int, code: str, message: str) -> Response:
        if request.path.startswith("/api/"):
            return as_json({"error": code, "message": message}, status)
        title, sentence = code.replace("_", " ").capitalize(), message[:1].upper() + message[1:]
        page = shop.html.error(status, title, sentence, again="/", again_label="Start shopping")
        return Response(page, status, mimetype="text/html")

    def refused(error: RequestError) -> Response:
        return answer(error.status, error.code, error.message)

    def by_flask(error: HTTPException) -> Response:
        status = error.code or 500
        if status < 400:
            return Response(status=status, headers=error.get_headers())
        response = answer(status, (error.name or "error").lower().replace(" ", "_"), error.description or "")
        if status == 405 and "Allow" in (headers := dict(error.get_headers())):
            response.headers["Allow"] = headers["Allow"]
        return response

    def unforeseen(error: Exception) -> Response:
        _log.exception("error on %s %s", request.method, request.path, exc_info=error)
        return answer(500, "internal_error", "something went wrong in the server; its log says what")

    app.register_error_handler(RequestError, refused)
    app.register_error_handler(HTTPException, by_flask)
    app.register_error_handler(Exception, unforeseen)


def _add_headers(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    if response.mimetype == "text/html":
        response.headers["Cache-Control"] = "no-store"
    return response


def _counted(inner: "WSGIApplication", metrics: Metrics) -> "WSGIApplication":
    """Counts requests and the time they take; refuses them once the server is stopping."""

    def outer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        started = time.perf_counter()
        statuses = ["500"]

        def noted(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            statuses[0] = status
            return start_response(status, headers, exc_info)

        metrics.begin()
        try:
            if metrics.stopping:
                return _stopping(environ, noted)
            return inner(environ, noted)
        finally:
            metrics.end(int(statuses[0][:3]), time.perf_counter() - started)

    return outer


_stopping = Response(
    json.dumps({"ready": False, "error": "stopping", "message": "the server is stopping; try again in a while"}),
    status=503,
    headers={"Retry-After": "2"},
    mimetype="application/json",
)
