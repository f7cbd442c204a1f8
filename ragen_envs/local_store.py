"""The store in this process: `webshop_server`'s own Flask app, made once for all environments that want the same one.

The server's packages are imported here and nowhere else in this package, and only when a store is opened. Left out:
closing it again. A store lives as long as its process; the few that one process opens are kept.
"""

import functools
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from ragen_envs.shop_client import ShopConnection


@dataclass(frozen=True)
class StoreSettings:
    """A store in this process.

    Attributes:
        catalog: "toy", "synthetic", "synthetic:5000", or the path of a catalogue.
        human_goals: Goals that people wrote instead of generated ones.
        nouns: Name of the noun tagger, see `webshop_server.nouns`; None for what suits the catalogue.
    """

    catalog: str
    human_goals: bool
    nouns: str | None


class LocalStore:
    """A store in this process. Its parts are made when they are first asked for, whichever thread comes first."""

    def __init__(self, settings: StoreSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._lock = threading.Lock()
        self._catalog: Any = None
        self._app: Any = None
        self._shop: Any = None

    def app(self) -> Any:
        """The Flask app."""
        with self._lock:
            if self._app is None:
                from webshop_server import create_app

                self._app = create_app(
                    self._opened(), human_goals=self._settings.human_goals, nouns=self._settings.nouns
                )
            return self._app

    def shop(self) -> Any:
        """The same shop without HTTP, goals and all: a `webshop_server.shop.Shop`. For oracles."""
        with self._lock:
            if self._shop is None:
                from webshop_server.app import open_shop

                self._shop = open_shop(
                    self._opened(), human_goals=self._settings.human_goals, nouns=self._settings.nouns
                )
            return self._shop

    def page(self, played: Iterable[str], parity: bool) -> Any:
        """Where these actions lead from the first page: a `webshop_server.store.PageState`. For oracles."""
        from webshop_server.store import START

        act = self.shop().store.act
        return functools.reduce(lambda state, action: act(state, action, parity=parity)[0], played, START)

    def options_for(self, goal: Any) -> Mapping[str, str]:
        """Value by name that the product of a `webshop_server.goals.Goal` has to be bought with. For oracles."""
        from webshop_server.winnable import own_options

        return own_options(self.shop().catalog.product(goal.asin), goal)

    def _opened(self) -> Any:
        if self._catalog is None:
            from webshop_server.catalog import open_catalog

            self._catalog = open_catalog(self._settings.catalog)
        return self._catalog


@functools.lru_cache(maxsize=8)
def _local_store(settings: StoreSettings, process: int) -> LocalStore:
    return LocalStore(settings)


def local_store(settings: StoreSettings) -> LocalStore:
    """The store in this process that all environments with these settings share.

    A process that was forked makes its own: locks and database connections must not be used on both sides of a fork.
    """
    return _local_store(settings, os.getpid())


def _connect(settings: StoreSettings) -> httpx.Client:
    transport = httpx.WSGITransport(app=local_store(settings).app())
    return httpx.Client(transport=transport, base_url="http://localhost")


def local_connection(settings: StoreSettings) -> ShopConnection:
    """A connection to the store in this process; neither is opened yet."""
    return ShopConnection("this process", functools.partial(_connect, settings), "this should not happen")
