"""A small shop: the store of `WebShop` with 96 products, and pages and actions of a few words.

A small model reads a hundred tokens a turn here, and not a thousand.
"""

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ragen_envs.arguments import check_choice
from ragen_envs.text_env import TEXT_CHARSET, AnyText
from ragen_envs.webshop import shoppers
from ragen_envs.webshop.env import WebShop
from ragen_envs.webshop.thoughts import toy_thought
from webshop_server.store.answer import AvailableActions

SHOWN = 5
_TASKS = range(384)
_KEPT = random.Random(42).sample(_TASKS, 256)
SPLITS = {"all": _TASKS, "train": [task for task in _TASKS if task not in _KEPT], "eval": _KEPT}
"""Tasks by split; those for evaluation in the order of its prompts."""

_TEXT = r"([^\x00-\x1f\x7f\ud800-\udfff]+)"
_ACTION = re.compile(rf"(search|click|filter|buy)\s*(?::{_TEXT}|\[{_TEXT}\])", re.IGNORECASE)


class ToyShop(WebShop):
    """Buy what is asked for in a shop of 96 products.

    ## Description
    Shoes, clothing and accessories, each in 8 colors and 4 sizes: 96 products with random ids for $20 to $150, and 384
    tasks in different words. A product's title has its size, color and material; its page has one more property. 256 of
    the tasks, always the same, are for evaluation. Each product has four tasks, at least one of them for evaluation, so
    the evaluation measures how new words are understood, not how unseen products are found.

    ## Action Space
    AnyText: `search:words`; `filter:price<50`, `filter:color=red`, `filter:size=large` to narrow the last results, and
    `filter:all` to have all again; `click:id` to read about a product; `buy:id`. Ids are those of the last results, in
    any case. `search[words]`, `filter[price<50]`, `click[id]` and `buy[id]` mean the same.

    ## Observation Space
    AnyText: the line ``Wanted: …``, then the five best results, one line for each (``id | title | price``), or a
    product's title, price and features, or what was bought and its score. With ``render_mode="rgb_array"`` the store
    draws the product, or the results in the order of their lines; before the first search it is a picture of text.

    ## Starting State
    A task of the split, uniformly. With ``split="eval"`` ``reset(seed=i)`` plays evaluation prompt i modulo 256; a
    reset without a seed draws one. ``options={"goal": i}`` plays task number i of all, ``options={"index": i}`` task
    number i of the split.

    ## Rewards
    0, and for the purchase its score: the share of wanted properties and price that match, times how well the kind of
    product matches. Only the right product gets 1. ``reward="tiered"`` and ``reward="success"`` are as in WebShop.

    ## Episode End
    Terminated by a purchase. Truncated after `max_steps` valid actions without one.

    ## Information
    `success`, `task_score`, `purchased`, `reward_parts`, `url`, `faults` and `request`: as in `ragen/WebShop-v0`.
    `action_is_valid`: the action is one of the four, the id was shown, and the condition of a filter was understood.
    `action_is_effective`: the observation changed. `available_actions`: clickables, and buyable, are the ids that can
    be clicked and bought; has_filters is true after a search. `goal_id`: number of the task.

    ## Version History
    v0: first version.

    ## Source
    The rules are WebShop's (MIT, arXiv 2207.01206). The 96 products are as a student report on A*-PO describes its
    shop; their texts and the tasks are generated here. This code is under Apache-2.0.
    """

    hits_drawn = SHOWN
    seen = "The picture shows the product, or the results in the order of their lines."

    horizon = 5
    turn_limits: ClassVar[Mapping[str, int] | None] = {"max_turns": 5, "max_actions_per_turn": 1, "max_actions": 5}

    def __init__(
        self, split: str = "train", reward: str = "fixed", max_steps: int | None = 5, render_mode: str | None = None
    ) -> None:
        """Sets the rules; the first `reset` opens the store.

        Args:
            split: "train" (128 tasks), "eval" (the 256 evaluation prompts) or "all".
            reward: "fixed", "webshop", "tiered" or "success".
            max_steps: Valid actions after which an episode is truncated; None for no limit.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range.
        """
        check_choice("split", split, SPLITS)
        super().__init__("toy", reward=reward, max_steps=max_steps, human_goals=True, render_mode=render_mode)
        self.observation_space = AnyText(4096, min_length=0, charset=TEXT_CHARSET)
        self.split = split

    @property
    def instruction(self) -> str:
        """The rules of every episode."""
        return str(shoppers.TEXTS["instructions"]["toy"])

    def count(self) -> int:
        """Number of tasks of the split."""
        return len(SPLITS[self.split])

    def best_action(self, actions_left: int) -> str:
        """Searches for size, color and kind of the wanted product, which only this product has, and buys it."""
        _, goal, _ = shoppers.known(self)
        if any(hit.asin == goal.asin for hit in self.hits):
            return f"buy:{goal.asin}"
        return f"search:{' '.join(_looks(goal.name))}"

    def random_action(self, rng: np.random.Generator) -> str:
        """Uniform over a search for random words of the instruction, and clicking or buying each result."""
        choice = int(rng.integers(1 + 2 * len(self.hits)))
        if choice == 0:
            return f"search:{shoppers.random_words(self.session.instruction, rng)}"
        verb = "click" if choice <= len(self.hits) else "buy"
        return f"{verb}:{self.hits[(choice - 1) % len(self.hits)].asin}"

    def demonstrated_action(self, actions_left: int, rng: np.random.Generator, noise: float) -> str:
        """Searches like the oracle, but with some wrong words, and buys the first result, even if it is wrong.

        Each word of a search is noisy by itself, so that a model sees what a search consists of. From searches that are
        random as a whole, it would learn to ignore the request. `noise` is the probability, separately for size, color
        and kind, that it is that of a random product.
        """
        if self.hits:
            return f"buy:{self.hits[0].asin}"
        shop, goal, _ = shoppers.known(self)
        right = _looks(goal.name)
        others = rng.integers(len(_TASKS), size=len(right))
        mistaken = [_looks(shop.goal(int(other)).name)[slot] for slot, other in enumerate(others)]
        words = [drawn if rng.random() < noise else word for word, drawn in zip(right, mistaken, strict=True)]
        return f"search:{' '.join(words)}"

    explain = toy_thought

    def _start(self, options: Mapping[str, Any]) -> str:
        super()._start(options)
        self.hits: list[shoppers.ShownProduct] = []
        self._searched = ""  # the words of the last search
        return f"Wanted: {self.session.instruction}"

    def _goal_for(self, options: Mapping[str, Any], drawn: int) -> Mapping[str, int]:
        asked, tasks = super()._goal_for(options, drawn), SPLITS[self.split]
        index = asked.get("index", drawn % len(tasks))
        if index >= len(tasks):
            raise ValueError(f"index={index} does not exist; split {self.split!r} has the tasks 0 to {len(tasks) - 1}")
        return asked if "goal" in asked else {"goal": tasks[index]}

    def _parse_action(self, text: str) -> str | None:
        match = _ACTION.fullmatch(text.strip())
        if match is None or len(text) > shoppers.MAX_ACTION_LENGTH:
            return None
        verb, what = match[1].lower(), (match[2] or match[3]).strip()
        if verb == "search":
            return f"search:{what}" if shoppers.search_words(what) else None
        if verb == "filter":
            return f"filter:{what}" if self._searched and shoppers.search_words(what) == what else None
        return f"{verb}:{what.lower()}" if any(hit.label == what.lower() for hit in self.hits) else None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """The moves in the store that carry out an action, and what the last one shows."""
        before, (verb, _, what) = self._observation or "", action.partition(":")
        shop, _, state = shoppers.known(self)
        moves = {"search": [shoppers.search_for(what)], "filter": [f"filter[{what}]"], "click": [f"click[{what}]"]}
        moves["buy"] = [*moves["click"], "click[buy now]"]
        back_to_results = ["click[< prev]"] if state.kind == "item" and verb != "search" else []
        answers = [self.session.step(move) for move in (*back_to_results, *moves[verb])]
        last, reward = answers[-1], float(sum(answer.reward for answer in answers))
        if not last.valid:  # a filter whose condition the store does not understand
            if state.kind == "item":
                self.session.step(f"click[{state.asin.lower()}]")  # from the results back to where it was
            return before, reward, False, self._idle()
        self._steps += 1
        self._truncated = not last.done and self._steps == self._max_steps
        if verb in ("search", "filter"):
            self._searched = what if verb == "search" else self._searched
            self.hits = shoppers.products(self)[:SHOWN]
            asked = ", ".join([self._searched, *map(str, shoppers.known(self)[2].filters)])
            hits = [f"{hit.asin} | {hit.title} | {hit.price}" for hit in self.hits]
            lines = [f"Results for {asked}:", *hits] if hits else [f"No results for {asked}"]
        else:
            hit = next(hit for hit in self.hits if hit.label == what)
            if verb == "buy":
                lines = [f"Bought {hit.asin}: {hit.title}", f"Score: {last.task_score:.2f}"]
            else:
                features = shop.catalog.product(hit.asin).bullet_points
                lines = [f"Product {hit.asin}: {hit.title}", f"Price: {hit.price}", *features]
        page = "\n".join([f"Wanted: {self.session.instruction}", *lines])
        info = {"success": last.success, "action_is_valid": True, "action_is_effective": page != before}
        return page, reward, last.done, self._idle() | info

    def _idle(self) -> dict[str, Any]:
        """The info of WebShop, but with the ids of this environment as available actions."""
        goes_on = not self.session.answer.done
        ids = tuple(hit.label for hit in self.hits) if goes_on else ()
        offered = AvailableActions(goes_on, ids, has_filters=bool(self._searched) and goes_on, buyable=ids)
        return super()._idle() | {"available_actions": offered}


def _looks(title: str) -> tuple[str, str, str]:
    """Size, color and kind in the title of a toy product; the material is before the kind."""
    size, color, _, kind = title.lower().split(maxsplit=3)
    return size, color, kind
