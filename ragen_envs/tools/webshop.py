"""WebShop by tool calls: `search`, `click`, `filter_results` and `buy` of the same store, with the same rewards.

It plays a `WebShop`, whose pages are the results.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.tool import Call, ToolError, read_action, write_call
from ragen_envs.webshop import WebShop
from ragen_envs.webshop.env import LONGEST
from ragen_envs.webshop.shoppers import search_words
from ragen_envs.wording import pick

# Tool and argument of each kind of action.
_CALLS = {
    "search": ("search", "query"),
    "click": ("click", "target"),
    "filter": ("filter_results", "condition"),
    "buy": ("buy", "product"),
}


class WebShopTools(ToolEnv):
    """Buy what is asked for in an online store, by calling tools.

    Goals, pages, rewards and information are those of `WebShop`; a seed has the same goal. Something that the page does
    not offer is an error, and the page stays.

    Args:
        catalog: As for `WebShop`, like all arguments.
        split: The goals to draw from.
        reward: "fixed", "webshop", "tiered" or "success".
        observation_mode: "text", "text_rich" or "short".
        base_url: A running server.
        max_steps: Valid actions after which an episode is truncated; None for no limit.
        max_result_length: Characters of a page that are shown.
        render_mode: "ansi", "rgb_array" or None.

    Raises:
        ValueError: If an argument is out of its range.
    """

    option_names: ClassVar[tuple[str, ...]] = WebShop.option_names
    idle_info: ClassVar[Mapping[str, Any]] = {**ToolEnv.idle_info, **WebShop.idle_info}

    def __init__(
        self,
        catalog: str | None = None,
        split: str = "all",
        reward: str = "fixed",
        observation_mode: str = "text",
        base_url: str | None = None,
        max_steps: int | None = 15,
        max_result_length: int = LONGEST["text"],
        render_mode: str | None = None,
    ) -> None:
        """Sets the store; the arguments are described in the class docstring."""
        super().__init__(render_mode=render_mode, max_result_length=max_result_length)
        self.shop = WebShop(catalog, split, reward, observation_mode, base_url, max_steps)

    @property
    def purpose(self) -> str:
        """What every task is about."""
        return (
            "Buy the product that is asked for, with the right options and within the price. Search, open products, "
            "choose options. You can buy once."
        )

    @property
    def tools(self) -> Sequence[Callable[..., Any]]:
        """What can be done in the store."""
        return (self.search, self.click, self.filter_results, self.buy)

    def search(self, query: str) -> str:
        """Search the store for products.

        Args:
            query: Words to look for.
        """
        words = search_words(query)
        if not words:
            raise ToolError("the query has no words")
        return self._do(f"search[{words}]")

    def click(self, target: str) -> str:
        """Press something that the page offers: a button, the identifier of a product, or an option.

        Args:
            target: Its label.
        """
        return self._do(f"click[{target}]")

    def filter_results(self, condition: str) -> str:
        """Narrow the results of a search.

        Args:
            condition: Such as price<50 or color=red; all shows all results again.
        """
        return self._do(f"filter[{condition}]")

    def buy(self, product: str) -> str:
        """Buy a product of the page, with the options chosen so far.

        Args:
            product: Its identifier, or its number on a page with numbers.
        """
        return self._do(f"buy[{product}]")

    @property
    def steps_left(self) -> int | None:
        """Valid actions that `max_steps` still allows."""
        return self.shop.steps_left

    def about(self) -> dict[str, Any]:
        """Facts about the store; see `WebShop.about`."""
        return self.shop.about()

    def close(self) -> None:
        """Ends the episode in the store."""
        self.shop.close()

    def _do(self, action: str) -> str:
        observation, reward, terminated, truncated, info = self.shop.step(action)
        if not info["action_is_valid"]:
            raise ToolError("the page does not offer that")
        self._done = (float(reward), bool(terminated), bool(truncated), info)
        return observation

    def best_action(self, actions_left: int) -> str:
        """The oracle's action in the store, as a call."""
        return as_call(self.shop.best_action(actions_left))

    def random_action(self, rng: np.random.Generator) -> str:
        """A random action in the store, as a call."""
        return as_call(self.shop.random_action(rng))

    def demonstrated_action(self, actions_left: int, rng: np.random.Generator, noise: float) -> str:
        """A shopper's action in the store, as a call."""
        return as_call(self.shop.demonstrated_action(actions_left, rng, noise))

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """What is thought in the store before the first call, up to the name of its tool."""
        made = read_action(actions[0])
        if not isinstance(made, Call):
            return pick(rng, "I can do no more, and I answer.", "I answer.")
        kinds = {name: (kind, argument) for kind, (name, argument) in _CALLS.items()}
        kind, argument = kinds.get(made.name, ("", ""))
        if argument not in made.arguments:  # no tool of the store, or a call without what it takes
            return f"{pick(rng, 'I try', 'Let me try')} {made.name}."
        action = f"{kind}[{made.arguments[argument]}]"
        thought = self.shop.explain([action], rng)
        return f"{thought.removesuffix('.').removesuffix(action).removesuffix(kind)}{made.name}."

    def difficulty(self) -> float:
        """That of the goal in the store."""
        return self.shop.difficulty()

    def _start(self, options: Mapping[str, Any]) -> str:
        observation, info = self.shop.reset(seed=self._reset_seed, options=dict(options))
        self._done = (0.0, False, False, info)
        return observation

    def _judge(self) -> tuple[float, bool, Mapping[str, Any]]:
        reward, terminated, self._truncated, known = self._done
        return reward, terminated, {"success": known["success"], "action_is_effective": known["action_is_effective"]}

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        text, reward, terminated, info = super()._act(action)
        return text, reward, terminated, {**info, **self._known()}

    def _idle(self) -> dict[str, Any]:
        return {**super()._idle(), **self._known()}

    def _known(self) -> dict[str, Any]:
        """What is known of the episode in the store, also after something invalid."""
        return {key: self._done[3][key] for key in WebShop.idle_info}


def as_call(action: str) -> str:
    """An action of `WebShop` as a call.

    >>> as_call("click[buy now]")
    '{"name": "click", "arguments": {"target": "buy now"}}'
    """
    kind, _, rest = action.partition("[")
    name, argument = _CALLS[kind]
    return write_call(name, {argument: rest[:-1]})
