"""WebShop as a text environment: find a product in an online store, choose its options, buy it.

The store itself is `webshop_server`; here it is a client, always by HTTP: to a server at `base_url`, or by default to
the real Flask app in this process, so that nothing has to be started. What is on a page, what an action does and what
it pays is the store's business. Left out: pictures of products, and anything that would tell the goal before the
purchase (`policies` has the oracle, which looks into a store in this process).
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from ragen_envs.arguments import check_integer, checked_number
from ragen_envs.text_env import TEXT_CHARSET, TextEnv
from ragen_envs.webshop.any_text import AnyText
from ragen_envs.webshop.client import server_connection
from ragen_envs.webshop.local_store import StoreSettings, local_connection
from ragen_envs.webshop.session import AvailableActions, ShopSession

REWARDS = ("webshop", "fixed", "tiered")
LONGEST = {"text": 65_536, "text_rich": 65_536, "html": 2_097_152, "url": 16_384}
"""Observation modes, and room for the longest observation of each.

Text: the largest of the public 1000 products has a page of 16,570 characters. An address: 1000 of a search, 10,000 of
eight filters, and the chosen options. HTML: each option value has an address of its own, in which one character of the
search or of a filter takes up to twelve, so that 50 values, the most that a public product has, come to 1.4 million."""
MAX_ACTION_LENGTH = 1000
"""Longer ones are no actions. The store's own limit for a search is not lower, so that none is too long for it."""
DEFAULT_CATALOG = "synthetic"

# What the store might understand. Whether it does is for the store to say.
_ACTION = re.compile(r"(?:search|click|filter)\[[^\x00-\x1f\x7f\ud800-\udfff]+\]")
_UNSEARCHABLE = re.compile(r"[\[\]\x00-\x1f\x7f\ud800-\udfff]")
_UNSENDABLE = re.compile(r"[\ud800-\udfff]")  # halves of characters, which UTF-8 cannot write


def search_words(text: str) -> str:
    """What of a text can be searched for: no brackets, which would end the action early; "" if nothing is left."""
    words = " ".join(_UNSEARCHABLE.sub(" ", text).split())
    return words[: MAX_ACTION_LENGTH - len("search[]")].strip()


def search_for(text: str) -> str:
    """The action that searches for a text, or for "anything" where it has no words.

    >>> search_for("Soap [3 pack]")
    'search[Soap 3 pack]'
    """
    return f"search[{search_words(text) or 'anything'}]"


class WebShop(TextEnv):
    """Buy what is asked for in an online store.

    ## Description
    A store with a search, pages of results, and products with descriptions and options. The task names a kind of
    product, attributes it must have, options to choose and a price not to exceed; some of it stands only on the pages
    of a product. The store is WebShop's, page for page, with its own or any other catalogue.

    ## Action Space
    AnyText: `search[words]` on any page, and `click[label]` for whatever the page offers: a button, a product's id, an
    option, in any case; blanks around an action do not count. On a page of results also `filter[price<50]`,
    `filter[category=fashion]`, `filter[color=red]`, and `filter[all]` to take them off. `available_actions` in the
    information lists what can be clicked. In parity mode there are no filters, and the store gets an action as it is
    written, blanks included; ours alone are the limit of its length, and that lone surrogates and control characters
    make no search.

    ## Observation Space
    AnyText: the page, in one of the original's modes. `text`: all texts, joined by " [SEP] ". `text_rich`: a line each,
    with what can be clicked in marks. `html`: the page's source. `url`: its address. The task stands on every page but
    in addresses. Texts of products may have any characters, so the space asks for the length alone (see `any_text`).

    ## Starting State
    The page with the search field, for a goal that is drawn from the split, rare wishes as often as common ones.
    ``options={"goal": i}`` plays goal number i of the catalogue, ``options={"index": i}`` that of the split.

    ## Rewards
    `fixed`: 0, and for the purchase its score: the share of attributes, options and price that are met, times how well
    the kind of product is met, from 0 to 1. `webshop`: the same by the original's formula, mistakes included.
    `tiered`: credit on the way, too, for whatever is better than all before: see `webshop_server.tiers`.

    ## Episode End
    Terminated by a purchase. Truncated after `max_steps` valid actions without one.

    ## Information
    `success`: the score is 1. `action_is_valid`: the store understood the action and could carry it out.
    `action_is_effective`: the page changed. `task_score`: score of the purchase whatever the rewards are, 0.0 before.
    `purchased`: something was bought. `reward_parts`: pairs of names and values that the score is made of, () before.
    `available_actions`: what the page offers, a named tuple: has_search_bar, and the labels in clickables.
    `goal_id`: number of the goal. `url`: address of the page.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.
    """

    option_names: ClassVar[tuple[str, ...]] = ("outcome_seed", "goal", "index")
    idle_info: ClassVar[Mapping[str, Any]] = {
        "task_score": 0.0,
        "purchased": False,
        "reward_parts": (),
        "available_actions": AvailableActions(True, ()),
        "goal_id": 0,
        "url": "",
    }

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
        """Says which store and how to play; it is opened by the first `reset`.

        Args:
            catalog: Of a store in this process: "toy", "synthetic" (the default), "synthetic:5000", or a path.
            split: Where goals are drawn: "all"; "test", "eval" or "train" as published; or one of these with
                "_by_product", where no product is in two splits.
            reward: "fixed", "webshop" or "tiered".
            observation_mode: "text", "text_rich", "html" or "url".
            base_url: A running server, such as "http://127.0.0.1:3000", whose catalogue is then played.
            max_steps: Valid actions after which an episode is truncated; None for no limit of its own.
            show_actions: Whether observations end with what can be done.
            parity: Whether to behave as the original in everything, its oddities included.
            human_goals: Of a store in this process: goals that people wrote instead of generated ones (the default).
            nouns: Of a store in this process: how the score finds nouns in titles; see `webshop_server.nouns`.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range.
        """
        if observation_mode not in LONGEST:
            raise ValueError(f"observation_mode={observation_mode!r} is unknown; use one of {', '.join(LONGEST)}")
        if reward not in REWARDS:
            raise ValueError(f"reward={reward!r} is unknown; use one of {', '.join(REWARDS)}")
        if max_steps is not None:
            check_integer("max_steps", max_steps, 1, "leaves nothing to play")
        if base_url is not None and not (catalog is None and human_goals is None and nouns is None):
            raise ValueError(
                "catalog=, human_goals= and nouns= are the server's where base_url= is given; leave them out"
            )
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(LONGEST[observation_mode], min_length=0, charset=TEXT_CHARSET)
        self.action_space = AnyText(MAX_ACTION_LENGTH, min_length=0, charset=TEXT_CHARSET)
        self.settings = StoreSettings(DEFAULT_CATALOG if catalog is None else catalog, bool(human_goals), nouns)
        self.base_url = base_url
        self.split = split
        self.parity = parity
        self._connection = local_connection(self.settings) if base_url is None else server_connection(base_url)
        self._request = {
            "split": split,
            "mode": observation_mode,
            "reward": reward,
            "parity": parity,
            "show_actions": show_actions,
        }
        self._max_steps = max_steps
        self._session: ShopSession | None = None

    @property
    def instruction(self) -> str:
        """The rules of any episode; what to buy stands on the pages."""
        filters = "" if self.parity else " On results you can also narrow them: filter[price<50]."
        return (
            "Buy the product that the instruction on the page asks for, with the right options and within the price. "
            f"search[words] looks for products, click[label] presses what the page offers.{filters} "
            "You can buy once: click[buy now]."
        )

    @property
    def session(self) -> ShopSession:
        """The episode in the store: its goal's number, its task, its last answer. Exists after `reset`."""
        if self._session is None:
            raise ResetNeeded(f"{type(self).__name__} is in no episode; call reset first")
        return self._session

    def about(self) -> dict[str, Any]:
        """What the store says of itself; asks it.

        Returns:
            "catalog", "catalog_hash", "products", "goals", "splits", "reward_modes", and "nouns", the name of what
            finds nouns in titles for the score.

        Raises:
            ShopServerError: If the store does not answer.
        """
        return self._connection.patiently(lambda: self._connection.send("GET", "/api/store"))

    def count(self) -> int:
        """Number of goals of the split. Asks the store.

        Raises:
            ShopServerError: If the store does not answer.
            ValueError: If it has no such split.
        """
        splits = self.about()["splits"]
        if self.split not in splits:
            raise ValueError(f"split={self.split!r} is unknown; the store has {', '.join(splits)}")
        return int(splits[self.split])

    def close(self) -> None:
        """Lets the store forget the episode, and closes the connection."""
        if self._session is not None:
            self._session.close()
        self._connection.close()

    def _start(self, options: Mapping[str, Any]) -> str:
        # Drawn even when an option replaces it, so that the option cannot shift later start states.
        request = {**self._request, **self._goal_for(options, int(self.np_random.integers(2**31)))}
        if self._session is not None:
            self._session.close()
        self._session = ShopSession(self._connection, request)
        self._steps = 0
        return self._session.answer.observation

    def _goal_for(self, options: Mapping[str, Any], drawn: int) -> Mapping[str, int]:
        """Says in the API's words which goal to play; `drawn` is a random number below 2³¹."""
        asked = {
            name: checked_number(name, options[name]) for name in ("goal", "index") if options.get(name) is not None
        }
        if len(asked) > 1:
            raise ValueError(f"options {asked} name two goals; give one of them")
        return asked or {"seed": drawn}

    def _parse_action(self, text: str) -> str | None:
        action = text if self.parity else text.strip()
        if len(action) > MAX_ACTION_LENGTH or _UNSENDABLE.search(action):
            return None
        return action if self.parity or _ACTION.match(action) else None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        answer = self.session.step(action)
        self._steps += answer.valid
        self._truncated = not answer.done and self._steps == self._max_steps
        info = self._idle() | {
            "success": answer.success,
            "action_is_valid": answer.valid,
            "action_is_effective": answer.effective,
        }
        return answer.observation, answer.reward, answer.done, info

    def _idle(self) -> dict[str, Any]:
        """What is known of the episode stays known when nothing happens."""
        answer = self.session.answer
        return super()._idle() | {
            "task_score": answer.task_score,
            "purchased": answer.done,
            "reward_parts": answer.reward_parts,
            "available_actions": answer.available_actions,
            "goal_id": self.session.goal,
            "url": answer.url,
        }
