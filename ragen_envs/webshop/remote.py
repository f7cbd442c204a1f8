"""A store by its address: its pages over HTTP.

Our own pages carry the store's answer in one element (`webshop_server.store.page_html`), and an action is sent to the
session's page as it is. A server whose pages lack the element, such as the original, is played by their structure
alone, as the store plays in parity mode. That does not tell everything: the reward is the server's formula, goals are
drawn uniformly, and neither the rewards `tiered` and `success`, nor short pages, nor splits by product exist. Whatever
is no page of a shop (a login, a notice, nothing, JSON) is an error, never an episode.
"""

import abc
import functools
import ipaddress
import json
import os
import random
import re
import secrets
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import httpx

from ragen_envs.errors import EnvError
from webshop_server.store.answer import Answer, AvailableActions

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

    from webshop_server.store.page_text import Piece
    from webshop_server.store.shop import Shop
    from webshop_server.store.state import PageState

WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each new attempt: long enough to restart a server of a few thousand products."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
IDLE_SECONDS = 60.0  # that a connection is kept while a model generates
REMEDY = "start `webshop-server` there, or leave base_url out to run the store in this process"

_ELEMENT = re.compile(r'<script type="application/json" id="webshop">([^<]*)</script>')
_SENTENCE = re.compile(r"<p>([^<]{1,400})</p>")
_NOT_NOW = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
# A session that the server lost: ours says so, the original fails.
_LOST = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.CONFLICT, HTTPStatus.INTERNAL_SERVER_ERROR}

UNTOLD = ("wrong purchase",)
"""What is wrong with a purchase that scores less than 1, where pages tell no more."""
SEARCH, BUY, BACK, NEXT, PREVIOUS = "search", "buy now", "back to search", "next >", "< prev"
TEST, EVALUATION = 500, 1500
"""Ends of the published splits: test has the goals before the first, eval those before the second, train the rest."""
_MOST_GOALS = 2**25
_COUNTED: dict[tuple[int, str], int] = {}  # goals, by process and address of a server
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ACTION = re.compile(r"(.+)\[(.+)\]")
_HIDDEN = frozenset({"style", "script", "head", "title", "meta", "[document]"})

Result = TypeVar("Result")


class ShopServerError(EnvError, RuntimeError):
    """The store does not answer, or what it answers is no page of a shop; the message says what to do."""


class RefusedError(ShopServerError):
    """The store refused a request.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        """Keeps message and status."""
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        """The message."""
        return str(self.args[0])


class HiddenGoalError(EnvError, TypeError):
    """The oracle cannot see the goal, because the store is not in this process."""


class NoAnswerError(Exception):
    """One attempt got no answer. `RemoteStore.patiently` tries again or raises a `ShopServerError`."""


class RemoteStore:
    """HTTP to one store. It opens at its first use, and again after a fork; pickles and copies are not open.

    Args:
        base_url: Such as "http://127.0.0.1:3000".
        connect: Makes the `httpx.Client`; it must be picklable. None connects to `base_url`.
        waits: Seconds before the second attempt, the third, and so on.
        sleep: Waits so many seconds.

    Raises:
        ValueError: If `base_url` is not a URL.

    Attributes:
        address: The store's URL.
        has_only_pages: The server was found to be none of ours.
    """

    def __init__(
        self,
        base_url: str,
        connect: Callable[[], httpx.Client] | None = None,
        waits: Sequence[float] = WAITS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Opens nothing yet."""
        self.address = base_url.rstrip("/")
        if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", self.address):
            raise ValueError(f"base_url={base_url!r} is not a URL; write 'http://127.0.0.1:3000'")
        self.has_only_pages = False
        self._connect = connect or functools.partial(_connect, self.address)
        self._waits, self._sleep = tuple(waits), sleep
        self._about: dict[str, Any] | None = None
        self._opened: tuple[int, httpx.Client, weakref.finalize] | None = None  # process, client, its closing

    def __getstate__(self) -> dict[str, Any]:
        """Without the open connection."""
        return {**self.__dict__, "_opened": None}

    @property
    def shop(self) -> "Shop":
        """No server shows the goal before the purchase: always `HiddenGoalError`."""
        raise HiddenGoalError(
            f"only the server at {self.address} knows the goal; make the environment without base_url, and with the "
            "server's catalogue, to have the same goals in this process"
        )

    def close(self) -> None:
        """Closes the connection; the next request opens a new one."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[2]()

    def about(self) -> dict[str, Any]:
        """Facts about the store; see `WebShop.about`. Of the original's pages the goals are counted by asking for some.

        The first environment of a process counts them, with up to thirty requests; others look whether that is right.
        """
        if self._about is None:
            ours = {} if self.has_only_pages else OurSession(self, {"mode": "text"}).about
            self._about = self._about_pages() if self.has_only_pages else ours
        return self._about

    def _about_pages(self) -> dict[str, Any]:
        here = os.getpid(), self.address

        def has_goal(goal: int) -> bool:
            return self.patiently(lambda: self._has_goal(goal))

        goals = _COUNTED.get(here)
        if goals is None or has_goal(goals) or not has_goal(goals - 1):
            goals = _COUNTED[here] = count_goals(has_goal)
        ends = {"all": (0, goals), "test": (0, TEST), "eval": (TEST, EVALUATION), "train": (EVALUATION, goals)}
        splits = {name: max(0, min(end, goals) - first) for name, (first, end) in ends.items()}
        known = {"catalog": f"pages of {self.address}", "goals": goals, "splits": splits}
        return {**known, "reward_modes": ["webshop"], "nouns": "the server's"}

    def _has_goal(self, goal: int) -> bool:
        try:
            html, _ = self.page("GET", f"/{goal_name(goal)}")
        except RefusedError:
            return False
        if not ShopPage(html).is_start:
            raise no_page(self, html)
        return True

    def start(self, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> "RemoteSession":
        """Begins an episode.

        Args:
            split: Where goals are counted or drawn.
            asked: One of "goal", "index" and "seed"; nothing for any goal.
            rules: "mode", "reward", "parity" and "show_actions"; see `WebShop`.

        Raises:
            ShopServerError: If the store does not answer, refuses, or shows no pages of a WebShop.
            ValueError: If the original's pages do not have what is asked for.
        """
        if not self.has_only_pages:
            session = OurSession(self, {"split": split, **asked, **rules})
            if not self.has_only_pages:  # which the first page tells
                self._about = session.about
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
            RefusedError: If it refuses.
            ShopServerError: If it answers nonsense, or the link leads to another server.
        """
        place = f"{method} {self.address}{address.partition('?')[0][:200]}"
        try:
            url = httpx.URL(near).join(address) if near else address
            response = self._client().request(method, url, data=form, follow_redirects=True)
        except httpx.TransportError as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, httpx.CookieConflict) as error:
            raise ShopServerError(f"{place}: {type(error).__name__}: {error}; {REMEDY}") from error
        if response.status_code in _NOT_NOW:
            raise NoAnswerError(f"status {response.status_code}")
        if near and response.url.netloc != httpx.URL(near).netloc:
            raise ShopServerError(f"{place} leads to another server, {response.url.host}; {REMEDY}")
        text = response.content.decode("utf-8", "replace")  # as every WebShop writes, whatever a header says
        if not response.is_success:
            said = _SENTENCE.search(text)
            told = f": {said[1]}" if said else ""
            raise RefusedError(f"{place}: status {response.status_code}{told}", response.status_code)
        return text, str(response.url)

    def _client(self) -> httpx.Client:
        process = os.getpid()
        if self._opened is None or self._opened[0] != process:  # the parent's socket is not ours to write to
            client = self._connect()
            # Copies of environments are often dropped without `close`; their connection is closed then.
            self._opened = process, client, weakref.finalize(self, _close, process, client)
        return self._opened[1]

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """Calls `attempt` until there is an answer, with growing waits.

        Args:
            attempt: Raises `NoAnswerError` if there is no answer.

        Returns:
            What `attempt` returned.

        Raises:
            ShopServerError: If the last attempt fails too; names the address and says what to do.
        """
        for wait in (*self._waits, None):
            try:
                return attempt()
            except NoAnswerError as error:
                if wait is None:
                    tries = f"{len(self._waits) + 1} attempts in {sum(self._waits):g} s"
                    raise ShopServerError(
                        f"the store at {self.address} does not answer ({error}; {tries}); {REMEDY}"
                    ) from error
                self._sleep(wait)
        raise AssertionError("the last wait is None")


def _close(process: int, client: httpx.Client) -> None:
    if process == os.getpid():
        client.close()


def _connect(url: str) -> httpx.Client:
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS)
    # A proxy cannot reach the loopback of this machine, so that the environment variables for proxies are ignored.
    return httpx.Client(base_url=url, timeout=TIMEOUT, limits=limits, trust_env=not _is_loopback(url))


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class RemoteSession(abc.ABC):
    """One episode in a server: a session that survives a lost connection.

    The goal and the actions decide everything that happens in the store, and a session remembers both. If the server
    has lost it, or an answer was lost so that it is unknown whether the action was carried out, it opens a new one and
    plays the same actions there. Copies, pickles and forked processes do the same at their first use; they share
    nothing.

    Attributes:
        goal: Its number.
        instruction: What is asked for.
        answer: The store's last one.
        played: The valid actions so far.
    """

    goal: int
    instruction: str
    answer: Answer

    def __init__(self, store: RemoteStore) -> None:
        """Nothing is opened yet."""
        self.store = store
        self.played: tuple[str, ...] = ()
        self._opened: tuple[int, str] | None = None  # process, name of the session in the server

    def __getstate__(self) -> dict[str, Any]:
        """Without the session in the server, which belongs to the original; a copy opens its own."""
        return {**self.__dict__, "_opened": None}

    @property
    def episode(self) -> NoReturn:
        """Only the server knows it: always `HiddenGoalError`."""
        _ = self.store.shop
        raise AssertionError

    @abc.abstractmethod
    def step(self, action: str) -> Answer:
        """Carries out an action, any text that can be written as UTF-8; returns the store's answer, which is also kept.

        Raises:
            ShopServerError: If the store does not answer, refuses, shows no page of a shop, or has changed.
        """

    @abc.abstractmethod
    def picture(self, hits: int) -> str:
        """The page as an SVG document: its product, or at most `hits` results; "" where there is no drawing."""

    @abc.abstractmethod
    def _play_again(self) -> None:
        """Opens a new session and plays the same actions in it."""

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
                except RefusedError as error:
                    if error.status not in _LOST:
                        raise
                self._play_again()
                return ask()
            except (NoAnswerError, ShopServerError):
                self._opened = None  # unknown what was carried out there
                raise

        return self.store.patiently(attempt)

    def _changed(self) -> ShopServerError:
        """For a store that shows another page after the same actions."""
        return ShopServerError(
            f"the store at {self.store.address} shows another page after the same actions: its catalogue or settings "
            "changed in the middle of an episode; reset the environment"
        )


class OurSession(RemoteSession):
    """One episode in a `webshop-server`.

    Attributes:
        about: The facts about the store that its start page tells.
    """

    def __init__(self, store: RemoteStore, asked: Mapping[str, Any]) -> None:
        """Opens the start page. Where it is none of ours, the store knows that, and there is no session.

        Args:
            store: The store.
            asked: The fields of the start page's query.
        """
        super().__init__(store)
        self._asked, self.about = dict(asked), dict[str, Any]()
        start = store.patiently(self._open)
        if start is None:
            store.has_only_pages = True
            return
        self.goal, self.instruction, self.about = start["goal"], start["instruction"], start.get("store", {})
        self.answer = self._read(start)
        # A new session must play the same goal, even if this one was drawn.
        rules = ("mode", "reward", "parity", "show_actions")
        self._asked = {"goal": self.goal, **{name: asked[name] for name in rules if name in asked}}

    def step(self, action: str) -> Answer:
        """Carries out an action; see `RemoteSession.step`."""
        answer = self._in_session(lambda: self._send(action))
        if answer.valid:
            self.played = (*self.played, action)
        self.answer = answer
        return answer

    def picture(self, hits: int) -> str:
        """The server's drawing; see `RemoteSession.picture`."""
        drawn, _ = self._in_session(lambda: self.store.page("GET", f"/drawing/{self._name}.svg?hits={hits}"))
        if drawn and not drawn.startswith("<svg"):
            raise no_page(self.store, drawn)
        return drawn

    def _open(self) -> dict[str, Any] | None:
        """Begins a session; returns what its page carries, or None where the start page is that of another server."""
        name = secrets.token_hex(16)
        query = {key: int(value) if isinstance(value, bool) else value for key, value in self._asked.items()}
        html, _ = self.store.page("GET", f"/{name}?{httpx.QueryParams(query)}")
        self._opened = os.getpid(), name
        if _ELEMENT.search(html) is None and ShopPage(html).is_start:
            return None
        return self._element(html)

    def _element(self, html: str) -> dict[str, Any]:
        found = _ELEMENT.search(html)
        try:
            carried = json.loads(found[1]) if found else None
            json.dumps(carried, ensure_ascii=False).encode()  # half a character would end a run that writes it down
        except ValueError:
            carried = None
        if not isinstance(carried, dict) or not {"goal", "instruction"} <= carried.keys():
            raise no_page(self.store, html)
        return carried

    def _read(self, carried: Mapping[str, Any]) -> Answer:
        try:
            if (carried.get("goal"), carried.get("instruction")) != (self.goal, self.instruction):
                raise self._changed()
            return Answer.read(carried)
        except (KeyError, TypeError, ValueError) as error:
            raise ShopServerError(
                f"what the page of {self.store.address} carries is not a store's ({type(error).__name__}: {error}); is "
                "it a webshop-server of this version?"
            ) from error

    def _send(self, action: str) -> Answer:
        return self._read(self._element(self.store.page("POST", f"/{self._name}", {"action": action})[0]))

    def _play_again(self) -> None:
        start = self._open()
        answer = self._read({} if start is None else start)
        for action in self.played:
            answer = self._send(action)
        if answer.observation != self.answer.observation:
            raise self._changed()

@dataclass(frozen=True)
class Target:
    """Where a click leads.

    Attributes:
        kind: "button", "product" or "option".
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
    """

    def __init__(self, html: str) -> None:
        """Reads nothing yet."""
        self.html = html

    @cached_property
    def _soup(self) -> "BeautifulSoup":
        from bs4 import BeautifulSoup  # slow to load, and only other servers' pages need it

        return BeautifulSoup(self.html, "html.parser")

    @cached_property
    def instruction(self) -> str | None:
        """The task; None on a page without one, which is then no page of a WebShop, or that of a purchase."""
        found = self._soup.select_one("#instruction-text")
        texts = list(found.stripped_strings) if found else []
        return texts[-1] if texts else None

    @property
    def has_search_bar(self) -> bool:
        """Whether it has a search field."""
        return self._soup.find(id="search_input") is not None

    @property
    def is_start(self) -> bool:
        """Whether it is the one on which an episode begins."""
        return self.instruction is not None and self.has_search_bar

    @cached_property
    def reward(self) -> float | None:
        """The score on the page of a purchase, 0 to 1; None on other pages."""
        box = self._soup.select_one("#reward pre")
        try:
            score = float(box.get_text()) if box else -1.0
        except ValueError:
            return None
        return score if 0 <= score <= 1 else None

    @cached_property
    def targets(self) -> Mapping[str, Target]:
        """What can be clicked, by its label in lower case, in the order of the original: buttons, products, options.

        Where labels collide, a button comes before a product, and of two options of one value the last one counts.
        """
        found: dict[str, Target] = {}
        for button in self._soup.select(".btn"):
            form = button.find_parent("form")  # which leads somewhere, where the button itself does not
            address = _attribute(button, "formaction") or (_attribute(form, "action") if form else "")
            found[button.get_text().lower()] = Target("button", "POST", address or _attribute(button, "href"))
        for link in self._soup.select(".product-link"):
            asin = link.get_text()
            found.setdefault(asin.lower(), Target("product", "GET", _attribute(link, "href"), asin))
        taken = set(found)
        for option in self._soup.select('input[type="radio"]'):
            value = _attribute(option, "value")
            if value not in taken:
                found[value] = Target("option", "GET", _attribute(option, "data-url"), _attribute(option, "name"))
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


def _attribute(tag: "Tag", name: str) -> str:
    value = tag.get(name)
    return value if isinstance(value, str) else ""


def count_goals(has_goal: Callable[[int], bool]) -> int:
    """The number of goals of a server, by bisection: it refuses a goal that does not exist."""
    known, missing = -1, 0
    while missing < _MOST_GOALS and has_goal(missing):
        known, missing = missing, 2 * missing + 1
    while missing - known > 1:
        middle = (known + missing) // 2
        known, missing = (middle, missing) if has_goal(middle) else (known, middle)
    return missing


class PagesSession(RemoteSession):
    """One episode on the original's pages. It presses their buttons and links, as the store does in parity mode."""

    def __init__(self, store: RemoteStore, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> None:
        """Opens the start page; for arguments see `RemoteStore.start`. The reward is the server's.

        Raises:
            ValueError: If the request asks for what pages do not have.
            ShopServerError: If the server does not answer, or shows no pages of a WebShop.
        """
        from webshop_server.store.state import START

        self._mode, self._shows_actions = rules.get("mode", "text"), rules.get("show_actions", False)
        self._is_exact = rules.get("parity", False)
        for name, wanted in (("reward", rules.get("reward")), ("observation_mode", self._mode)):
            if wanted in ("tiered", "success", "short"):
                told = f"{name}={wanted!r} needs a webshop-server, and {store.address} has the original's pages only"
                raise ValueError(f"{told}; use {'webshop' if name == 'reward' else 'text'!r}")
        super().__init__(store)
        self.goal = self._find_goal(split, asked)
        self._page, self._address = store.patiently(self._open)
        self.instruction = self._page.instruction or ""
        self._state = START
        self.answer = self._answer(valid=False, effective=False)

    def step(self, action: str) -> Answer:
        """Carries out an action; see `RemoteSession.step`."""
        label, target = self._target(action)
        if target is None:
            self.answer = replace(self.answer, reward=0.0, valid=False, effective=False)
            return self.answer
        before = self._state
        self._page, self._address = self._in_session(lambda: self._press(label, target.kind))
        self._state = _after(before, label, target)
        self.played = (*self.played, action)
        self.answer = self._answer(valid=True, effective=self._state != before)
        return self.answer

    def picture(self, hits: int) -> str:
        """Nothing: pages name pictures on other servers, from which nothing is fetched."""
        return ""

    def _find_goal(self, split: str, asked: Mapping[str, int]) -> int:
        """The number of the goal that is asked for."""
        goal, index, seed = (asked.get(name) for name in ("goal", "index", "seed"))
        if goal is not None:
            return goal
        if index is not None and split == "all":
            return index
        splits = self.store.about()["splits"]
        if split not in splits:
            raise ValueError(f"split={split!r} is not known on pages; use one of {', '.join(splits)}")
        if index is None:
            index = int(random.Random(seed).random() * splits[split])
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
            return argument, Target(SEARCH, "POST", "")
        if name != "click" or argument == SEARCH:
            return "", None
        targets = self._page.targets
        if not self._is_exact and argument not in targets:  # an action's blanks were taken off, a label may have some
            argument = next((label for label in targets if label.strip() == argument), argument)
        return argument, targets.get(argument)

    def _open(self) -> tuple[ShopPage, str]:
        name = goal_name(self.goal)
        html, address = self.store.page("GET", f"/{name}")
        self._opened, page = (os.getpid(), name), ShopPage(html)
        if not page.is_start:
            raise no_page(self.store, html)
        return page, address

    def _press(self, label: str, kind: str) -> tuple[ShopPage, str]:
        """Searches for a label, or presses what has it on the present page."""
        if kind == SEARCH:
            html, address = self.store.page("POST", f"/{self._name}", {"search_query": label})
        else:
            target = self._page.targets[label]
            html, address = self.store.page(target.method, target.address, near=self._address)
        page, buys = ShopPage(html), kind == "button" and label == BUY
        if page.reward is None if buys else page.instruction != self.instruction:
            raise no_page(self.store, html)
        return page, address

    def _play_again(self) -> None:
        shown = self._page
        try:
            self._page, self._address = self._open()
            for action in self.played:
                label, target = self._target(action)
                if target is None:
                    raise self._changed()
                self._page, self._address = self._press(label, target.kind)
            if [*self._page.pieces()] != [*shown.pieces()]:
                raise self._changed()
        except BaseException:
            self._page = shown
            raise

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
            faults=() if score in (None, 1.0) else UNTOLD,
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


def goal_name(goal: int) -> str:
    """A session's name that the original and our server understand, and that no other client has."""
    return f"{secrets.token_hex(6)}_fixed_{goal}"


def no_page(store: RemoteStore, html: str) -> ShopServerError:
    """For an answer that is something else."""
    return ShopServerError(f"{store.address} shows no page of a shop: {html.strip()[:80]!r}; {REMEDY}")
