"""Start states from which the reference always earns the same teach nothing: others of their environment replace them.

They are drawn with equal probability; in a curriculum, which would be lost by that, the nearest ones in difficulty are
taken. Everything here depends on its arguments alone, so that all processes, and a run that is resumed, find the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ragen_trl.astar_po.reference_values import ReferenceValues

StartState = tuple[int, int]
"""Index of an environment in the run, and a seed."""


def exchanged(
    groups: Sequence[StartState],
    values: Mapping[int, ReferenceValues],
    entropy: Sequence[int],
    difficulty: Callable[[int, int], float] | None = None,
    played: Iterable[StartState] = (),
) -> list[StartState]:
    """Replace the start states of groups that have nothing to learn from.

    Args:
        groups: The start state of each group of a rollout, on all processes together.
        values: V* by environment.
        entropy: Of the random choice, together with the group and its seed.
        difficulty: In a curriculum, how hard a start state is. Then the nearest of those is taken that the rollout has
            least often, which is not yet wherever there are enough; ties are drawn.
        played: Start states of the groups that were played for the same update before.

    Returns:
        Start states from which the reference's returns differ, one for each group.
    """
    fixed = [values[task].of(seed).zero_variance for task, seed in groups]
    taken = Counter([*played, *(start for start, is_fixed in zip(groups, fixed, strict=True) if not is_fixed)])
    found = list(groups)
    for group, (task, seed) in enumerate(groups):
        if not fixed[group]:
            continue
        random = np.random.default_rng([*entropy, group, seed])
        trainable = values[task].trainable
        if difficulty is None:
            found[group] = (task, int(random.choice(trainable)))
            continue
        wanted, ranked = difficulty(task, seed), {}
        for other in random.permutation(trainable).tolist():
            ranked[other] = (taken[task, other], _distance(difficulty(task, other), wanted))
        found[group] = (task, min(ranked, key=ranked.__getitem__))
        taken[found[group]] += 1
    return found


def _distance(one: float, other: float) -> float:
    """Both may be infinite, where no oracle finds a way."""
    return 0.0 if one == other else abs(one - other)
