r"""Episodes of people in the original WebShop, played back as an environment: for warm starts.

WebShop's repository has 1571 of them (`baseline_models/data/il_trajs_finalized_images.jsonl`), a JSON object a line:

    {"states": ["WebShop\nInstruction: \n…", "Instruction:\n…"], "actions": ["search[red shoes]", "click[b0red1]"]}
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ragen_envs.any_text import AnyText
from ragen_envs.errors import EnvError
from ragen_envs.text_env import TEXT_CHARSET, TextEnv
from ragen_envs.webshop.env import LONGEST, WebShop
from ragen_envs.webshop.shoppers import MAX_ACTION_LENGTH, PRICE_BOUND

_TITLES = ("Amazon Shopping Game\n", "WebShop\n")  # of start pages: when the episodes were played, and today
_REQUEST = re.compile(r"Instruction: ?\n(.*)\n")


class RecordingError(EnvError, ValueError):
    """A file does not hold episodes in WebShop's form."""


class RecordedEpisode(NamedTuple):
    """What a person saw and did.

    Attributes:
        pages: The page before each action, in the mode `text_rich`.
        actions: The actions, such as `search[red shoes]`.
    """

    pages: tuple[str, ...]
    actions: tuple[str, ...]

    @property
    def request(self) -> str:
        """What was wanted, as the first page says it; empty if it does not."""
        found = _REQUEST.search(self.pages[0])
        return found[1].strip() if found else ""


def read_recording(path: str | os.PathLike[str]) -> tuple[RecordedEpisode, ...]:
    """Reads a file of episodes: JSON Lines with `states` and `actions`, lists of texts; see the module.

    Raises:
        RecordingError: If a line is something else, or if the file has no episode.
        OSError: If the file cannot be read.
    """
    old, new = _TITLES
    episodes: list[RecordedEpisode] = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for found in map(json.loads, filter(str.strip, file)):
                pages = [new + page.removeprefix(old) if page.startswith(old) else page for page in found["states"]]
                actions = tuple(action.strip() for action in found["actions"])
                if not actions or len(pages) < len(actions):  # there may be one more, after the last action
                    raise ValueError(f"{len(pages)} states and {len(actions)} actions; each action needs its page")
                episodes.append(RecordedEpisode(tuple(pages[: len(actions)]), actions))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        wanted = "each line is a JSON object with lists of texts, 'states' and 'actions' (of a .zip, unzip it first)"
        told = f"{os.fspath(path)}, episode {len(episodes) + 1}: {type(error).__name__}: {error}"
        raise RecordingError(f"{told}; {wanted}") from error
    return tuple(episodes)


def requests_of(shop: WebShop) -> list[str]:
    """What the goals of a shop's split ask for, one after the other; of "test", say, to leave them out of a warm start.

    Raises:
        ShopServerError: If the store does not answer.
        ValueError: If it has no such split.
    """
    return [str(shop.reset(options={"index": index})[1]["request"]) for index in range(shop.count())]


def _wanted(request: str) -> str:
    """A request without its price bound, which is drawn again wherever goals are made."""
    return " ".join(PRICE_BOUND.sub("", request.lower()).split())


class RecordedShop(TextEnv):
    """Do what a person did in WebShop, step by step.

    ## Description
    An episode of a file is played back. It goes on with the recorded action only; any other one is invalid. It is for
    learning by imitation: train and evaluate in `ragen/WebShop-v0` with ``parity=True`` and
    ``observation_mode="text_rich"``, whose rules and pages are the same. A warm start records that (`learnt_for`).

    ## Action Space
    AnyText: the recorded action, in any case.

    ## Observation Space
    AnyText: the recorded page, in the mode `text_rich`; after the last action a line that says so.

    ## Starting State
    Episode number `seed` modulo the number of episodes, so that as many seeds in a row play each once; a reset without
    a seed draws one.

    ## Rewards
    0. The file does not tell what the purchases scored.

    ## Episode End
    Terminated by the last action.

    ## Information
    `success`: the recorded action that ended the episode is a purchase, whatever it scored.

    ## Arguments
    See `__init__`.

    ## Version History
    Not registered: it needs a file.
    """

    learnt_for = ("ragen/WebShop-v0", {"parity": True, "observation_mode": "text_rich"})

    def __init__(
        self, path: str | os.PathLike[str], render_mode: str | None = None, leave_out: Collection[str] = ()
    ) -> None:
        """Reads the file.

        Args:
            path: The file; see `read_recording`.
            render_mode: "ansi", "rgb_array" or None.
            leave_out: Requests whose episodes are not played, such as those of a split that is evaluated
                (`requests_of`). Case, blanks and price bounds do not matter.

        Raises:
            RecordingError: If it holds no episodes in WebShop's form, or none but those that are left out.
            OSError: If it cannot be read.
        """
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(LONGEST["text_rich"], min_length=0, charset=TEXT_CHARSET)
        self.action_space = AnyText(MAX_ACTION_LENGTH, min_length=0, charset=TEXT_CHARSET)
        recorded, others = read_recording(path), {*map(_wanted, leave_out)}
        self.episodes = tuple(one for one in recorded if _wanted(one.request) not in others)
        if not self.episodes:
            raise RecordingError(f"all of {len(recorded)} episodes in {os.fspath(path)} are left out; leave out fewer")
        self._episode, self._taken = self.episodes[0], 0
        self._rules = WebShop(parity=True).instruction

    @property
    def instruction(self) -> str:
        """The rules of WebShop in parity mode."""
        return self._rules

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
