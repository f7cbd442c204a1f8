"""The store in this process: `webshop_server`'s own Flask app, made once for all environments that want the same one.

The server's packages are imported here and nowhere else in this package, and only when a store is opened. Left out:
closing it again. A store lives as long as its process: whoever opens many catalogues pays for all of them at once.
"""

import functools
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from ragen_envs.webshop.client import ShopConnection


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


class StoreSettingsError(ValueError):
    """No store can be opened with these settings; the message says why."""


class LocalStore:
    """A store in this process. It is opened when it is first asked for anything, whichever thread comes first."""

    def __init__(self, settings: StoreSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._lock = threading.Lock()
        self._app: Any = None

    def app(self) -> Any:
        """The Flask app.

        Raises:
            StoreSettingsError: If it cannot be made.
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
        """The app's shop, goals and all: a `webshop_server.shop.Shop`. For oracles."""
        return self.app().extensions["webshop"]

    def page(self, played: Iterable[str], parity: bool) -> Any:
        """Where these actions lead from the first page: a `webshop_server.store.PageState`. For oracles."""
        from webshop_server.store import START

        act = self.shop().store.act
        return functools.reduce(lambda state, action: act(state, action, parity=parity)[0], played, START)

    def options_for(self, goal: Any) -> Mapping[str, str]:
        """Value by name that the product of a `webshop_server.goals.Goal` has to be bought with. For oracles."""
        from webshop_server.winnable import own_options

        return own_options(self.shop().catalog.product(goal.asin), goal)


@functools.cache
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
    remedy = (
        "no connection can fail here, so please report this; meanwhile start `webshop-server` and give its address as "
        "base_url"
    )
    return ShopConnection("this process", functools.partial(_connect, settings), remedy)
