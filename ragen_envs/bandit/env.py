"""Bandit: several arms that are known only by name, and one choice. The smallest test of learning with noisy rewards.

The numbers are those of RAGEN's code. Its paper has 0.15 for the safe arm, which ``low_reward=0.15`` sets.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.arguments import check_choice, check_probability
from ragen_envs.text_env import ONE_SHOT, TextEnv
from ragen_envs.wording import listed, pick

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

NAME_SETS: Mapping[str, Sequence[Sequence[str]]] = {
    "phoenix-dragon": (("Phoenix", "Dragon"),),
    "dragon-phoenix": (("Dragon", "Phoenix"),),
    "ragen2-train": TRAIN_PAIRS,
    "ragen2-test": TEST_PAIRS,
    "ragen1-train": (("Engineer", "Teacher"),),
    "ragen1-test": (("Trader", "Librarian"),),
    "ragen1-rev-train": (("Teacher", "Engineer"),),
    "ragen1-rev-test": (("Librarian", "Trader"),),
}
"""Values of ``names="..."`` of `Bandit`: for each bandit the low arms, then the high one."""

_PAIRS = (("Phoenix", "Dragon"), *TRAIN_PAIRS, *TEST_PAIRS)
STEADY = {steady for steady, _ in _PAIRS} | set(
    "Baker Plumber Tailor Judge Farmer Dentist Butcher BusDriver Florist Barber Weaver Waiter Beekeeper Optician "
    "Shepherd Carpenter Tutor Janitor BookSeller Porter Cleaner Translator Bricklayer Butler Cobbler Vet Monk "
    "Historian Registrar Curator Notary Typist Caretaker Usher Bellhop Innkeeper".split()
)
"""Names of a regular life, and a bird that always comes back."""

DARING = {daring for _, daring in _PAIRS} | set(
    "Sailor Poet Actor Hunter Diver HorseRider Magician Dancer Juggler Detective Climber Drummer Racer Smuggler "
    "Stuntman Singer TightropeWalker Inventor Boxer Astronaut Knight Wizard Pirate Gambler Spy Skydiver Surfer Clown "
    "Acrobat Trapper Jockey Prospector".split()
)
"""Names of an uncertain life, and a beast."""

_SAYS = {
    True: (
        *("sounds steady", "stands for safety", "suggests a calm and regular life"),
        *("symbolises security", "is steady"),
    ),
    False: ("sounds daring", "stands for risk", "suggests a bold venture", "symbolises chance and ambition", "is bold"),
}
_CHOICES = {  # by whether the name is steady; None: without a reason
    True: ("I prefer what is steady:", "I take the safe name,", "I play it safe and choose", "Steady it is:"),
    False: ("I prefer what is bold:", "I take the risky name,", "I take the risk and choose", "Boldness it is:"),
    None: ("I choose", "I pull", "My choice is", "I pick"),
}
_NAMES_ONLY = ("The machines are {names}, and I know only their names.", "I can choose between {names}.")


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
    horizon = 1
    turn_limits = ONE_SHOT

    high_name: str
    """The high arm of this episode; all others are low ones."""

    def __init__(
        self,
        names: str | Sequence[Sequence[str]] = "phoenix-dragon",
        low_reward: float = 0.1,
        high_reward: float = 1.0,
        high_probability: float = 0.25,
        render_mode: str | None = None,
    ) -> None:
        """Names the arms and sets what they pay.

        Args:
            names: The bandits, of which each episode draws one: a key of `NAME_SETS`, or for each bandit its names, one
                or more low arms, then the high one. They must differ in more than case.
            low_reward: What a low arm always pays (RAGEN's code 0.1, its paper 0.15).
            high_reward: What the high arm pays when it pays.
            high_probability: How often it pays, in [0, 1].
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If a set of names is unknown, the probability is out of range, or the high arm is not better.
        """
        if isinstance(names, str):
            check_choice("names", names, NAME_SETS)
            names = NAME_SETS[names]
        self._bandits = tuple(map(tuple, names))
        check_probability("high_probability", high_probability)
        if not high_reward * high_probability > low_reward:
            mean = f"high_reward={high_reward} x high_probability={high_probability}"
            raise ValueError(f"{mean} is not more than low_reward={low_reward}; make the high arm the better one")
        longest = max(sum(len(name) + 2 for name in bandit) for bandit in self._bandits)
        longest_name = max(len(name) for bandit in self._bandits for name in bandit)
        super().__init__(
            render_mode=render_mode, max_observation_length=64 + longest, max_action_length=max(64, longest_name)
        )
        self._low_reward, self._high_reward, self._high_probability = low_reward, high_reward, high_probability
        self.high_name = self._bandits[0][-1]
        # Sorted until the first reset, so that the order never gives the roles away.
        self._arms = tuple(sorted(self._bandits[0]))

    @property
    def instruction(self) -> str:
        """The task. The arms themselves are named in the observation."""
        count = "Two" if len(self._arms) == 2 else len(self._arms)
        return (
            f"{count} slot machines are named below. How each one pays is related to what its name symbolises. "
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
        """What the names stand for: they sound steady or daring, as most people would say.

        Nothing looks at what an arm pays, so the thought is the same whichever arm is the better one.
        """
        chosen = actions[0]
        sounds = {name: name in STEADY for name in self.actions if name in STEADY | DARING}
        told = list(sounds) if len(sounds) < 2 or rng.random() < 0.7 or chosen not in sounds else [chosen]
        if not sounds or chosen not in sounds and rng.random() < 0.5:
            said = pick(rng, *_NAMES_ONLY).format(names=listed(self.actions))
            return f"{said} {pick(rng, *_CHOICES[None])} {chosen}."
        said = listed([f"{_in_prose(name)} {pick(rng, *_SAYS[sounds[name]])}" for name in told])
        kind = sounds.get(chosen)
        # A choice may say why only where the names differ in it.
        is_told = kind is not None and (len(set(sounds.values())) == 2) and rng.random() < 0.6
        choice = pick(rng, *_CHOICES[kind if is_told else None])
        return f"{said[0].upper()}{said[1:]}. {choice} {chosen}."

    def _start(self, options: Mapping[str, Any]) -> str:
        # A single bandit needs no draw and two arms need one, so that seeds mean what they did before there were more.
        is_single = len(self._bandits) == 1
        bandit = self._bandits[0 if is_single else self.np_random.integers(len(self._bandits))]
        self.high_name = bandit[-1]
        arms = list(bandit[::-1])
        for last in range(len(arms) - 1, 0, -1):  # Fisher-Yates shuffle
            other = int(self.np_random.random() * (last + 1))
            arms[last], arms[other] = arms[other], arms[last]
        self._arms = tuple(arms)
        return f"Machines: {', '.join(self._arms)}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        success = action == self.high_name
        if success:
            reward = self._high_reward if self.outcome_random.random() < self._high_probability else 0.0
        else:
            reward = self._low_reward
        info = {"success": success, "action_is_effective": True, "arm": action}
        return f"{action}: {reward:g} points", float(reward), True, info


def _in_prose(name: str) -> str:
    """A name in a sentence.

    Example:
        >>> _in_prose("RealEstateAgent"), _in_prose("Phoenix")
        ('a real estate agent', 'a phoenix')
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
