"""A store by its address: its pages over HTTP.

Our own pages carry the store's answer in one element (`webshop_server.store.page_html`), and an action is sent to the
session's page as it is. A server whose pages lack the element, such as the original, is played by their buttons and
links, by the store's own rules. Whatever is no page of a shop (a login, a notice) is an error, no episode.
"""

import bisect
import functools
import json
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import httpx
from bs4 import BeautifulSoup
from bs4.element import Comment

from ragen_envs.errors import EnvError
from webshop_server.store.answer import Answer, AvailableActions
from webshop_server.store.page_text import Piece, Role, actions_line, receipt, url, written
from webshop_server.store.state import INVALID, START, SUB_PAGES, PageState, Store, read_action

WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each new attempt: long enough to restart a server of a few thousand products."""
REMEDY = "start `webshop-server` there, or leave base_url out to run the store in this process"

TEST, EVALUATION = 500, 1500
"""Ends of the published splits: test has the goals before the first, eval those before the second, train the rest."""

_ELEMENT = re.compile(r'<script type="application/json" id="webshop">([^<]*)</script>')
_SENTENCE = re.compile(r"<p>([^<]{1,400})</p>")
_NOT_NOW = {502, 503, 504}  # statuses of a server that is busy or starts
_ANY = {"mode": "text", "reward": "webshop", "parity": True, "show_actions": False}  # rules that every server has
_GOALS = range(2**25)  # numbers of goals that a server may have
_COUNTED: dict[str, int] = {}  # goals, by address of a server
_SCORE = re.compile(r"0(\.\d+)?|1(\.0+)?")
_ROLES: dict[str, Role] = {"button": "button", "label": "option"}  # of a text, by the element that it is in
_HIDDEN = frozenset({"style", "script", "head", "title", "meta", "[document]"})

Result = TypeVar("Result")


class ShopServerError(EnvError, RuntimeError):
    """The store does not answer, refuses, or what it answers is no page of a shop; the message says what to do."""

    def __init__(self, message: str, status: int | None = None, again: bool = False) -> None:
        """Keeps the HTTP status of a refusal, else None, and whether another attempt may go better."""
        super().__init__(message)
        self.status, self.again = status, again


class HiddenGoalError(EnvError, TypeError):
    """The oracle cannot see the goal, because the store is not in this process."""


@functools.cache
def _client(address: str, process: int) -> httpx.Client:
    """HTTP to one server, for all threads of a process: a fork must not write to the sockets of its parent."""
    limits, timeout = httpx.Limits(max_connections=None), httpx.Timeout(30.0, connect=5.0)
    return httpx.Client(base_url=address, timeout=timeout, limits=limits, trust_env=False)


class RemoteStore:
    """HTTP to one store, such as "http://127.0.0.1:3000". It is asked at its first use.

    Settings for proxies in environment variables are ignored.
    """

    def __init__(self, base_url: str) -> None:
        """Opens nothing yet. A `ValueError` if this is no address."""
        if not re.fullmatch(r"https?://[^/?#\s]\S*", base_url):
            raise ValueError(f"base_url={base_url!r} is no address of a server; write all of it, as 'http://127.0.0.1:3000'")
        self.address = base_url.rstrip("/")
        self.has_only_pages = False  # whether it was found to be none of ours
        self.known: dict[str, Any] | None = None  # what it told about itself, see `WebShop.about`

    @property
    def shop(self) -> NoReturn:
        """No server shows the goal before the purchase: always `HiddenGoalError`."""
        raise HiddenGoalError(
            f"only the server at {self.address} knows the goal; make the environment without base_url, and with the "
            "server's catalogue, to have the same goals in this process"
        )

    def about(self) -> dict[str, Any]:
        """Facts about the store; see `WebShop.about`. The original's goals are counted by asking for some of them."""
        if self.known is None and not self.has_only_pages:
            self.start("all", {"goal": 0}, _ANY)  # whose first page tells
        if self.known is None:
            if self.address not in _COUNTED:
                _COUNTED[self.address] = bisect.bisect_left(_GOALS, True, key=lambda goal: not self._has_goal(goal))
            goals = _COUNTED[self.address]
            ends = {"all": (0, goals), "test": (0, TEST), "eval": (TEST, EVALUATION), "train": (EVALUATION, goals)}
            splits = {name: max(0, min(end, goals) - first) for name, (first, end) in ends.items()}
            known = {"catalog": f"pages of {self.address}", "goals": goals, "splits": splits}
            self.known = {**known, "reward_modes": ["webshop"], "nouns": "the server's"}
        return self.known

    def _has_goal(self, goal: int) -> bool:
        try:
            html, _ = self.patiently(lambda: self.page("GET", f"/{_name_for(goal)}"))
        except ShopServerError as error:
            if error.status is None:
                raise
            return False
        if not ShopPage(html).is_start:
            raise self.no_page(html)
        return True

    def start(self, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> "RemoteSession":
        """See `LocalStore.start`. A `ValueError` if the original's pages do not have what is asked for."""
        if not self.has_only_pages:
            try:
                return RemoteSession(self, split, asked, rules)
            except ShopServerError:
                if not self.has_only_pages:  # which the first page tells
                    raise
        return PagesSession(self, split, asked, rules)

    def _client(self) -> httpx.Client:
        return _client(self.address, os.getpid())

    def page(self, method: str, address: str, form: Mapping[str, str] | None = None, near: str = "") -> tuple[str, str]:
        """Asks for a page once, and follows where the server sends on; returns the page's source and its address.

        `address` is from the root or, as a link has it, from the page `near`. A `ShopServerError` if there is no page.
        """
        place = f"{method} {self.address}{address.partition('?')[0][:200]}"
        try:
            url = httpx.URL(near).join(address) if near else address
            response = self._client().request(method, url, data=form, follow_redirects=True)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, httpx.CookieConflict) as error:
            told = f"{place}: {type(error).__name__}: {error}"
            raise ShopServerError(told, again=isinstance(error, httpx.TransportError)) from error
        text = response.content.decode("utf-8", "replace")  # as every WebShop writes, whatever a header says
        if not response.is_success:
            said = _SENTENCE.search(text)
            told = f"{place}: status {response.status_code}" + (f": {said[1]}" if said else "")
            raise ShopServerError(told, response.status_code, again=response.status_code in _NOT_NOW)
        return text, str(response.url)

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """Calls `attempt` until it has an answer, with growing waits; a `ShopServerError` after the last."""
        for wait in (*WAITS, None):
            try:
                return attempt()
            except ShopServerError as error:
                if not error.again:
                    raise
                if wait is None:
                    tries = f"{len(WAITS) + 1} attempts in {sum(WAITS):g} s"
                    told = f"the store at {self.address} does not answer ({error}; {tries}); {REMEDY}"
                    raise ShopServerError(told) from error
                time.sleep(wait)
        raise AssertionError("the last wait is None")

    def no_page(self, html: str) -> ShopServerError:
        """The error for an answer that is something else."""
        return ShopServerError(f"{self.address} shows no page of a shop: {html.strip()[:80]!r}; {REMEDY}")


class RemoteSession:
    """One episode in a `webshop-server`: a session that survives a lost connection. See `RemoteStore.start`.

    The goal and the actions decide everything that happens in the store. If the server has lost the session, or it is
    unknown whether an action was carried out, a new one plays the same actions. So do copies, pickles and forked
    processes at their first use; they share nothing. Its attributes are those of a `LocalSession`, but no episode.
    """

    goal = -1  # until the first page tells
    instruction = ""

    def __init__(self, store: RemoteStore, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> None:
        """Opens the start page."""
        self.store, self._rules = store, rules
        self._query = {"split": split, **asked, **rules}
        self._opened: tuple[int, str] | None = None  # process, name of the session in the server
        self.played: tuple[str, ...] = ()
        self.answer = store.patiently(self._open)
        self._query = {"goal": self.goal, **rules}  # what a new session must play, even if this one was drawn

    def __getstate__(self) -> dict[str, Any]:
        """Without the session in the server, which belongs to the original."""
        return {**self.__dict__, "_opened": None}

    def step(self, action: str) -> Answer:
        """Carries out an action; see `LocalSession.step`. A `ShopServerError` if that cannot be."""
        self.answer = self._in_session(lambda: self._send(action))
        self.played += (action,) if self.answer.valid else ()
        return self.answer

    def picture(self, hits: int) -> str:
        """See `LocalSession.picture`; the server draws all results of a page."""
        return self._in_session(lambda: self.store.page("GET", f"/drawing/{self._name}.svg")[0])

    @property
    def _name(self) -> str | None:
        """Name of the session in the server; None if there is none, or if it belongs to the parent of this process."""
        return self._opened[1] if self._opened is not None and self._opened[0] == os.getpid() else None

    def _in_session(self, ask: Callable[[], Result]) -> Result:
        """Asks, in a new session if the server has lost the old one."""

        def attempt() -> Result:
            is_new = self._name is None
            try:
                if is_new:
                    self._play_again()
                return ask()
            except ShopServerError as error:
                self._opened = None  # lost, or unknown what was carried out there
                if is_new or error.again or error.status is None:
                    raise
            return attempt()

        return self.store.patiently(attempt)

    def _play_again(self) -> None:
        """Opens a new session and plays the same actions in it."""
        answer = self._open()
        for action in self.played:
            answer = self._send(action)
        if answer.observation != self.answer.observation:
            raise self._changed()

    def _open(self) -> Answer:
        """Begins a session of this episode."""
        name = secrets.token_hex(16)
        query = {key: int(value) if isinstance(value, bool) else value for key, value in self._query.items()}
        html, _ = self.store.page("GET", f"/{name}?{httpx.QueryParams(query)}")
        self._opened = os.getpid(), name
        return self._read(html)

    def _send(self, action: str) -> Answer:
        """Sends an action once."""
        return self._read(self.store.page("POST", f"/{self._name}", {"action": action})[0])

    def _read(self, html: str) -> Answer:
        """The answer that a page of this episode carries in its element."""
        found = _ELEMENT.search(html)
        if found is None and self.goal < 0:
            self.store.has_only_pages = ShopPage(html).is_start
        try:
            text = found[1] if found else "{}"
            carried = json.loads(text)
            task, answer = (carried["goal"], carried["instruction"]), Answer.read(text)
        except (KeyError, TypeError, ValueError) as error:
            raise self.store.no_page(html) from error
        if self.goal >= 0 and task != (self.goal, self.instruction):
            raise self._changed()
        self.goal, self.instruction = task
        self.store.known = carried.get("store", self.store.known)
        return answer

    def _changed(self) -> ShopServerError:
        return ShopServerError(
            f"the store at {self.store.address} shows another page after the same actions: its catalogue or settings "
            "changed in the middle of an episode; reset the environment"
        )


class ShopPage(Store):
    """A page as the original's environments read it, hidden texts included, and the store's rules for what it shows."""

    def __init__(self, html: str, address: str = "") -> None:
        """Reads the source. There is no catalogue and no index: the rules ask them only for what is read here."""
        self.html, self.address, self.sub_pages = html, address, SUB_PAGES
        soup = BeautifulSoup(html, "html.parser")
        task, score = soup.select_one("#instruction-text"), soup.select_one("#reward pre")
        # The task; None on a page without one, which is then no page of a WebShop, or that of a purchase.
        self.instruction = next(reversed([*task.stripped_strings]), None) if task else None
        self.is_start = self.instruction is not None and soup.find(id="search_input") is not None
        paid = _SCORE.fullmatch(score.get_text().strip()) if score else None
        self.reward = float(paid[0]) if paid else None  # the score on the page of a purchase
        options, links = soup.select('input[type="radio"]'), soup.select(".product-link")
        self._products = [link.get_text() for link in links]
        self._options = {str(option.get("value", "")): str(option.get("name", "")) for option in options}
        # Method and address (as the page has it) of what can be pressed, by its label in lower case.
        # Where labels collide, a button comes before a product, and of two options of one value the last one counts.
        self.targets = {str(option.get("value", "")): ("GET", str(option.get("data-url", ""))) for option in options}
        self.targets |= {link.get_text().lower(): ("GET", str(link.get("href", ""))) for link in reversed(links)}
        for button in soup.select(".btn"):
            form = button.find_parent("form")  # which leads somewhere, where the button itself does not
            leads = button.get("formaction") or (form.get("action") if form else "") or button.get("href")
            self.targets[button.get_text().lower()] = "POST", str(leads or "")
        self.pieces: list[Piece] = []  # its visible texts in the order of reading, a role with each
        for text in soup.find_all(string=True):
            parent = text.parent
            if parent is not None and parent.name not in _HIDDEN and not isinstance(text, Comment) and text != "\n":
                is_link = "product-link" in (parent.get("class") or ())
                self.pieces.append((_ROLES.get(parent.name, "link" if is_link else "text"), str(text)))

    def clickables(self, state: PageState, *, parity: bool = False) -> list[str]:
        """What can be clicked by the rules and is on the page."""
        return [label for label in super().clickables(state, parity=parity) if label in self.targets]

    def shown(self, state: PageState) -> Sequence[str]:
        """Identifiers of the products on the page."""
        return self._products

    def _values(self, state: PageState) -> Mapping[str, str]:
        return self._options


class PagesSession(RemoteSession):
    """One episode on the original's pages, as the store plays in parity mode. The reward is the server's."""

    def __init__(self, store: RemoteStore, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> None:
        """Opens the start page."""
        for name, wanted in (("reward", rules["reward"]), ("observation_mode", rules["mode"])):
            if wanted in ("tiered", "success", "short"):
                told = f"{name}={wanted!r} needs a webshop-server, and {store.address} has the original's pages only"
                raise ValueError(f"{told}; use {'webshop' if name == 'reward' else 'text'!r}")
        self.goal = _find_goal(store, split, asked)
        self._fixed = _name_for(self.goal)
        super().__init__(store, split, asked, rules)

    def picture(self, hits: int) -> str:
        """Nothing: pages name pictures on other servers, from which nothing is fetched."""
        return ""

    def _open(self) -> Answer:
        self._page, self._state = ShopPage(*self.store.page("GET", f"/{self._fixed}")), START
        if not self._page.is_start:
            raise self.store.no_page(self._page.html)
        self._opened, self.instruction = (os.getpid(), self._fixed), self._page.instruction or ""
        return self._answer(valid=False, effective=False)

    def _send(self, action: str) -> Answer:
        state, event = self._page.act(self._state, action, parity=True)
        searched = " ".join(state.keywords) if event == "searched" else None
        if event == INVALID or (searched is not None and not searched.strip()):
            return self._answer(valid=False, effective=False)
        if searched is not None:
            found = self.store.page("POST", f"/{self._fixed}", {"search_query": searched})
        else:
            _, label = read_action(action, parity=True)
            found = self.store.page(*self._page.targets[label], near=self._page.address)
        page, before = ShopPage(*found), self._state
        if page.reward is None if event == "bought" else page.instruction != self.instruction:
            raise self.store.no_page(page.html)
        self._page, self._state = page, state
        return self._answer(valid=True, effective=state != before)

    def _answer(self, valid: bool, effective: bool) -> Answer:
        page, state = self._page, self._state
        score = page.reward if state.kind == "done" else None
        labels = page.clickables(state, parity=True)
        observation = address = url(state, str(self.goal))
        if self._rules["mode"] == "html":
            observation = page.html
        elif self._rules["mode"] != "url":
            shown: Sequence[Piece] = page.pieces if score is None else [*receipt(state, score)]
            observation = written(shown, self._rules["mode"], address, state.seen)
        return Answer(
            observation=observation + (actions_line(state, labels, parity=True) if self._rules["show_actions"] else ""),
            url=address,
            reward=score or 0.0,
            done=score is not None,
            valid=valid,
            effective=effective,
            task_score=score or 0.0,
            success=score == 1.0,
            available_actions=AvailableActions(state.kind == "start", tuple(labels)),
            reward_parts=() if score is None else (("total", score),),
            faults=() if score in (None, 1.0) else ("wrong purchase",),
        )


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


def _name_for(goal: int) -> str:
    """A session's name that the original and our server understand, and that no other client has."""
    return f"{secrets.token_hex(6)}_fixed_{goal}"
