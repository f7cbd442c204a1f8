"""One episode on the pages of a WebShop server that has no JSON API, such as the original.

It presses the page's own buttons and links and answers as the store does in parity mode. Pages do not tell everything:
the reward is the server's formula, goals are drawn uniformly (no page has their weights), and neither the rewards
`tiered` and `success` nor splits by product exist.
"""

import json
import os
import random
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from ragen_envs.webshop.client import NoAnswerError, NoJsonError, ShopConnection, ShopRequestError, ShopServerError
from ragen_envs.webshop.faults import UNTOLD
from ragen_envs.webshop.pages import ShopPage, Target
from ragen_envs.webshop.session import Answer, AvailableActions, Session, ShopSession

BASE_URL = "http://127.0.0.1:3000"  # what the original's text environment pretends
SEARCH, BUY, BACK, NEXT, PREVIOUS = "search", "buy now", "back to search", "next >", "< prev"
TEST, EVALUATION = 500, 1500
"""Ends of the published splits: test has the goals before the first, eval those before the second, train the rest."""
_MOST_GOALS = 2**25
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ACTION = re.compile(r"(.+)\[(.+)\]")
_NOT_THE_API = {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.INTERNAL_SERVER_ERROR}
# A session that the server lost: ours says so, the original fails.
_LOST = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.CONFLICT, HTTPStatus.INTERNAL_SERVER_ERROR}


def open_session(connection: ShopConnection, request: Mapping[str, Any]) -> Session:
    """Begins an episode, by the JSON API or, where a server has none, on its pages.

    Args:
        connection: The connection to the store; it remembers which kind it is.
        request: Body of `POST /api/sessions`.

    Raises:
        ShopServerError, ShopRequestError: As `ShopSession`; if the server is neither, the error of the JSON API.
    """
    if not connection.has_only_pages:
        try:
            return ShopSession(connection, request)
        except (NoJsonError, ShopRequestError) as error:
            find_pages(connection, error)
    return ClassicSession(connection, request)


def find_pages(connection: ShopConnection, error: ShopServerError) -> None:
    """Notes in the connection that a server has pages only.

    Raises:
        ShopServerError: `error`, the JSON API's, if that was no missing route, or there are no pages either.
    """
    missing = isinstance(error, NoJsonError)
    if isinstance(error, ShopRequestError):
        missing = not error.code and error.status in _NOT_THE_API
    if not missing or not connection.patiently(lambda: _has_goal(connection, 0)):
        raise error
    connection.has_only_pages = True


def about_pages(connection: ShopConnection) -> dict[str, Any]:
    """Facts about a server of pages, under the names of the JSON API; its goals are counted by asking for some."""
    if connection.goals is None:
        connection.goals = connection.patiently(lambda: _goals(connection))
    splits = {name: len(_split(name, connection.goals)) for name in ("all", "test", "eval", "train")}
    return {
        **{"catalog": f"pages of {connection.address}", "goals": connection.goals, "splits": splits},
        **{"reward_modes": ["webshop"], "nouns": "the server's"},
    }


def _split(name: str, goals: int) -> range:
    ends = {"all": (0, goals), "test": (0, TEST), "eval": (TEST, EVALUATION), "train": (EVALUATION, goals)}
    if name not in ends:
        raise ValueError(f"split={name!r} is not known on pages; use one of {', '.join(ends)}")
    first, end = ends[name]
    return range(min(first, goals), min(end, goals))


@dataclass
class _Count:
    """The number of goals of a server, once it was counted; who counts holds the lock."""

    goals: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_COUNTS: dict[tuple[int, str], _Count] = {}  # by process, as locks must not be shared by a fork, and address


def _goals(connection: ShopConnection) -> int:
    """The number of goals: counted once in a process, and checked since; a server may have been started again."""
    count = _COUNTS.setdefault((os.getpid(), connection.address), _Count())
    with count.lock:
        known = count.goals
        if known is None or _has_goal(connection, known) or not _has_goal(connection, known - 1):
            count.goals = known = _count_goals(connection)
        return known


def _count_goals(connection: ShopConnection) -> int:
    """The number of goals, by bisection: a server refuses a goal that does not exist."""
    known, missing = 0, 1
    while missing < _MOST_GOALS and _has_goal(connection, missing):
        known, missing = missing, 2 * missing
    while missing - known > 1:
        middle = (known + missing) // 2
        known, missing = (middle, missing) if _has_goal(connection, middle) else (known, middle)
    return missing


def _has_goal(connection: ShopConnection, goal: int) -> bool:
    try:
        html, _ = connection.page("GET", f"/{_new_name(goal)}")
    except ShopRequestError:
        return False
    page = ShopPage(html)
    return page.instruction is not None and page.has_search_bar


def _new_name(goal: int) -> str:
    """A name that the original and our server understand, and that no other client has."""
    return f"{secrets.token_hex(6)}_fixed_{goal}"


@dataclass(frozen=True)
class _Place:
    """Where the shopper is, as the store's own state; see `webshop_server.store.state.PageState`."""

    kind: str = "start"
    keywords: tuple[str, ...] = ()
    page: int = 0
    asin: str = ""
    options: tuple[tuple[str, str], ...] = ()
    sub_page: str = ""
    seen: tuple[str, ...] = ()

    def address(self, session: str) -> str:
        """The readable address that the original's text environment shows."""
        words, options = "+".join(self.keywords), dict(self.options)
        paths = {
            "start": session,
            "results": f"search_results/{session}/{words}/{self.page}",
            "item": f"item_page/{session}/{self.asin}/{words}/{self.page}/{json.dumps(options)}",
            "sub_page": f"item_sub_page/{session}/{self.asin}/{words}/{self.page}/{self.sub_page}/{options}",
            "done": f"done/{session}/{self.asin}/{options}",
        }
        return f"{BASE_URL}/{paths[self.kind]}"

    def after(self, label: str, target: Target) -> "_Place":
        """The place to which a click leads."""
        if target.kind == "option":
            options = {**dict(self.options), target.name: label}
            return replace(self, options=tuple(options.items()))
        if target.kind == "product":
            asin = target.name
            seen = self.seen if asin in self.seen else (*self.seen, asin)
            return replace(self, kind="item", asin=asin, options=(), seen=seen)
        if label == BACK:
            return _Place()
        if label == BUY:
            return replace(self, kind="done", sub_page="")
        if self.kind == "results":
            return replace(self, page=self.page + (1 if label == NEXT else -1))
        if label == PREVIOUS and self.kind == "sub_page":
            return replace(self, kind="item", sub_page="")
        if label == PREVIOUS:
            return replace(self, kind="results", asin="", options=())
        return replace(self, kind="sub_page", sub_page=label.capitalize())


class ClassicSession(Session):
    """One episode on the pages of a server.

    Args:
        connection: The connection to the server.
        request: As for `POST /api/sessions`; `parity` says whether an action's blanks count, and `reward` is the
            server's.

    Raises:
        ValueError: If the request asks for what pages do not have.
        ShopServerError: If the server does not answer, or shows no pages of a WebShop.
    """

    def __init__(self, connection: ShopConnection, request: Mapping[str, Any]) -> None:
        """Opens the start page."""
        if (reward := request.get("reward")) in ("tiered", "success"):
            address = connection.address
            raise ValueError(f"reward={reward!r} needs the JSON API, and {address} has pages only; use 'webshop'")
        if request.get("mode") == "short":
            raise ValueError(
                f"observation_mode='short' needs the JSON API, and {connection.address} has pages only; use 'text'"
            )
        super().__init__(connection)
        self._mode = str(request.get("mode", "text"))
        self._shows_actions = bool(request.get("show_actions", False))
        self._is_exact = bool(request.get("parity", False))
        self.goal = self._goal(request)
        self._page, self._address = connection.patiently(self._open)
        self.instruction = self._page.instruction or ""
        self._place = _Place()
        self.answer = self._answer(self._place, valid=False, effective=False)

    def step(self, action: str) -> Answer:
        """Carries out an action. See `Session.step`."""
        label, target = self._target(action)
        if target is None:
            self.answer = replace(self.answer, reward=0.0, valid=False, effective=False)
            return self.answer
        before = self._place
        self._page, self._address = self._connection.patiently(lambda: self._step(label, target))
        if target.kind == "search":
            self._place = _Place("results", tuple(label.split(" ")), 1, seen=before.seen)
        else:
            self._place = before.after(label, target)
        self.played = (*self.played, action)
        self.answer = self._answer(self._place, valid=True, effective=self._place != before)
        return self.answer

    def picture(self, hits: int) -> str:
        """Nothing: pages name pictures on other servers, from which nothing is fetched."""
        return ""

    def close(self) -> None:
        """Forgets the session; the server has no way to end one."""
        self._opened = None

    def _goal(self, request: Mapping[str, Any]) -> int:
        """The number of the goal that a request names."""
        goal, index, seed = (request.get(name) for name in ("goal", "index", "seed"))
        if goal is not None:
            return int(goal)
        name = str(request.get("split", "all"))
        if index is not None and name == "all":
            return int(index)
        goals = _split(name, int(about_pages(self._connection)["goals"]))
        if index is None:
            index = int(random.Random(seed).random() * len(goals)) if goals else 0
        if int(index) >= len(goals):
            raise ValueError(f"index={index} does not exist; split {name!r} of this server has {len(goals)} goals")
        return goals[int(index)]

    def _target(self, action: str) -> tuple[str, Target | None]:
        """The argument of an action in lower case, and where it leads; None if that is nowhere."""
        match = _ACTION.match(action)
        if match is None or self.answer.done:
            return "", None
        name, argument = match[1], match[2].lower()
        if name == SEARCH and argument.strip() and not _CONTROL.search(argument):
            return argument, Target(SEARCH, "POST", "")
        if name != "click" or argument == SEARCH:
            return "", None
        targets = self._page.targets()
        if not self._is_exact and argument not in targets:  # an action's blanks were taken off, a label may have some
            argument = next((label for label in targets if label.strip() == argument), argument)
        return argument, targets.get(argument)

    def _open(self) -> tuple[ShopPage, str]:
        name = _new_name(self.goal)
        html, address = self._connection.page("GET", f"/{name}")
        self._opened = os.getpid(), name
        page = ShopPage(html)
        if page.instruction is None:
            raise ShopServerError(f"{self._connection.address}/{name} shows no task; is it a WebShop?")
        return page, address

    def _step(self, label: str, target: Target) -> tuple[ShopPage, str]:
        """Presses once, in a new session if the server has lost the old one."""
        if self._token is not None:
            try:
                return self._press(label, target, self._address)
            except ShopRequestError as error:
                if error.status not in _LOST:
                    raise
        address = self._play_again()
        fresh = target if target.kind == SEARCH else self._page.targets()[label]
        return self._press(label, fresh, address)

    def _press(self, label: str, target: Target, address: str) -> tuple[ShopPage, str]:
        assert self._opened is not None
        try:
            if target.kind == SEARCH:
                html, at = self._connection.page("POST", f"/{self._opened[1]}", {"search_query": label})
            else:
                html, at = self._connection.page(target.method, target.address, near=address)
        except NoAnswerError:
            self._opened = None  # unknown whether it was carried out
            raise
        return ShopPage(html), at

    def _play_again(self) -> str:
        """Opens a new session and presses the same in it; returns the address it leads to."""
        before = self._page.text()
        page, address = self._open()
        for action in self.played:
            self._page = page
            label, target = self._target(action)
            if target is None:
                break
            page, address = self._press(label, target, address)
        self._page = page
        if page.text() != before:
            raise self._changed()
        return address

    def _answer(self, place: _Place, valid: bool, effective: bool) -> Answer:
        score = self._page.reward
        done = score is not None
        offered = AvailableActions(self._page.has_search_bar, () if done else tuple(self._page.targets()))
        return Answer(
            observation=self._observation(place, offered),
            url=place.address(str(self.goal)),
            reward=score or 0.0,
            done=done,
            valid=valid,
            effective=effective,
            task_score=score or 0.0,
            success=score == 1.0,
            available_actions=offered,
            reward_parts=() if score is None else (("total", score),),
            faults=() if score in (None, 1.0) else UNTOLD,
        )

    def _observation(self, place: _Place, offered: AvailableActions) -> str:
        address = place.address(str(self.goal))
        if self._mode in ("html", "url"):
            shown = self._page.html if self._mode == "html" else address
        else:
            shown = self._page.text() if self._mode == "text" else self._page.rich_text(address, place.seen)
        if not self._shows_actions:
            return shown
        actions = ["search[<words>]"] * offered.has_search_bar
        actions += [f"click[{label}]" for label in offered.clickables if label != SEARCH]
        return f"{shown}\nAvailable actions: {', '.join(actions)}" if actions else shown
