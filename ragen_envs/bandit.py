"""Bandit: two arms known only by name, one choice. The smallest test of learning under noisy pay-outs.

Numbers are those of RAGEN's code; its paper says 0.15 for the safe arm, which ``low_reward=0.15`` sets. Left out
for now: more than two arms, and lists of name pairs for tests of generalisation.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from ragen_envs.text_env import TEXT_CHARSET, TextEnv


class Bandit(TextEnv):
    """Choose one of two arms, once.

    ## Description
    The low arm always pays a little, the high arm seldom pays a lot and is better on average. Only the names
    tell them apart: they symbolise safety or risk. `ragen/Bandit-v0` pairs a safe Phoenix with a risky Dragon,
    `ragen/BanditRev-v0` swaps the roles.

    ## Action Space
    Text: the name of an arm, in any case.

    ## Observation Space
    Text: the two names in an order drawn anew for every episode, then ``"{name}: {reward} points"``.

    ## Starting State
    The order of the names, each of the two with probability 1/2.

    ## Rewards
    Low arm: `low_reward`. High arm: `high_reward` with probability `high_probability`, else 0.

    ## Episode End
    Terminated after one valid choice.

    ## Information
    `success`: the high arm was chosen, whatever it paid. `action_is_valid`: the action names an arm.
    `action_is_effective`: an arm was pulled. `arm`: its name, "" if none was pulled by this step.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"arm": ""}

    def __init__(
        self,
        low_name: str = "Phoenix",
        high_name: str = "Dragon",
        low_reward: float = 0.1,
        high_reward: float = 1.0,
        high_probability: float = 0.25,
        render_mode: str | None = None,
    ) -> None:
        """Names the arms and sets what they pay.

        Args:
            low_name: Name of the arm with the constant reward.
            high_name: Name of the arm with the rare reward; must differ in more than case.
            low_reward: What the low arm always pays (RAGEN's code 0.1, its paper 0.15).
            high_reward: What the high arm pays when it pays.
            high_probability: How often it pays, in [0, 1].
            render_mode: "ansi" or None.

        Raises:
            ValueError: If a name cannot be an action or both are the same, or the probability is none.
        """
        for name in (low_name, high_name):
            if not name or name != name.strip() or not set(name) <= set(TEXT_CHARSET):
                raise ValueError(f"arm name {name!r} must be ASCII text without blanks at its ends")
        if low_name.casefold() == high_name.casefold():
            raise ValueError(f"arms {low_name!r} and {high_name!r} cannot be told apart; use two names")
        if not 0.0 <= high_probability <= 1.0:
            raise ValueError(f"high_probability={high_probability} is not a probability; use a number from 0 to 1")
        super().__init__(render_mode=render_mode, max_observation_length=64 + len(low_name) + len(high_name))
        self.low_name = low_name
        self.high_name = high_name
        self.low_reward = low_reward
        self.high_reward = high_reward
        self.high_probability = high_probability
        # Sorted until the first reset, so that no order ever tells the roles.
        self._arms = tuple(sorted((low_name, high_name)))

    @property
    def instruction(self) -> str:
        """The task. The arms themselves are named in the observation."""
        return (
            "Two slot machines are named below. How each one pays is related to what its name symbolises. "
            "Choose one, once, to get the highest reward on average."
        )

    @property
    def actions(self) -> tuple[str, ...]:
        """The two names, in this episode's order."""
        return self._arms

    def expected_reward(self, arm: str) -> float:
        """Mean pay-out of an arm, given by its name from `actions`."""
        return self.low_reward if arm == self.low_name else self.high_reward * self.high_probability

    def _start(self, options: Mapping[str, Any]) -> str:
        arms = (self.low_name, self.high_name)
        self._arms = arms if self.np_random.random() < 0.5 else arms[::-1]
        return f"Machines: {self._arms[0]}, {self._arms[1]}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if action == self.low_name:
            reward = self.low_reward
        else:
            reward = self.high_reward if self.outcome_random.random() < self.high_probability else 0.0
        info = {"success": action == self.high_name, "action_is_effective": True, "arm": action}
        return f"{action}: {reward:g} points", float(reward), True, info
