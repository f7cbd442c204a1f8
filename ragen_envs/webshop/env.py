"""WebShop as a text environment: find a product in an online store, choose its options, buy it.

The store is `webshop_server`: by default a `Shop` in this process, one for all environments with the same settings,
else the pages of a server (`remote`). It decides what is on a page, what an action does, and what it earns.
"""

import functools
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragen_envs.arguments import check_choice, check_flags, check_limit, checked_number
from ragen_envs.errors import EnvError
from ragen_envs.render import draw_svg, draw_text
from ragen_envs.text_env import TEXT_CHARSET, AnyText, TextEnv
from ragen_envs.webshop import shoppers
from ragen_envs.webshop.thoughts import shop_thought
from webshop_server.store.answer import REWARDS, Answer, AvailableActions

if TYPE_CHECKING:
    from ragen_envs.webshop.remote import RemoteSession, RemoteStore
    from webshop_server.store.shop import Shop

SPLITS = ("all", "test", "eval", "train", "test_by_product", "eval_by_product", "train_by_product")
"""Splits of a store. A server that has only pages knows those without "_by_product"; `reset` says so."""
LONGEST = {"text": 65_536, "text_rich": 65_536, "html": 2_097_152, "url": 16_384, "short": 65_536}
"""Observation modes, and the longest observation of each, in characters: of public products with some room. In html
each option value has its own address, with every character of the search, so that 50 values take 1.4 million."""
_SIDE = 336  # pixels of a picture: 12 × 12 parts of 28, as Qwen2.5-VL sees them

# Texts that may be actions. The store decides.
_ACTION = re.compile(r"(search|click|filter|buy)\s*\[([^\x00-\x1f\x7f\ud800-\udfff]+)\]", re.IGNORECASE)
_UNSENDABLE = re.compile(r"[\ud800-\udfff]")  # halves of characters, which UTF-8 cannot write

_LOCKS: dict[tuple["LocalStore", int], threading.Lock] = {}


class ShopError(EnvError, ValueError):
    """No store or recording can be opened with these settings, or it has no such goal; the message says why."""


@dataclass(frozen=True)
class LocalStore:
    """A store in this process. It is nothing but its settings, so copies, pickles and forks find the shop by them."""

    catalog: str  # "toy", "synthetic", "synthetic:5000", or the path of a catalogue
    human_goals: bool = False  # whether goals are those that people wrote, and not generated ones
    nouns: str | None = None  # noun tagger, see `webshop_server.goals.nouns`; None for the one that suits the catalogue
    has_only_pages = False

    @property
    def shop(self) -> "Shop":
        """The shop, opened at its first use, once for all threads; a `ShopError` if it cannot be opened."""
        with _LOCKS.setdefault((self, os.getpid()), threading.Lock()):
            return _opened(self, os.getpid())

    def about(self) -> dict[str, Any]:
        """Facts about the store; see `WebShop.about`."""
        return self.shop.about()

    def start(self, split: str, asked: Mapping[str, int], rules: Mapping[str, Any]) -> "LocalSession":
        """Begins an episode; see `Shop.find_goal` and `Rules`. A `ShopError` if there is no such goal."""
        try:
            return LocalSession(self, self.shop.find_goal(split, **asked), rules)
        except (IndexError, ValueError) as error:
            raise error if isinstance(error, EnvError) else ShopError(str(error)) from error


@functools.cache
def _opened(store: LocalStore, process: int) -> "Shop":
    """The shop of a process: what one has open survives no fork."""
    from webshop_server.store.shop import open_shop

    try:
        return open_shop(store.catalog, human_goals=store.human_goals, nouns=store.nouns)
    except ValueError as error:
        raise ShopError(f"catalog={store.catalog!r}: {error}") from error


class LocalSession:
    """One episode in the store of this process."""

    def __init__(self, store: LocalStore, goal: int, rules: Mapping[str, Any]) -> None:
        """Begins."""
        from webshop_server.store.shop import Rules

        self.store, self.goal = store, goal
        self.instruction = store.shop.goal(goal).instruction  # what is asked for
        self.episode = store.shop.start(goal, Rules(**rules))  # where it stands
        self.answer = store.shop.answer(self.episode)  # the last one
        self.played: tuple[str, ...] = ()  # the valid actions so far

    def step(self, action: str) -> Answer:
        """Carries out an action, any text that UTF-8 can write; returns the store's answer, which is also kept."""
        shop = self.store.shop
        self.episode = shop.step(self.episode, action)
        self.answer = shop.answer(self.episode)
        self.played += (action,) if self.answer.valid else ()
        return self.answer

    def picture(self, hits: int) -> str:
        """The page as an SVG document: its product, or at most `hits` results; "" where there is no drawing."""
        return self.store.shop.picture(self.episode, hits)


class WebShop(TextEnv):
    """Buy what is asked for in an online store.

    ## Description
    A store with a search, pages of results, and products with descriptions and options. The task names a kind of
    product, attributes that it must have, options to choose and a highest price. Some attributes are shown only on the
    pages of a product. The store is that of WebShop, page for page, with its own or any other catalogue.

    ## Action Space
    AnyText: `search[words]` on any page, and `click[label]` for anything that the page offers: a button, a product's
    id, an option. On a page of results also `filter[price<50]`, `filter[category=fashion]`, `filter[color=red]` (any
    option's name), and `filter[all]` to remove all filters. `buy[id]` buys a product that the page shows, with the
    options chosen so far; so does `buy[now]` on its own pages. Case and blanks around an action or its argument do not
    matter. In parity mode the last two verbs do not exist, and blanks count.

    ## Observation Space
    AnyText: the page, in one of the original's modes. `text`: all texts, joined by " [SEP] ". `text_rich`: one line for
    each, with marks around what can be clicked. `html`: the page's source. `url`: its address, which does not say the
    task. Or in a mode of its own, `short`, with fewer tokens: the task is on the first page only, and products among
    results have numbers, for `click[2]` and `buy[2]`. With ``render_mode="rgb_array"`` the store draws the product, or
    those among results; any other page is drawn as text.

    ## Starting State
    The page with the search field, for a goal of the split, drawn so that rare attributes are as likely as common ones.
    In the splits for test and eval ``reset(seed=i)`` plays goal i of the split, modulo their number.
    ``options={"goal": i}`` plays goal number i of the catalogue, ``options={"index": i}`` goal number i of the split.

    ## Rewards
    `fixed`: 0, and for the purchase its score: the share of attributes, options and price that match, times how well
    the kind of product matches, from 0 to 1. `webshop`: the same by the original's formula, including its mistakes.
    `tiered`: also a reward on the way, for each page that is better than all before: see `webshop_server.goals.tiers`.
    `success`: 1 for the purchase whose score by `fixed` is 1, and nothing else.

    ## Episode End
    Terminated by a purchase. Truncated after `max_steps` valid actions without one.

    ## Information
    `success`: the score is 1. `action_is_valid`: the store understood the action and could carry it out.
    `action_is_effective`: the page changed. `task_score`: score of the purchase in every reward mode, 0.0 before it.
    `purchased`: something was bought. `reward_parts`: pairs of names and values, the parts of the score, () before it.
    `available_actions`: what the page offers, a named tuple: has_search_bar, the labels in clickables, has_filters,
    and what `buy[…]` takes in buyable. `goal_id`: number of the goal. `url`: address of the page. `request`: what is
    wanted. `faults`: before a purchase "no purchase", and "search loop" if one search was sent twice or three were sent
    in a row; after it those that hold of "wrong kind", "wrong color", "wrong size", "wrong attribute", "wrong option"
    and "too dear", or "wrong purchase" where a server tells the score alone.

    ## Version History
    v0: first version.

    ## Source
    Rules, pages and rewards are WebShop's (MIT, arXiv 2207.01206). This code and its own catalogues are under
    Apache-2.0; the texts of public catalogues belong to others.
    """

    store: "LocalStore | RemoteStore"
    session: "LocalSession | RemoteSession"
    """The episode in the store: number of the goal, task, last answer. Exists after `reset`."""

    hits_drawn: ClassVar[int] = 10
    seen: ClassVar[str] = (
        "The picture shows the product, or the products of a page of results in their order, with numbers."
    )
    """The most products of a page of results in a picture, and what a model that sees it is told."""

    option_names: ClassVar[tuple[str, ...]] = ("outcome_seed", "goal", "index")
    idle_info: ClassVar[Mapping[str, Any]] = {
        "task_score": 0.0,
        "purchased": False,
        "reward_parts": (),
        "available_actions": AvailableActions(True, ()),
        "goal_id": 0,
        "url": "",
        "faults": ("no purchase",),
        "request": "",
    }

    horizon = 15
    plain_arguments = ("split", "reward", "observation_mode")
    turn_limits: ClassVar[Mapping[str, int] | None] = {"max_turns": 9, "max_actions_per_turn": 1, "max_actions": 9}
    """RAGEN's (its config/_6_webshop.yaml)."""

    def __init__(
        self,
        catalog: str | None = None,
        split: str = "all",
        reward: str = "fixed",
        observation_mode: str = "text",
        base_url: str | None = None,
        max_steps: int | None = 15,
        show_actions: bool = False,
        parity: bool = False,
        human_goals: bool | None = None,
        nouns: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Sets the store and the rules; the first `reset` opens the store.

        Args:
            catalog: For a store in this process: "toy", "synthetic" (the default), "synthetic:5000", or a path.
            split: The goals to draw from: "all"; "test", "eval" or "train" as published; or one of these with
                "_by_product", where no product is in two splits.
            reward: "fixed", "webshop", "tiered" or "success".
            observation_mode: "text", "text_rich", "html", "url" or, not in parity mode, "short".
            base_url: A running server, such as "http://127.0.0.1:3000"; its catalogue is played.
            max_steps: Valid actions after which an episode is truncated; None for no limit.
            show_actions: Whether observations end with the possible actions.
            parity: Whether to behave exactly as the original, including its oddities.
            human_goals: For a store in this process: goals that people wrote, and not generated ones (the default).
            nouns: For a store in this process: how the score finds nouns in titles; see `webshop_server.goals.nouns`.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range.
        """
        check_choice("split", split, SPLITS)
        check_choice("reward", reward, REWARDS)
        check_choice("observation_mode", observation_mode, LONGEST)
        check_limit("max_steps", max_steps)
        check_flags(show_actions=show_actions, parity=parity, human_goals=False if human_goals is None else human_goals)
        if parity and observation_mode == "short":
            raise ValueError("observation_mode='short' is not the original's; leave parity=True out, or take 'text'")
        if base_url is not None and not (catalog is None and human_goals is None and nouns is None):
            raise ValueError("catalog=, human_goals= and nouns= are set by the server at base_url=; leave them out")
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(LONGEST[observation_mode], min_length=0, charset=TEXT_CHARSET)
        self.action_space = AnyText(shoppers.MAX_ACTION_LENGTH, min_length=0, charset=TEXT_CHARSET)
        if base_url is None:
            self.store = LocalStore("synthetic" if catalog is None else catalog, bool(human_goals), nouns)
        else:
            from ragen_envs.webshop.remote import RemoteStore  # which takes its time, and few need it

            self.store = RemoteStore(base_url)
        self.split, self.observation_mode, self.parity = split, observation_mode, bool(parity)
        shown = {"mode": observation_mode, "show_actions": bool(show_actions)}
        self._rules = {**shown, "reward": reward, "parity": self.parity}
        self._max_steps = max_steps

    @property
    def instruction(self) -> str:
        """The rules of every episode; the pages say what to buy."""
        original = self.parity or self.store.has_only_pages
        kind = "short" if self.observation_mode == "short" else "original" if original else "whole"
        return str(shoppers.TEXTS["instructions"][kind])

    @property
    def picture_instruction(self) -> str:
        """The rules, and what the picture is of."""
        return f"{self.instruction}\n{self.seen}"

    @property
    def text_beside_picture(self) -> str:
        """The page: no picture shows prices, options, and what can be clicked."""
        return self._observation or ""

    @property
    def task(self) -> str:
        """See `TextEnv.task`."""
        return f"Wanted: {self.session.instruction}" if self.observation_mode == "short" else ""

    def about(self) -> dict[str, Any]:
        """Facts about the store, which is asked for them: its catalogue, its products, its goals, and their splits."""
        return self.store.about()

    def count(self) -> int:
        """Number of goals of the split. It asks the store, and raises a `ValueError` if that has no such split."""
        splits = self.about()["splits"]
        if self.split not in splits:
            raise ValueError(f"split={self.split!r} is unknown; the store has {', '.join(splits)}")
        return int(splits[self.split])

    best_action = shoppers.best_shop_action
    random_action = shoppers.random_shop_action
    demonstrated_action = shoppers.careless_shop_action
    explain = shop_thought

    def difficulty(self) -> float:
        """Attributes and options that the goal asks for, and 1 for a highest price."""
        from webshop_server.goals.goals import NO_PRICE_BOUND

        _, goal, _ = shoppers.known(self)
        return float(len(goal.attributes) + len(goal.options) + (goal.price_upper < NO_PRICE_BOUND))

    def _start(self, options: Mapping[str, Any]) -> str:
        # Drawn even when an option replaces it, so that the option cannot shift later start states.
        asked = self._goal_for(options, int(self.np_random.integers(2**31)))
        self.session, self._steps = self.store.start(self.split, asked, self._rules), 0
        return self.session.answer.observation

    def _goal_for(self, options: Mapping[str, Any], drawn: int) -> Mapping[str, int]:
        """What names the goal: "goal", "index" or "seed". `drawn` is a random number below 2³¹."""
        given = [name for name in ("goal", "index") if options.get(name) is not None]
        asked = {name: checked_number(name, options[name]) for name in given}
        if len(asked) > 1:
            raise ValueError(f"options {asked} name two goals; give one of them")
        if asked or self._reset_seed is None or not self.split.startswith(("test", "eval")):
            return asked or {"seed": drawn}
        goals = self.count()  # without any the store says what is wrong
        return {"index": self._reset_seed % goals} if goals else {"seed": drawn}

    def _parse_action(self, text: str) -> str | None:
        action = text if self.parity else text.strip()
        if len(action) > shoppers.MAX_ACTION_LENGTH or _UNSENDABLE.search(action):
            return None
        if self.parity:
            return action
        match = _ACTION.match(action)
        return f"{match[1].lower()}[{match[2].strip()}]" if match and match[2].strip() else None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        answer = self.session.step(action)
        self._steps += answer.valid
        self._truncated = not answer.done and self._steps == self._max_steps
        info = {"success": answer.success, "action_is_valid": answer.valid, "action_is_effective": answer.effective}
        return answer.observation, answer.reward, answer.done, self._idle() | info

    def _picture(self) -> NDArray[np.uint8]:
        """The store's drawing of the page; of a page without products, and of a server of pages only, its text."""
        drawing = self.session.picture(self.hits_drawn)
        return draw_svg(drawing, _SIDE) if drawing else draw_text(self._observation or "", _SIDE, _SIDE)

    def _idle(self) -> dict[str, Any]:
        """Also for invalid actions, the info has what is known of the episode."""
        answer = self.session.answer
        return super()._idle() | {
            "task_score": answer.task_score,
            "purchased": answer.done,
            "reward_parts": answer.reward_parts,
            "available_actions": answer.available_actions,
            "goal_id": self.session.goal,
            "url": answer.url,
            "faults": answer.faults if answer.done else _faults_so_far(self.session.played),
            "request": self.session.instruction,
        }


def _faults_so_far(played: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with an episode without a purchase, from its valid actions."""
    searches = [action if action.startswith("search[") else "" for action in played]
    repeated = len({*searches} - {""}) < sum(map(bool, searches))
    three_in_a_row = any(map(all, zip(searches, searches[1:], searches[2:], strict=False)))
    return ("no purchase", "search loop") if three_in_a_row or repeated else ("no purchase",)
