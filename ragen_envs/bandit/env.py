"""Bandit: several arms that are known only by name, and one choice. The smallest test of learning with noisy rewards.

The numbers are those of RAGEN's code. Its paper has 0.15 for the safe arm, which ``low_reward=0.15`` sets.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragen_envs.arguments import check_action_names, check_probability
from ragen_envs.bandit.picture import draw_bandit
from ragen_envs.text_env import TextEnv

TRAIN_PAIRS = (
    *(("Teacher", "Trader"), ("Nurse", "StartupFounder"), ("Librarian", "Investor"), ("Accountant", "StockBroker")),
    *(("Engineer", "RealEstateAgent"), ("Pharmacist", "Musician"), ("Clerk", "Freelancer"), ("Technician", "Youtuber")),
    *(("Planner", "Artist"), ("Postman", "Pilot"), ("Banker", "VentureCapitalist"), ("Gardener", "Cryptominer")),
)
"""RAGEN-2's training pairs, (low, high)."""

TEST_PAIRS = (
    *(("Receptionist", "Explorer"), ("Archivist", "Filmmaker"), ("Bookkeeper", "Consultant")),
    *(("SocialWorker", "Photographer"), ("Mechanic", "GameDesigner"), ("Secretary", "Entrepreneur")),
    *(("Cashier", "DataScientist"), ("CivilServant", "StartupAccelerator")),
)
"""RAGEN-2's test pairs, (low, high). None of the names is in the training pairs."""

NAME_SETS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ragen2-train": TRAIN_PAIRS,
    "ragen2-test": TEST_PAIRS,
    "ragen1-train": (("Engineer", "Teacher"),),
    "ragen1-test": (("Trader", "Librarian"),),
    "ragen1-rev-train": (("Teacher", "Engineer"),),
    "ragen1-rev-test": (("Librarian", "Trader"),),
}
"""Values of ``names="..."`` of `Bandit`: for each bandit the low arms, then the high one."""

DEFAULT_NAMES = ("Phoenix", "Dragon")


class Bandit(TextEnv):
    """Choose one of several arms, once.

    ## Description
    Low arms always pay a little. The one high arm pays a lot, but seldom, and is better on average. Arms differ only in
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
    One of the bandits in `names`, uniformly, and an order of its arms, uniformly.

    ## Rewards
    Low arms: `low_reward`. High arm: `high_reward` with probability `high_probability`, else 0.

    ## Episode End
    Terminated after one valid choice.

    ## Information
    `success`: the high arm was chosen, whether it paid or not. `action_is_valid`: the action names an arm.
    `action_is_effective`: an arm was pulled. `arm`: its name, "" if none was pulled by this step.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.

    ## Source
    Arms, names and rewards are those of RAGEN and RAGEN-2 (MIT, arXiv 2504.20073 and 2604.06268). This code is under
    Apache-2.0.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"arm": ""}

    def __init__(
        self,
        low_name: str = DEFAULT_NAMES[0],
        high_name: str = DEFAULT_NAMES[1],
        low_reward: float = 0.1,
        high_reward: float = 1.0,
        high_probability: float = 0.25,
        names: str | Sequence[Sequence[str]] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Names the arms and sets what they pay.

        Args:
            low_name: Name of the arm with the constant reward.
            high_name: Name of the arm with the rare reward; must differ in more than case.
            low_reward: What a low arm always pays (RAGEN's code 0.1, its paper 0.15).
            high_reward: What the high arm pays when it pays.
            high_probability: How often it pays, in [0, 1].
            names: Instead of the two names: several bandits, of which each episode draws one. Either a key of
                `NAME_SETS`, or for each bandit its names: one or more low arms, then the high one.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If the names are given twice, a set of them is unknown or empty, a name cannot be an action,
                arms of one bandit have the same name, the probability is out of range, or the high arm is not better.
        """
        if names is not None and (low_name, high_name) != DEFAULT_NAMES:
            pair = f"low_name={low_name!r} and high_name={high_name!r}"
            raise ValueError(f"names={names!r} exclude {pair}; give one of the two (ragen/BanditRev-v0 gives the pair)")
        self._bandits = ((low_name, high_name),) if names is None else _read_names(names)
        for bandit in self._bandits:
            check_action_names(bandit)
        check_probability("high_probability", high_probability)
        if not high_reward * high_probability > low_reward:
            mean = f"high_reward={high_reward} x high_probability={high_probability}"
            raise ValueError(f"{mean} is not more than low_reward={low_reward}; make the high arm the better one")
        longest = max(sum(len(name) + 2 for name in bandit) for bandit in self._bandits)
        longest_name = max(len(name) for bandit in self._bandits for name in bandit)
        super().__init__(
            render_mode=render_mode, max_observation_length=64 + longest, max_action_length=max(64, longest_name)
        )
        self.low_reward = low_reward
        self.high_reward = high_reward
        self.high_probability = high_probability
        self._high_name = self._bandits[0][-1]
        # Sorted until the first reset, so that the order never gives the roles away.
        self._arms = tuple(sorted(self._bandits[0]))
        self._pulled = ""
        self._pay_out: float | None = None

    @property
    def instruction(self) -> str:
        """The task. The arms themselves are named in the observation."""
        count = "Two" if len(self._arms) == 2 else len(self._arms)
        return (
            f"{count} slot machines are named below. How each one pays is related to what its name symbolises. "
            "Choose one, once, to get the highest reward on average."
        )

    @property
    def picture_instruction(self) -> str:
        """The task. The arms are named on their machines, and in the list of actions in the same order."""
        return self.instruction.replace("named below", "in the picture")

    @property
    def actions(self) -> tuple[str, ...]:
        """The names, in this episode's order."""
        return self._arms

    @property
    def high_name(self) -> str:
        """The high arm of this episode; all others are low ones."""
        return self._high_name

    def expected_reward(self, arm: str) -> float:
        """Mean pay-out of an arm, given by its name from `actions`."""
        return self.high_reward * self.high_probability if arm == self._high_name else self.low_reward

    def _start(self, options: Mapping[str, Any]) -> str:
        # A single bandit needs no draw and two arms need one, so that seeds mean what they did before there were more.
        is_single = len(self._bandits) == 1
        bandit = self._bandits[0 if is_single else self.np_random.integers(len(self._bandits))]
        self._high_name = bandit[-1]
        arms = list(bandit[::-1])
        for last in range(len(arms) - 1, 0, -1):  # Fisher-Yates shuffle
            other = int(self.np_random.random() * (last + 1))
            arms[last], arms[other] = arms[other], arms[last]
        self._arms = tuple(arms)
        self._pulled, self._pay_out = "", None
        return f"Machines: {', '.join(self._arms)}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        success = action == self._high_name
        if success:
            reward = self.high_reward if self.outcome_random.random() < self.high_probability else 0.0
        else:
            reward = self.low_reward
        self._pulled, self._pay_out = action, float(reward)
        info = {"success": success, "action_is_effective": True, "arm": action}
        return f"{action}: {reward:g} points", float(reward), True, info

    def _picture(self) -> NDArray[np.uint8]:
        return draw_bandit(self._arms, self._pulled, self._pay_out)


def _read_names(names: str | Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    if isinstance(names, str):
        if names not in NAME_SETS:
            raise ValueError(f"names={names!r} is unknown; use one of {', '.join(NAME_SETS)}, or the names themselves")
        return NAME_SETS[names]
    for bandit in names:
        if isinstance(bandit, str) or len(bandit) < 2:
            raise ValueError(
                f"names contains {bandit!r}; a bandit is two or more names, as in [['Teacher', 'Trader']]"
            )
    if not names:
        raise ValueError("names=[] is empty; give two or more names, as in [['Teacher', 'Trader']]")
    return tuple(map(tuple, names))

