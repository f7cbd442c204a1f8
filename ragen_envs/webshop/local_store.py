"""The store in this process: the Flask app of `webshop_server`, made once for all environments with the same settings.

Only this module imports `webshop_server`, and only when a store is opened.
"""

import functools
import io
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httpx

from ragen_envs.errors import EnvError
from ragen_envs.webshop.client import ShopConnection


@dataclass(frozen=True)
class StoreSettings:
    """A store in this process.

    Attributes:
        catalog: "toy", "synthetic", "synthetic:5000", or the path of a catalogue.
        human_goals: Whether goals are those that people wrote, and not generated ones.
        nouns: Name of the noun tagger, see `webshop_server.goals.nouns`; None for the one that suits the catalogue.
    """

    catalog: str
    human_goals: bool
    nouns: str | None


class StoreSettingsError(EnvError, ValueError):
    """No store can be opened with these settings; the message says why."""


class HiddenGoalError(EnvError, TypeError):
    """The oracle cannot see the goal, because the store is not in this process."""


class LocalStore:
    """A store in this process. It is opened at its first use, once for all threads."""

    def __init__(self, settings: StoreSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._lock = threading.Lock()
        self._app: Any = None

    def app(self) -> Any:
        """The Flask app.

        Raises:
            StoreSettingsError: If it cannot be made with these settings.
        """
        with self._lock:
            if self._app is None:
                from webshop_server import create_app

                settings = self._settings
                try:
                    self._app = create_app(settings.catalog, human_goals=settings.human_goals, nouns=settings.nouns)
                except ValueError as error:
                    raise StoreSettingsError(f"catalog={settings.catalog!r}: {error}") from error
            return self._app

    def shop(self) -> Any:
        """The app's shop with its goals, a `webshop_server.store.shop.Shop`; for oracles."""
        return self.app().extensions["webshop"]

    def page(self, played: Iterable[str], parity: bool) -> Any:
        """The page to which these actions lead, a `webshop_server.store.state.PageState`; for oracles.

        Products may be named by their numbers, as on pages of the mode `short`.
        """
        from webshop_server.store.page_short import with_identifier
        from webshop_server.store.state import START

        store, state = self.shop().store, START
        for action in played:
            state, _ = store.act(state, action if parity else with_identifier(store, state, action), parity=parity)
        return state

    def rank(self, query: str, asin: str) -> int:
        """Rank of a product among the hits of a search, from 0, also beyond those that are shown; for oracles.

        A product that is not among the first `filters.SEARCH_DEPTH` hits has that number.
        """
        from webshop_server.store.filters import SEARCH_DEPTH

        hits = list(self.shop().store.index.search(query.lower().split(), limit=SEARCH_DEPTH))
        return hits.index(asin) if asin in hits else SEARCH_DEPTH

    def options_for(self, goal: Any) -> Mapping[str, str]:
        """The options to choose for a `webshop_server.goals.goals.Goal`, values by name; for oracles."""
        from webshop_server.store.winnable import own_options

        return own_options(self.shop().catalog.product(goal.asin), goal)

    def choices(self, asin: str, goal: Any) -> Mapping[str, str]:
        """The values of a product's options that come closest to a goal's, by name; for oracles.

        Options that the goal leaves open are left open, and so are those of which the product offers nothing similar.
        """
        from webshop_server.store.winnable import closest_options

        return closest_options(self.shop().catalog.product(asin), goal)

    def looks_right(self, asin: str, goal: Any) -> bool:
        """Whether a product is of the kind that a goal asks for, at the price among the results; for oracles.

        Of a range that is the lower end. An option may cost less, which is not seen before the product is opened.
        """
        parts = self._bought(asin, {}, goal)
        return bool(parts.r_type == 1 and parts.r_price)

    def will_do(self, asin: str, goal: Any) -> bool:
        """Whether a product that looks right has the price and options that are asked for; for oracles."""
        if not self.looks_right(asin, goal):
            return False
        parts = self._bought(asin, self.choices(asin, goal), goal)
        return bool(parts.r_price and all(parts.options_met))

    def _bought(self, asin: str, options: Mapping[str, str], goal: Any) -> Any:
        """The parts of the corrected score of a purchase."""
        shop = self.shop()
        return shop.buy(goal, shop.catalog.product(asin), options, "fixed")


@functools.cache
def _local_store(settings: StoreSettings, process: int) -> LocalStore:
    return LocalStore(settings)


def local_store(settings: StoreSettings) -> LocalStore:
    """The store in this process that all environments with these settings share.

    A forked process makes its own: locks and database connections must not be used on both sides of a fork.
    """
    return _local_store(settings, os.getpid())


def goal_difficulty(base_url: str | None, settings: StoreSettings, goal: int) -> int:
    """Attributes and options that a goal asks for, and 1 for a highest price; errors are those of `store_behind`."""
    from webshop_server.goals.goals import NO_PRICE_BOUND

    wanted = store_behind(base_url, settings).shop().goal(goal)
    return len(wanted.attributes) + len(wanted.options) + (wanted.price_upper < NO_PRICE_BOUND)


def goal_product(base_url: str | None, settings: StoreSettings, goal: int) -> str:
    """The ASIN of the product that a goal was made from; errors are those of `store_behind`."""
    return store_behind(base_url, settings).shop().goal(goal).asin


def store_behind(base_url: str | None, settings: StoreSettings) -> LocalStore:
    """The store of an environment, for oracles.

    Raises:
        HiddenGoalError: If it is that of a server.
    """
    if base_url is not None:
        raise HiddenGoalError(
            f"only the server at {base_url} knows the goal; make the environment without base_url, and with the "
            "server's catalogue, to have the same goals in this process"
        )
    return local_store(settings)


class _LocalClient(httpx.Client):
    """Calls the app itself for what is JSON: httpx's own way there takes as long as the app."""

    def __init__(self, app: Any) -> None:
        super().__init__(transport=httpx.WSGITransport(app=app), base_url="http://localhost")
        self._app = app

    def request(
        self, method: str, url: Any, *, content: Any = None, headers: Any = None, **others: Any
    ) -> httpx.Response:
        """The app's answer: by itself for a path in ASCII, a body and its type; by httpx for all else."""
        is_path = isinstance(url, str) and url.startswith("/") and url.isascii()
        if others or not is_path or headers is None or [*headers] != ["Content-Type"]:
            return super().request(method, url, content=content, headers=headers, **others)
        status = ""

        def start_response(line: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            nonlocal status
            status = line

        parts = self._app(_environ(method, url, content or b"", headers["Content-Type"]), start_response)
        try:
            body = b"".join(parts)  # which may be what sets the status
            return httpx.Response(int(status.split()[0]), content=body)
        finally:
            if close := getattr(parts, "close", None):
                close()


def _environ(method: str, path: str, content: bytes, content_type: str) -> dict[str, Any]:
    """A request as PEP 3333 has it."""
    address, _, query = path.partition("?")
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(address, encoding="latin-1"),
        "QUERY_STRING": query,
        "CONTENT_TYPE": content_type,
        "CONTENT_LENGTH": str(len(content)),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(content),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _connect(settings: StoreSettings) -> _LocalClient:
    return _LocalClient(local_store(settings).app())


def local_connection(settings: StoreSettings) -> ShopConnection:
    """A connection to the store in this process; neither of them is open yet."""
    remedy = (
        "this should never happen, please report it; until then start `webshop-server` and pass its address as base_url"
    )
    return ShopConnection("this process", functools.partial(_connect, settings), remedy)
