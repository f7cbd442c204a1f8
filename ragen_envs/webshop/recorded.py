r"""Episodes of people in the original WebShop, played back as an environment: for warm starts.

WebShop's repository has 1571 of them (`baseline_models/data/il_trajs_finalized_images.jsonl`), a JSON object a line:

    {"states": ["WebShop\nInstruction: \n…", "Instruction:\n…"], "actions": ["search[red shoes]", "click[b0red1]"]}
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ragen_envs.text_env import TEXT_CHARSET, AnyText, TextEnv
from ragen_envs.webshop.env import LONGEST, ShopError, WebShop
from ragen_envs.webshop.shoppers import MAX_ACTION_LENGTH, PRICE_BOUND

_OLD_TITLE = re.compile(r"\AAmazon Shopping Game\n")  # of start pages, when the episodes were played
_REQUEST = re.compile(r"Instruction: ?\n(.*)\n")


class RecordedEpisode(NamedTuple):
    """What a person saw and did."""

    pages: tuple[str, ...]  # the page before each action, in the mode `text_rich`
    actions: tuple[str, ...]  # such as `search[red shoes]`
    request: str  # what was wanted, as the first page says it; empty if it does not


def _read(line: str) -> RecordedEpisode:
    recorded = json.loads(line)
    actions = tuple(action.strip() for action in recorded["actions"])
    pages = tuple(_OLD_TITLE.sub("WebShop\n", page) for page in recorded["states"])
    if not actions or len(pages) < len(actions):  # there may be one more, after the last action
        raise ValueError(f"{len(pages)} states and {len(actions)} actions; each action needs its page")
    request = _REQUEST.search(pages[0])
    return RecordedEpisode(pages[: len(actions)], actions, request[1].strip() if request else "")


def requests_of(shop: WebShop) -> list[str]:
    """What the goals of a shop's split ask for, in order, for `leave_out`; a `ValueError` if there is no such split."""
    return [str(shop.reset(options={"index": index})[1]["request"]) for index in range(shop.count())]


def _wanted(request: str) -> str:
    """A request without its price bound, which is drawn again wherever goals are made."""
    return " ".join(PRICE_BOUND.sub("", request.lower()).split())


class RecordedShop(TextEnv):
    """Do what a person did in WebShop, step by step. Any other action is invalid.

    It is for learning by imitation: train and evaluate in `ragen/WebShop-v0` with ``parity=True`` and
    ``observation_mode="text_rich"``, whose rules and pages are the same. A warm start records that (`learnt_for`).

    ``reset(seed=i)`` plays episode i, modulo their number; without a seed, any. The last page is a line that says
    so. Rewards are 0, as the file does not tell what a purchase scored; any purchase is a `success`.
    """

    learnt_for = ("ragen/WebShop-v0", {"parity": True, "observation_mode": "text_rich"})

    def __init__(
        self, path: str | os.PathLike[str], render_mode: str | None = None, leave_out: Collection[str] = ()
    ) -> None:
        """Reads the file.

        Args:
            path: JSON Lines with `states` and `actions`, lists of texts; see the module.
            render_mode: "ansi", "rgb_array" or None.
            leave_out: Requests (`requests_of`) that are not played, whatever their case, blanks and price bounds.

        Raises:
            ShopError: If a line is something else, or no episode is there but those that are left out.
            OSError: If the file cannot be read.
        """
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(LONGEST["text_rich"], min_length=0, charset=TEXT_CHARSET)
        self.action_space = AnyText(MAX_ACTION_LENGTH, min_length=0, charset=TEXT_CHARSET)
        recorded: list[RecordedEpisode] = []
        try:
            with open(path, encoding="utf-8-sig") as file:
                for line in filter(str.strip, file):
                    recorded.append(_read(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            wanted = "a JSON object with lists of texts, 'states' and 'actions' (of a .zip, unzip it first)"
            told = f"{os.fspath(path)}, episode {len(recorded) + 1}: {type(error).__name__}: {error}"
            raise ShopError(f"{told}; each line is {wanted}") from error
        others = {*map(_wanted, leave_out)}
        self.episodes = tuple(one for one in recorded if _wanted(one.request) not in others)
        if not self.episodes:
            raise ShopError(f"all of {len(recorded)} episodes in {os.fspath(path)} are left out; leave out fewer")

    @property
    def instruction(self) -> str:
        """The rules of WebShop in parity mode."""
        return WebShop(parity=True).instruction

    def best_action(self, actions_left: int) -> str:
        """What the person did next; after the end, what they did last."""
        return self._episode.actions[min(self._taken, len(self._episode.actions) - 1)]

    def _start(self, options: Mapping[str, Any]) -> str:
        drawn = int(self.np_random.integers(len(self.episodes)))
        self._episode = self.episodes[drawn if self._reset_seed is None else self._reset_seed % len(self.episodes)]
        self._taken = 0
        return self._episode.pages[0]

    def _parse_action(self, text: str) -> str | None:
        recorded = self.best_action(1)
        return recorded if text.strip().lower() == recorded.lower() else None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self._taken += 1
        over = self._taken == len(self._episode.actions)
        page = "The recording ends here." if over else self._episode.pages[self._taken]
        return page, 0.0, over, {"success": over and action.lower() == "click[buy now]", "action_is_effective": True}
