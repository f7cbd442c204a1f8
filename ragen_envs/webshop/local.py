"""The store in this process: a `Shop` of `webshop_server`, one for all environments with the same settings."""

import abc
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragen_envs.errors import EnvError
from webshop_server.store.answer import Answer

if TYPE_CHECKING:
    from webshop_server.store.shop import Shop

_SHOPS: dict[tuple["LocalStore", int], "Shop"] = {}  # by settings and process: what a shop has open survives no fork
_LOCKS: dict[tuple["LocalStore", int], threading.Lock] = {}


class ShopError(EnvError, ValueError):
    """No store or recording can be opened with these settings, or it has no such goal; the message says why."""


class Session(abc.ABC):
    """One episode in a store.

    Attributes:
        goal: Its number.
        instruction: What is asked for.
        answer: The store's last answer.
        played: The valid actions so far.
    """

    goal: int
    instruction: str
    answer: Answer
    played: tuple[str, ...] = ()

    def step(self, action: str) -> Answer:
        """Carries out an action, any text that UTF-8 can write; returns the store's answer, which is also kept."""
        self.answer = self._carried_out(action)
        if self.answer.valid:
            self.played = (*self.played, action)
        return self.answer

    @abc.abstractmethod
    def picture(self, hits: int) -> str:
        """The page as an SVG document: its product, or at most `hits` results; "" where there is no drawing."""

    @abc.abstractmethod
    def _carried_out(self, action: str) -> Answer:
        """The store's answer to an action."""


@dataclass(frozen=True)
class LocalStore:
    """A store in this process. It is nothing but its settings, so copies, pickles and forks find the shop by them.

    Attributes:
        catalog: "toy", "synthetic", "synthetic:5000", or the path of a catalogue.
        human_goals: Whether goals are those that people wrote, and not generated ones.
        nouns: Name of the noun tagger, see `webshop_server.goals.nouns`; None for the one that suits the catalogue.
    """

    catalog: str
    human_goals: bool = False
    nouns: str | None = None

    has_only_pages = False

    @property
    def shop(self) -> "Shop":
        """The shop, opened at its first use, once for all threads; a `ShopError` if it cannot be opened."""
        mine = self, os.getpid()
        if mine not in _SHOPS:
            with _LOCKS.setdefault(mine, threading.Lock()):
                if mine not in _SHOPS:
                    from webshop_server.store.shop import open_shop

                    try:
                        _SHOPS[mine] = open_shop(self.catalog, human_goals=self.human_goals, nouns=self.nouns)
                    except ValueError as error:
                        raise ShopError(f"catalog={self.catalog!r}: {error}") from error
        return _SHOPS[mine]

    def about(self) -> dict[str, Any]:
        """Facts about the store; see `WebShop.about`."""
        return self.shop.about()

    def start(self, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> Session:
        """Begins an episode; see `Shop.find_goal` and `Rules`. A `ShopError` if there is no such goal."""
        try:
            return LocalSession(self, self.shop.find_goal(split, **asked), rules)
        except (IndexError, ValueError) as error:
            raise error if isinstance(error, EnvError) else ShopError(str(error)) from error


class LocalSession(Session):
    """One episode in the store of this process. `episode` is where it stands (`webshop_server.store.shop.Episode`)."""

    def __init__(self, store: LocalStore, goal: int, rules: Mapping[str, Any]) -> None:
        """Begins."""
        from webshop_server.store.shop import Rules

        self.store, self.goal = store, goal
        self.instruction = store.shop.goal(goal).instruction
        self.episode = store.shop.start(goal, Rules(**rules))
        self.answer = store.shop.answer(self.episode)

    def picture(self, hits: int) -> str:
        """See `Session.picture`."""
        return self.store.shop.picture(self.episode, hits)

    def _carried_out(self, action: str) -> Answer:
        shop = self.store.shop
        self.episode = shop.step(self.episode, action)
        return shop.answer(self.episode)
