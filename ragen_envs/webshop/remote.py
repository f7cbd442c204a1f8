"""A store by its address: its pages over HTTP.

Our own pages carry the store's answer in one element (`webshop_server.store.page_html`), and an action is sent to the
session's page as it is. A server whose pages lack the element, such as the original, is played by their structure
alone, as the store plays in parity mode. Whatever is no page of a shop (a login, a notice) is an error, no episode.
"""

import bisect
import functools
import json
import os
import random
import re
import secrets
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx

from ragen_envs.errors import EnvError
from webshop_server.store.answer import Answer, AvailableActions

if TYPE_CHECKING:
    from webshop_server.store.page_text import Piece
    from webshop_server.store.shop import Shop
    from webshop_server.store.state import PageState

WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each new attempt: long enough to restart a server of a few thousand products."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
REMEDY = "start `webshop-server` there, or leave base_url out to run the store in this process"
SEARCH, BUY, BACK, NEXT, PREVIOUS = "search", "buy now", "back to search", "next >", "< prev"
TEST, EVALUATION = 500, 1500
"""Ends of the published splits: test has the goals before the first, eval those before the second, train the rest."""

_ELEMENT = re.compile(r'<script type="application/json" id="webshop">([^<]*)</script>')
_SENTENCE = re.compile(r"<p>([^<]{1,400})</p>")
_NOT_NOW = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
# A session that the server lost: ours says so, the original fails.
_LOST = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.CONFLICT, HTTPStatus.INTERNAL_SERVER_ERROR}
_GOALS = range(2**25)  # numbers of goals that a server may have
_COUNTED: dict[str, int] = {}  # goals, by address of a server of pages
_ACTION = re.compile(r"(.+)\[(.+)\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HIDDEN = frozenset({"style", "script", "head", "title", "meta", "[document]"})

Result = TypeVar("Result")


class ShopServerError(EnvError, RuntimeError):
    """The store does not answer, refuses, or what it answers is no page of a shop; the message says what to do.

    Attributes:
        status: The HTTP status of a refusal, else None.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        """Keeps message and status."""
        super().__init__(message)
        self.status = status


class HiddenGoalError(EnvError, TypeError):
    """The oracle cannot see the goal, because the store is not in this process."""


class NoAnswerError(Exception):
    """One attempt got no answer. `RemoteStore.patiently` tries again or raises a `ShopServerError`."""


class RemoteStore:
    """HTTP to one store. It connects at its first use, and again after a fork; pickles and copies are not connected.

    Args:
        base_url: Such as "http://127.0.0.1:3000". Settings for proxies in environment variables are ignored.

    Attributes:
        address: The store's URL.
        has_only_pages: The server was found to be none of ours.
    """

    def __init__(self, base_url: str) -> None:
        """Opens nothing yet."""
        self.address = base_url.rstrip("/")
        self.has_only_pages = False
        self._connect = functools.partial(httpx.Client, base_url=self.address, timeout=TIMEOUT, trust_env=False)
        self._about: dict[str, Any] | None = None
        self._connected: tuple[int, httpx.Client] | None = None  # the process, and its client

    def __getstate__(self) -> dict[str, Any]:
        """Without the connection."""
        return {**self.__dict__, "_connected": None}

    @property
    def shop(self) -> "Shop":
        """No server shows the goal before the purchase: always `HiddenGoalError`."""
        raise HiddenGoalError(
            f"only the server at {self.address} knows the goal; make the environment without base_url, and with the "
            "server's catalogue, to have the same goals in this process"
        )

    def close(self) -> None:
        """Closes the connection; the next request opens a new one."""
        if self._connected is not None:
            self._connected[1].close()
            self._connected = None

    def about(self) -> dict[str, Any]:
        """Facts about the store; see `WebShop.about`. The original's goals are counted by asking for some of them."""
        if self._about is None and not self.has_only_pages:
            OurSession(self, {"mode": "text"})  # whose first page tells
        if self._about is None:
            self._about = self._about_pages()
        return self._about

    def _about_pages(self) -> dict[str, Any]:
        if self.address not in _COUNTED:
            _COUNTED[self.address] = bisect.bisect_left(_GOALS, True, key=lambda goal: not self._has_goal(goal))
        goals = _COUNTED[self.address]
        ends = {"all": (0, goals), "test": (0, TEST), "eval": (TEST, EVALUATION), "train": (EVALUATION, goals)}
        splits = {name: max(0, min(end, goals) - first) for name, (first, end) in ends.items()}
        known = {"catalog": f"pages of {self.address}", "goals": goals, "splits": splits}
        return {**known, "reward_modes": ["webshop"], "nouns": "the server's"}

    def _has_goal(self, goal: int) -> bool:
        try:
            html, _ = self.patiently(lambda: self.page("GET", f"/{_goal_name(goal)}"))
        except ShopServerError as error:
            if error.status is None:
                raise
            return False
        if not ShopPage(html).is_start:
            raise self.no_page(html)
        return True

    def start(self, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> "OurSession | PagesSession":
        """Begins an episode.

        Args:
            split: Where goals are counted or drawn.
            asked: One of "goal", "index" and "seed".
            rules: "mode", "reward", "parity" and "show_actions"; see `WebShop`.

        Raises:
            ShopServerError: If the store does not answer, refuses, or shows no pages of a WebShop.
            ValueError: If the original's pages do not have what is asked for.
        """
        if not self.has_only_pages:
            session = OurSession(self, {"split": split, **asked, **rules})
            if not self.has_only_pages:  # which the first page tells
                return session
        return PagesSession(self, split, asked, rules)

    def page(
        self, method: str, address: str, form: Mapping[str, str] | None = None, near: str = ""
    ) -> tuple[str, str]:
        """Asks for a page once, and follows where the server sends on.

        Args:
            method: "GET" or "POST".
            address: From the root, or as a link on a page has it.
            form: Fields of a form.
            near: Address of the page that has the link.

        Returns:
            The page's source, and its address.

        Raises:
            NoAnswerError: If there is no answer, or the server cannot answer now.
            ShopServerError: If it refuses, or answers nonsense.
        """
        place = f"{method} {self.address}{address.partition('?')[0][:200]}"
        if self._connected is None or self._connected[0] != os.getpid():  # the parent's socket is not ours to write to
            client = self._connect()
            weakref.finalize(self, client.close)  # copies of environments are often dropped without `close`
            self._connected = os.getpid(), client
        try:
            url = httpx.URL(near).join(address) if near else address
            response = self._connected[1].request(method, url, data=form, follow_redirects=True)
        except httpx.TransportError as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ShopServerError(f"{place}: {type(error).__name__}: {error}; {REMEDY}") from error
        if response.status_code in _NOT_NOW:
            raise NoAnswerError(f"status {response.status_code}")
        text = response.content.decode("utf-8", "replace")  # as every WebShop writes, whatever a header says
        if not response.is_success:
            said = _SENTENCE.search(text)
            told = f": {said[1]}" if said else ""
            raise ShopServerError(f"{place}: status {response.status_code}{told}", response.status_code)
        return text, str(response.url)

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """Calls `attempt` until it has an answer, with growing waits; a `ShopServerError` after the last."""
        for wait in (*WAITS, None):
            try:
                return attempt()
            except NoAnswerError as error:
                if wait is None:
                    tries = f"{len(WAITS) + 1} attempts in {sum(WAITS):g} s"
                    told = f"the store at {self.address} does not answer ({error}; {tries}); {REMEDY}"
                    raise ShopServerError(told) from error
                time.sleep(wait)
        raise AssertionError("the last wait is None")

    def no_page(self, html: str) -> ShopServerError:
        """For an answer that is something else."""
        return ShopServerError(f"{self.address} shows no page of a shop: {html.strip()[:80]!r}; {REMEDY}")


class OurSession:
    """One episode in a `webshop-server`: a session that survives a lost connection.

    The goal and the actions decide everything that happens in the store, and a session remembers both. If the server
    has lost it, or an answer was lost so that it is unknown whether the action was carried out, it opens a new one and
    plays the same actions there. Copies, pickles and forked processes do the same at their first use; they share
    nothing. The first page tells the store about itself. If it is none of ours, there is no session.

    Args:
        store: The store.
        asked: The fields of the start page's query.

    For attributes see `LocalSession`.
    """

    def __init__(self, store: RemoteStore, asked: Mapping[str, Any]) -> None:
        """Opens the start page."""
        self.store, self._asked = store, {**asked}
        self.played: tuple[str, ...] = ()
        self._opened: tuple[int, str] | None = None  # process, name of the session in the server
        html = store.patiently(self._open)
        if _ELEMENT.search(html) is None and ShopPage(html).is_start:
            store.has_only_pages = True
            return
        (self.goal, self.instruction), self.answer, store._about = self._read(html)
        # A new session must play the same goal, even if this one was drawn.
        rules = ("mode", "reward", "parity", "show_actions")
        self._asked = {"goal": self.goal, **{name: asked[name] for name in rules if name in asked}}

    def __getstate__(self) -> dict[str, Any]:
        """Without the session in the server, which belongs to the original."""
        return {**self.__dict__, "_opened": None}

    def step(self, action: str) -> Answer:
        """Carries out an action, any text that can be written as UTF-8; returns the store's answer, which is also kept.

        Raises:
            ShopServerError: If the store does not answer, refuses, shows no page of a shop, or has changed.
        """
        self.answer = self._in_session(lambda: self._send(action))
        if self.answer.valid:
            self.played = (*self.played, action)
        return self.answer

    def picture(self, hits: int) -> str:
        """The page as an SVG document: its product, or at most `hits` results; "" where there is no drawing."""
        return self._in_session(lambda: self.store.page("GET", f"/drawing/{self._name}.svg?hits={hits}")[0])

    @property
    def _name(self) -> str | None:
        """Name of the session in the server; None if there is none, or if it belongs to the parent of this process."""
        return self._opened[1] if self._opened is not None and self._opened[0] == os.getpid() else None

    def _in_session(self, ask: Callable[[], Result]) -> Result:
        """Asks, in a new session if the server has lost the old one."""

        def attempt() -> Result:
            try:
                if self._name is None:
                    self._play_again()
                try:
                    return ask()
                except ShopServerError as error:
                    if error.status not in _LOST:
                        raise
                self._play_again()
                return ask()
            except (NoAnswerError, ShopServerError):
                self._opened = None  # unknown what was carried out there
                raise

        return self.store.patiently(attempt)

    def _open(self) -> str:
        """Begins a session; returns its start page."""
        name = secrets.token_hex(16)
        query = {key: int(value) if isinstance(value, bool) else value for key, value in self._asked.items()}
        html, _ = self.store.page("GET", f"/{name}?{httpx.QueryParams(query)}")
        self._opened = os.getpid(), name
        return html

    def _play_again(self) -> None:
        """Opens a new session and plays the same actions in it."""
        answer = self._same(self._open())
        for action in self.played:
            answer = self._send(action)
        if answer.observation != self.answer.observation:
            raise self._changed()

    def _send(self, action: str) -> Answer:
        return self._same(self.store.page("POST", f"/{self._name}", {"action": action})[0])

    def _read(self, html: str) -> tuple[tuple[int, str], Answer, dict[str, Any]]:
        """Goal and instruction that a page carries in its element, the answer, and what it tells about the store."""
        found = _ELEMENT.search(html)
        try:
            carried = json.loads(found[1]) if found else {}
            return (carried["goal"], carried["instruction"]), Answer.read(carried), carried.get("store", {})
        except (KeyError, TypeError, ValueError) as error:
            raise self.store.no_page(html) from error

    def _same(self, html: str) -> Answer:
        """The answer on a page of this episode."""
        task, answer, _ = self._read(html)
        if task != (self.goal, self.instruction):
            raise self._changed()
        return answer

    def _changed(self) -> ShopServerError:
        return ShopServerError(
            f"the store at {self.store.address} shows another page after the same actions: its catalogue or settings "
            "changed in the middle of an episode; reset the environment"
        )


class Target(NamedTuple):
    """Where a click leads.

    Attributes:
        kind: "button", "product", "option", or "search".
        method: "GET" or "POST".
        address: As the page has it, relative or absolute; "" if it has none.
        name: Name of the option, or identifier of the product, or "".
    """

    kind: str
    method: str
    address: str
    name: str = ""


class ShopPage:
    """A page as the original's environments read it: what a style sheet hides is read, too.

    Args:
        html: Its source.
        address: Where it is.

    Attributes:
        instruction: The task; None on a page without one, which is then no page of a WebShop, or that of a purchase.
        has_search_bar: Whether it has a search field.
        is_start: Whether it is the one on which an episode begins.
        reward: The score on the page of a purchase, 0 to 1; None on other pages.
    """

    def __init__(self, html: str, address: str = "") -> None:
        """Reads the source."""
        from bs4 import BeautifulSoup  # slow to load, and only other servers' pages need it

        self.html, self.address = html, address
        self._soup = BeautifulSoup(html, "html.parser")
        task, score = self._soup.select_one("#instruction-text"), self._soup.select_one("#reward pre")
        self.instruction = next(reversed([*task.stripped_strings]), None) if task else None
        self.has_search_bar = self._soup.find(id="search_input") is not None
        self.is_start = self.instruction is not None and self.has_search_bar
        try:
            paid = float(score.get_text()) if score else -1.0
        except ValueError:
            paid = -1.0
        self.reward = paid if 0 <= paid <= 1 else None

    @cached_property
    def targets(self) -> Mapping[str, Target]:
        """What can be clicked, by its label in lower case, in the order of the original: buttons, products, options.

        Where labels collide, a button comes before a product, and of two options of one value the last one counts.
        """
        found: dict[str, Target] = {}
        for button in self._soup.select(".btn"):
            form = button.find_parent("form")  # which leads somewhere, where the button itself does not
            address = button.get("formaction") or (form.get("action") if form else "") or button.get("href")
            found[button.get_text().lower()] = Target("button", "POST", str(address or ""))
        for link in self._soup.select(".product-link"):
            asin = link.get_text()
            found.setdefault(asin.lower(), Target("product", "GET", str(link.get("href", "")), asin))
        taken = set(found)
        for option in self._soup.select('input[type="radio"]'):
            value, url, name = (str(option.get(key, "")) for key in ("value", "data-url", "name"))
            if value not in taken:
                found[value] = Target("option", "GET", url, name)
        return found

    def pieces(self) -> "Iterator[Piece]":
        """Its visible texts in the order of reading, a role with each; see `webshop_server.store.page_text`."""
        from bs4.element import Comment

        for one in self._soup.find_all(string=True):
            parent = one.parent
            if parent is None or parent.name in _HIDDEN or isinstance(one, Comment) or one == "\n":
                continue
            if parent.name == "button":
                yield "button", str(one)
            elif parent.name == "label":
                yield "option", str(one)
            else:
                yield "link" if "product-link" in (parent.get("class") or ()) else "text", str(one)


class PagesSession:
    """One episode on the original's pages. It presses their buttons and links, as the store does in parity mode.

    An address there tells everything but the goal, so a request whose answer was lost is sent again, after the start
    page where the server has lost the goal, too. The reward is the server's.

    For arguments see `RemoteStore.start`, for attributes `LocalSession`.

    Raises:
        ValueError: If the request asks for what pages do not have.
        ShopServerError: If the server does not answer, or shows no pages of a WebShop.
    """

    def __init__(self, store: RemoteStore, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> None:
        """Opens the start page."""
        from webshop_server.store.state import START

        self._mode, self._shows_actions = rules["mode"], rules["show_actions"]
        for name, wanted in (("reward", rules["reward"]), ("observation_mode", self._mode)):
            if wanted in ("tiered", "success", "short"):
                told = f"{name}={wanted!r} needs a webshop-server, and {store.address} has the original's pages only"
                raise ValueError(f"{told}; use {'webshop' if name == 'reward' else 'text'!r}")
        self.store, self.goal = store, self._find_goal(store, split, asked)
        self._name, self._state = _goal_name(self.goal), START
        self._page = store.patiently(self._open)
        self.instruction = self._page.instruction or ""
        self.played: tuple[str, ...] = ()
        self.answer = self._answer(valid=False, effective=False)

    def step(self, action: str) -> Answer:
        """Carries out an action; see `OurSession.step`."""
        label, target = self._target(action)
        if target is None:
            self.answer = replace(self.answer, reward=0.0, valid=False, effective=False)
            return self.answer
        before = self._state
        self._page = self.store.patiently(lambda: self._press(label, target))
        self._state = _after(before, label, target)
        self.played = (*self.played, action)
        self.answer = self._answer(valid=True, effective=self._state != before)
        return self.answer

    def picture(self, hits: int) -> str:
        """Nothing: pages name pictures on other servers, from which nothing is fetched."""
        return ""

    @staticmethod
    def _find_goal(store: RemoteStore, split: str, asked: Mapping[str, int]) -> int:
        """The number of the goal that is asked for."""
        if "goal" in asked:
            return asked["goal"]
        splits = store.about()["splits"]
        if split not in splits:
            raise ValueError(f"split={split!r} is not known on pages; use one of {', '.join(splits)}")
        index = asked.get("index", int(random.Random(asked.get("seed")).random() * splits[split]))
        if index >= splits[split]:
            raise ValueError(f"index={index} does not exist; split {split!r} of this server has {splits[split]} goals")
        return {"eval": TEST, "train": EVALUATION}.get(split, 0) + index

    def _target(self, action: str) -> tuple[str, Target | None]:
        """The argument of an action in lower case, and where it leads; None if that is nowhere."""
        match = _ACTION.match(action)
        if match is None or self.answer.done:
            return "", None
        name, argument = match[1], match[2].lower()
        if name == SEARCH and argument.strip() and not _CONTROL.search(argument):
            return argument, Target(SEARCH, "POST", f"/{self._name}")
        return argument, self._page.targets.get(argument) if name == "click" and argument != SEARCH else None

    def _open(self) -> ShopPage:
        page = ShopPage(*self.store.page("GET", f"/{self._name}"))
        if not page.is_start:
            raise self.store.no_page(page.html)
        return page

    def _press(self, label: str, target: Target) -> ShopPage:
        """Searches for a label, or presses what has it on the page."""
        form, near = ({"search_query": label}, "") if target.kind == SEARCH else (None, self._page.address)
        try:
            found = self.store.page(target.method, target.address, form, near)
        except ShopServerError as error:
            if error.status not in _LOST:
                raise
            self._open()
            found = self.store.page(target.method, target.address, form, near)
        page, buys = ShopPage(*found), target.kind == "button" and label == BUY
        if page.reward is None if buys else page.instruction != self.instruction:
            raise self.store.no_page(page.html)
        return page

    def _answer(self, valid: bool, effective: bool) -> Answer:
        from webshop_server.store.page_text import receipt, url, written
        from webshop_server.store.shop import actions_line

        page, state, score = self._page, self._state, self._page.reward if self._state.kind == "done" else None
        labels = () if state.kind == "done" else tuple(page.targets)
        observation = address = url(state, str(self.goal))
        if self._mode == "html":
            observation = page.html
        elif self._mode != "url":
            shown = page.pieces() if score is None else receipt(state, score)
            observation = written(shown, self._mode, address, state.seen)
        return Answer(
            observation=observation + (actions_line(state, labels, parity=True) if self._shows_actions else ""),
            url=address,
            reward=score or 0.0,
            done=score is not None,
            valid=valid,
            effective=effective,
            task_score=score or 0.0,
            success=score == 1.0,
            available_actions=AvailableActions(page.has_search_bar, labels),
            reward_parts=() if score is None else (("total", score),),
            faults=() if score in (None, 1.0) else ("wrong purchase",),
        )


def _after(state: "PageState", label: str, target: Target) -> "PageState":
    """The page to which a click or a search leads."""
    from webshop_server.store.state import START

    if target.kind == SEARCH:
        return replace(START, kind="results", keywords=tuple(label.split(" ")), page=1, seen=state.seen)
    if target.kind == "option":
        return replace(state, options=tuple({**dict(state.options), target.name: label}.items()))
    if target.kind == "product":
        seen = state.seen if target.name in state.seen else (*state.seen, target.name)
        return replace(state, kind="item", asin=target.name, options=(), seen=seen)
    if label == BACK:
        return START
    if label == BUY:
        return replace(state, kind="done", sub_page="")
    if state.kind == "results":
        return replace(state, page=state.page + (1 if label == NEXT else -1))
    if label == PREVIOUS and state.kind == "sub_page":
        return replace(state, kind="item", sub_page="")
    if label == PREVIOUS:
        return replace(state, kind="results", asin="", options=())
    return replace(state, kind="sub_page", sub_page=label.capitalize())


def _goal_name(goal: int) -> str:
    """A session's name that the original and our server understand, and that no other client has."""
    return f"{secrets.token_hex(6)}_fixed_{goal}"
