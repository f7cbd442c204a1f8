"""The original's pages: a store that is read by their structure, and played by their buttons and links."""

import bisect
import os
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import Comment, NavigableString

from ragen_envs.webshop.remote import RemoteSession, RemoteStore, ShopServerError
from webshop_server.store.answer import Answer, AvailableActions
from webshop_server.store.page_text import Piece, Role, receipt, url, written
from webshop_server.store.shop import actions_line
from webshop_server.store.state import INVALID, START, SUB_PAGES, PageState, Store, read_action

TEST, EVALUATION = 500, 1500
"""Ends of the published splits: test has the goals before the first, eval those before the second, train the rest."""
_GOALS = range(2**25)  # numbers of goals that a server may have
_COUNTED: dict[str, int] = {}  # goals, by address of a server
_HIDDEN = frozenset({"style", "script", "head", "title", "meta", "[document]"})


class ShopPage(Store):
    """A page as the original's environments read it, hidden texts included, and the store's rules for what it shows.

    Attributes:
        instruction: The task; None on a page without one, which is then no page of a WebShop, or that of a purchase.
        is_start: Whether an episode begins on it.
        reward: The score on the page of a purchase, 0 to 1; None on other pages.
        targets: Method and address (as the page has it) of what can be pressed, by its label in lower case.
        pieces: Its visible texts in the order of reading, a role with each.
    """

    def __init__(self, html: str, address: str = "") -> None:
        """Reads the source. There is no catalogue and no index: the rules ask them only for what is read here."""
        self.html, self.address, self.sub_pages = html, address, SUB_PAGES
        soup = BeautifulSoup(html, "html.parser")
        task, score = soup.select_one("#instruction-text"), soup.select_one("#reward pre")
        self.instruction = next(reversed([*task.stripped_strings]), None) if task else None
        self.is_start = self.instruction is not None and soup.find(id="search_input") is not None
        try:
            paid = float(score.get_text()) if score else -1.0
        except ValueError:
            paid = -1.0
        self.reward = paid if 0 <= paid <= 1 else None
        options, links = soup.select('input[type="radio"]'), soup.select(".product-link")
        self._products = [link.get_text() for link in links]
        self._options = {str(option.get("value", "")): str(option.get("name", "")) for option in options}
        # Where labels collide, a button comes before a product, and of two options of one value the last one counts.
        self.targets = {str(option.get("value", "")): ("GET", str(option.get("data-url", ""))) for option in options}
        self.targets |= {link.get_text().lower(): ("GET", str(link.get("href", ""))) for link in reversed(links)}
        for button in soup.select(".btn"):
            form = button.find_parent("form")  # which leads somewhere, where the button itself does not
            leads = button.get("formaction") or (form.get("action") if form else "") or button.get("href")
            self.targets[button.get_text().lower()] = "POST", str(leads or "")
        self.pieces = [(_role(one), str(one)) for one in soup.find_all(string=True) if _is_shown(one)]

    def clickables(self, state: PageState, *, parity: bool = False) -> list[str]:
        """What can be clicked by the rules and is on the page."""
        return [label for label in super().clickables(state, parity=parity) if label in self.targets]

    def shown(self, state: PageState) -> Sequence[str]:
        """Identifiers of the products on the page."""
        return self._products

    def _values(self, state: PageState) -> Mapping[str, str]:
        return self._options


def _is_shown(text: NavigableString) -> bool:
    hidden = text.parent is None or text.parent.name in _HIDDEN or isinstance(text, Comment)
    return not hidden and text != "\n"


def _role(text: NavigableString) -> Role:
    assert text.parent is not None
    if text.parent.name in ("button", "label"):
        return "button" if text.parent.name == "button" else "option"
    return "link" if "product-link" in (text.parent.get("class") or ()) else "text"


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
        self._opened, self._task = (os.getpid(), self._fixed), (self.goal, self._page.instruction or "")
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


def about_pages(store: RemoteStore) -> dict[str, Any]:
    """What can be known of a server of pages; see `WebShop.about`."""

    def lacks(goal: int) -> bool:
        try:
            html, _ = store.patiently(lambda: store.page("GET", f"/{_name_for(goal)}"))
        except ShopServerError as error:
            if error.status is None:
                raise
            return True
        if not ShopPage(html).is_start:
            raise store.no_page(html)
        return False

    if store.address not in _COUNTED:
        _COUNTED[store.address] = bisect.bisect_left(_GOALS, True, key=lacks)
    goals = _COUNTED[store.address]
    ends = {"all": (0, goals), "test": (0, TEST), "eval": (TEST, EVALUATION), "train": (EVALUATION, goals)}
    splits = {name: max(0, min(end, goals) - first) for name, (first, end) in ends.items()}
    known = {"catalog": f"pages of {store.address}", "goals": goals, "splits": splits}
    return {**known, "reward_modes": ["webshop"], "nouns": "the server's"}


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
