"""One episode in a store: a session that survives a lost connection.

The goal and the actions decide everything that happens in the store, and a session remembers both. If the server has
lost it, or an answer was lost so that it is unknown whether the action was carried out, it opens a new session and
plays the same actions there. Copies, pickles and forked processes do the same at their first use; they share nothing.
"""

import abc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from ragen_envs.webshop.client import NoAnswerError, ShopConnection, ShopRequestError, ShopServerError

Result = TypeVar("Result")

_GONE = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}


class AvailableActions(NamedTuple):
    """The actions that a page offers.

    Attributes:
        has_search_bar: Whether the page has a search field.
        clickables: The labels that can be clicked, in lower case, in the order of the page.
        has_filters: Whether the page is one of results, which `filter[…]` narrows; never in parity mode.
        buyable: Identifiers that `buy[…]` can buy here, in lower case; none in parity mode.
    """

    has_search_bar: bool
    clickables: tuple[str, ...]
    has_filters: bool = False
    buyable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The store's answer to an action, or to the start of an episode.

    Attributes:
        observation: The page in the requested mode.
        url: Its address.
        reward: Reward of this action.
        done: Whether something was bought.
        valid: Whether the action was carried out.
        effective: Whether it changed the page.
        task_score: Score of the purchase, from 0 to 1; 0 before the purchase.
        success: Whether the score is 1.
        available_actions: The next possible actions.
        reward_parts: Names and values of the parts of the score; empty before the purchase.
        faults: What is wrong with the purchase; empty before it.
    """

    observation: str
    url: str
    reward: float
    done: bool
    valid: bool
    effective: bool
    task_score: float
    success: bool
    available_actions: AvailableActions
    reward_parts: tuple[tuple[str, Any], ...]
    faults: tuple[str, ...] = ()

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Answer":
        """Reads the body of an answer. At the start of a session it has fewer fields.

        Raises:
            ShopServerError: If a field is missing or wrong.
        """
        try:
            offered = body["available_actions"]
            actions = AvailableActions(
                bool(offered["has_search_bar"]),
                tuple(offered["clickables"]),
                bool(offered.get("has_filters", False)),
                tuple(offered.get("buyable", ())),
            )
            return cls(
                observation=str(body["observation"]),
                url=str(body["url"]),
                reward=float(body.get("reward", 0.0)),
                done=bool(body.get("done", False)),
                valid=bool(body.get("valid", False)),
                effective=bool(body.get("effective", False)),
                task_score=float(body.get("task_score", 0.0)),
                success=bool(body.get("success", False)),
                available_actions=actions,
                reward_parts=tuple((name, _frozen(part)) for name, part in (body.get("reward_parts") or {}).items()),
                faults=tuple(map(str, body.get("faults", ()))),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ShopServerError(
                f"the server's answer is not a store's ({type(error).__name__}: {error}); is it a webshop-server of "
                "this version?"
            ) from error


def _frozen(value: Any) -> Any:
    """The same value with tuples instead of lists, so that infos can be kept and hashed."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(part)) for name, part in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class Session(abc.ABC):
    """One episode in a store.

    Args:
        connection: The connection to the store.

    Attributes:
        goal: Its number.
        instruction: What is asked for.
        answer: The store's last one.
        played: The valid actions so far.
    """

    goal: int
    instruction: str
    answer: Answer

    def __init__(self, connection: ShopConnection) -> None:
        """Nothing is opened yet."""
        self._connection = connection
        self._opened: tuple[int, str] | None = None  # process, token of the session in the server
        self.played: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Without the session in the server, which belongs to the original; a copy opens its own."""
        return {**self.__dict__, "_opened": None}

    @abc.abstractmethod
    def step(self, action: str) -> Answer:
        """Carries out an action.

        Args:
            action: Any text that can be written as UTF-8.

        Returns:
            The store's answer, also kept as `answer`.

        Raises:
            ShopServerError: If the store does not answer, or has changed.
            ShopRequestError: If it refuses.
        """

    @abc.abstractmethod
    def picture(self, hits: int) -> str:
        """The store's drawing of the page.

        Args:
            hits: The most products of a page of results to draw, from the first on.

        Returns:
            An SVG document: the product, or the hits with their numbers; "" where the page shows neither.

        Raises:
            ShopServerError, ShopRequestError: As `step`.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the session. It never fails: a server that is gone has no session any more."""

    @property
    def _token(self) -> str | None:
        """Token of the session in the server; None if there is none, or if it belongs to the parent of this process."""
        if self._opened is None or self._opened[0] != os.getpid():
            return None
        return self._opened[1]

    def _changed(self) -> ShopServerError:
        """For a store that shows another page after the same actions."""
        return ShopServerError(
            f"the store at {self._connection.address} shows another page after the same actions: its catalogue or "
            "settings changed in the middle of an episode; reset the environment"
        )


class ShopSession(Session):
    """One episode in a store by its JSON API.

    Args:
        connection: The connection to the store.
        request: Body of `POST /api/sessions`: goal, mode, reward and so on.

    Raises:
        ShopServerError: If the store does not answer.
        ShopRequestError: If it refuses, for example because there is no such goal.
    """

    def __init__(self, connection: ShopConnection, request: Mapping[str, Any]) -> None:
        """Opens the session."""
        super().__init__(connection)
        self._request = dict(request)
        opened = connection.patiently(self._open)
        self.goal = int(opened["goal"])
        self.instruction = str(opened["instruction"])
        self.answer = Answer.read(opened)
        # A new session must play the same goal, even if this one was drawn from a seed.
        self._request = {**self._request, "goal": self.goal, "split": "all", "index": None, "seed": None}

    def step(self, action: str) -> Answer:
        """Carries out an action; see `Session.step`."""
        answer = self._connection.patiently(lambda: self._in_session(lambda: self._send(action)))
        if answer.valid:
            self.played = (*self.played, action)
        self.answer = answer
        return answer

    def picture(self, hits: int) -> str:
        """The store's drawing of the page; see `Session.picture`."""
        return self._connection.patiently(lambda: self._in_session(lambda: self._drawn(hits)))

    def close(self) -> None:
        """Ends the session in the server."""
        token, self._opened = self._token, None
        if token is not None:
            try:
                self._connection.send("DELETE", f"/api/sessions/{token}")
            except (NoAnswerError, ShopServerError):
                pass

    def _open(self) -> dict[str, Any]:
        opened = self._connection.send("POST", "/api/sessions", self._request)
        if not {"session", "goal", "instruction"} <= opened.keys():
            raise ShopServerError(f"{self._connection.address} opened no session; is it a webshop-server?")
        self._opened = os.getpid(), str(opened["session"])
        return opened

    def _in_session(self, ask: Callable[[], Result]) -> Result:
        """Asks once, in a new session if the server has lost the old one."""
        if self._token is not None:
            try:
                return ask()
            except ShopRequestError as error:
                if error.status not in _GONE:
                    raise
        self._play_again()
        return ask()

    def _drawn(self, hits: int) -> str:
        return self._connection.page("GET", f"/api/sessions/{self._token}/picture?hits={hits}")[0]

    def _send(self, action: str) -> Answer:
        try:
            return Answer.read(self._connection.send("POST", f"/api/sessions/{self._token}/step", {"action": action}))
        except NoAnswerError:
            self._opened = None  # unknown whether it was carried out
            raise

    def _play_again(self) -> None:
        """Opens a new session and plays the same actions in it."""
        answer = Answer.read(self._open())
        for action in self.played:
            answer = self._send(action)
        if answer.observation != self.answer.observation:
            self.close()
            raise self._changed()
