"""Bandit: two arms that are known only by name, and one choice. The smallest test of learning with noisy rewards."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ragen_envs.arguments import check_choice
from ragen_envs.text_env import ONE_SHOT, TextEnv
from ragen_envs.wording import listed, phrases, pick

HIGH_REWARD, HIGH_PROBABILITY = 1.0, 0.25

_NAMES = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))
NAME_SETS: Mapping[str, Sequence[Sequence[str]]] = _NAMES["sets"]
"""Values of ``names="..."`` of `Bandit`: pairs, (low, high)."""

_PAIRS = [pair for key in ("phoenix-dragon", "ragen2-train", "ragen2-test") for pair in NAME_SETS[key]]
# Names of a regular life, and a bird that always comes back; names of an uncertain life, and a beast.
STEADY = {steady for steady, _ in _PAIRS} | set(_NAMES["steady"])
DARING = {daring for _, daring in _PAIRS} | set(_NAMES["daring"])

_THOUGHTS = phrases(__file__)


class Bandit(TextEnv):
    """Choose one of two arms, once.

    ## Description
    The low arm always pays a little. The high arm pays a lot, but seldom, and is better on average. They differ only in
    their names, which symbolise safety or risk. `ragen/Bandit-v0` pairs a safe Phoenix with a risky Dragon,
    `ragen/BanditRev-v0` swaps the roles.

    RAGEN-2 trains on twelve pairs of professions and tests on eight others: ``names="ragen2-train"`` and
    ``names="ragen2-test"``. Its first version trains on one pair and tests on another: ``"ragen1-train"`` has a risky
    Teacher, ``"ragen1-test"`` a risky Librarian, and ``"ragen1-rev-train"`` and ``"ragen1-rev-test"`` swap the roles.
    "Rev" is meant here as in RAGEN's scripts; its paper calls the risky Librarian BanditRev.

    ## Action Space
    Text: the name of an arm, in any case.

    ## Observation Space
    Text: the names, in a new random order for every episode; then ``"{name}: {reward} points"``.

    ## Starting State
    One of the pairs in `names`, uniformly, and an order of its arms, uniformly.

    ## Rewards
    Low arm: `low_reward`. High arm: 1 with probability 1/4, else 0.

    ## Episode End
    Terminated after one valid choice.

    ## Information
    `success`: the high arm was chosen, whether it paid or not. `action_is_valid`: the action names an arm.
    `action_is_effective`: an arm was pulled. `arm`: its name, "" if none was pulled by this step.

    ## Version History
    v0: first version.

    ## Source
    Arms, names and rewards are those of RAGEN and RAGEN-2 (MIT, arXiv 2504.20073 and 2604.06268).
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"arm": ""}
    horizon = 1
    turn_limits = ONE_SHOT
    plain_arguments = ("names",)

    high_name: str
    """The high arm of this episode."""

    def __init__(
        self,
        names: str | Sequence[Sequence[str]] = "phoenix-dragon",
        low_reward: float = 0.1,
        render_mode: str | None = None,
    ) -> None:
        """Names the arms and sets what they pay.

        Args:
            names: Pairs (low arm, high arm), of which each episode draws one, or a key of `NAME_SETS`. The names of a
                pair must differ in more than case.
            low_reward: What the low arm always pays (RAGEN's code 0.1, its paper 0.15).
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If a set of names is unknown, or the high arm is not better than the low one.
        """
        if isinstance(names, str):
            check_choice("names", names, NAME_SETS)
            names = NAME_SETS[names]
        self._pairs = [(low, high) for low, high in names]
        if not low_reward < HIGH_REWARD * HIGH_PROBABILITY:
            raise ValueError(f"low_reward={low_reward} is not less than 0.25, which the high arm pays on average")
        if not self._pairs or any(low.casefold() == high.casefold() for low, high in self._pairs):
            raise ValueError(f"names={names!r} must be pairs of different names, low first: [('Phoenix', 'Dragon')]")
        longest = max(len(low) + len(high) for low, high in self._pairs)
        super().__init__(
            render_mode=render_mode, max_observation_length=68 + longest, max_action_length=max(64, longest)
        )
        self._low_reward = low_reward
        self.high_name = self._pairs[0][1]
        # Sorted until the first reset, so that the order never gives the roles away.
        self._arms = tuple(sorted(self._pairs[0]))

    @property
    def instruction(self) -> str:
        """The task. The arms themselves are named in the observation."""
        return (
            "Two slot machines are named below. How each one pays is related to what its name symbolises. "
            "Choose one, once, to get the highest reward on average."
        )

    @property
    def actions(self) -> tuple[str, ...]:
        """The names, in this episode's order."""
        return self._arms

    def best_action(self, actions_left: int) -> str:
        """The high arm."""
        return self.high_name

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """What the names stand for, as most people would say, and nothing of what they pay."""
        chosen = actions[0]
        sounds = {name: "steady" if name in STEADY else "daring" for name in self.actions if name in STEADY | DARING}
        told = list(sounds) if len(sounds) < 2 or rng.random() < 0.7 or chosen not in sounds else [chosen]
        if not sounds or chosen not in sounds and rng.random() < 0.5:
            said = pick(rng, *_THOUGHTS["unknown"]).format(names=listed(self.actions))
            return f"{said} {pick(rng, *_THOUGHTS['choices']['no_reason'])} {chosen}."
        said = listed([f"{_in_prose(name)} {pick(rng, *_THOUGHTS['sounds'][sounds[name]])}" for name in told])
        # A choice may say why only where the names differ in it.
        is_told = chosen in sounds and len(set(sounds.values())) == 2 and rng.random() < 0.6
        choice = pick(rng, *_THOUGHTS["choices"][sounds[chosen] if is_told else "no_reason"])
        return f"{said[0].upper()}{said[1:]}. {choice} {chosen}."

    def _start(self, options: Mapping[str, Any]) -> str:
        # A single pair needs no draw, so that seeds mean what they did before there were more.
        index = self.np_random.integers(len(self._pairs)) if len(self._pairs) > 1 else 0
        low, self.high_name = self._pairs[index]
        self._arms = (low, self.high_name) if self.np_random.random() < 0.5 else (self.high_name, low)
        return f"Machines: {', '.join(self._arms)}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        success = action == self.high_name
        reward = self._low_reward
        if success:
            reward = HIGH_REWARD if self.outcome_random.random() < HIGH_PROBABILITY else 0.0
        info = {"success": success, "action_is_effective": True, "arm": action}
        return f"{action}: {reward:g} points", float(reward), True, info


def _in_prose(name: str) -> str:
    """A name in a sentence: RealEstateAgent is a real estate agent."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
