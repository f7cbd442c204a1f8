"""The words of a claim: what a paper found, where it is asked here, and what would refute it.

A claim names the smallest effect that counts. Without one, "no difference" could never be told from "too few runs".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from findings.measures import SUCCESS, Measure

COUNTS = 0.05
"""The smallest difference of success that counts where a claim says nothing else."""
COLLAPSED = 0.25
"""The share of its best success that a run has to lose, to count as collapsed."""
GAMES = ("bandit", "frozenlake", "frozenlake_slippery", "sokoban")
Kind = Literal["more", "no less", "alike"]


@dataclass(frozen=True)
class Pair:
    """Two variants that a claim compares, in some games.

    Attributes:
        form: Of the algorithm: GRPO, PPO, or what else tells this pair from the claim's others.
        question: Its results hold the runs.
        ours: The variant that the claim is for.
        theirs: What it is compared with: a variant, ``"warm_start"`` or ``"random"``; "" if the claim is about a single
            variant, whose measure is compared with 0.
        games: The tasks of the question that are looked at.
        other_task: The compared variant's task, where the two differ in the task; ``{}`` stands for the game.
        collapses: A variant that has to collapse before the pair says anything: nothing prevents a collapse, delays it
            or fails to, where there is none. Of a claim that nothing is lost, before it can agree.
        effect: The smallest difference that counts in these games, where the paper's is smaller than in others.
    """

    form: str
    question: str
    ours: str
    theirs: str = ""
    games: Sequence[str] = GAMES
    other_task: str = "{}"
    collapses: str = ""
    effect: float | None = None


@dataclass(frozen=True)
class Claim:
    """A finding of a paper.

    Attributes:
        name: Short, for links and tests.
        paper: Who found it.
        source: Its figure or table.
        says: The finding in a sentence, with the paper's numbers.
        pairs: Where it is asked; none if no question asks it yet.
        kind: ``"more"``: the measure of ours is higher; ``"no less"``: it is not lower; ``"alike"``: neither.
        effect: The smallest difference that counts, no larger than the paper's where it gives one; of a ratio, a factor
            above 1.
        measure: What is compared.
        pooled: The verdict is on the mean over games of the relative difference, for each form, not on each game.
        headline: One of those that matter most.
    """

    name: str
    paper: str
    source: str
    says: str
    pairs: Sequence[Pair]
    kind: Kind = "more"
    effect: float = COUNTS
    measure: Measure = field(default=SUCCESS)
    pooled: bool = False
    headline: bool = False

    @property
    def least(self) -> float:
        """The smallest effect that counts, on the scale on which it is compared."""
        return math.log(self.effect) if self.measure.ratio else self.effect

    @property
    def refuted(self) -> str:
        """What would refute it, in words."""
        what, size = self.measure.says, self.size
        if self.pooled:
            return f"{what}, relative, mean over games: the 95 % interval lies below {size}"
        single = all(not pair.theirs for pair in self.pairs) and bool(self.pairs)
        compared = what if single else f"{what}, {'ratio' if self.measure.ratio else 'difference'}"
        if self.kind == "more":
            return f"{compared}: the 95 % interval lies below {size}"
        none = "1" if self.measure.ratio else "0"
        less = f"1/{self.effect:g}" if self.measure.ratio else f"-{self.effect:g}"
        if self.kind == "no less":
            return f"{compared}: the 95 % interval lies below {none} and reaches {less}"
        return f"{compared}: the 95 % interval excludes {none} and reaches {less} or {size}"

    @property
    def size(self) -> str:
        """The smallest effect that counts, in words."""
        return f"× {self.effect:g}" if self.measure.ratio else f"{self.effect:g}"
