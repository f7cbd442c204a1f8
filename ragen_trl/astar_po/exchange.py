"""Start states from which the reference always earns the same teach nothing: others of their environment replace them.

They are drawn evenly; in a curriculum the nearest in difficulty are taken. Everything here depends on its arguments
alone, so all processes, and a resumed run, find the same.
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
    """Start states with spread in the reference's returns in place of those without it, one for each group.

    ``groups`` belong to a rollout on all processes, ``values`` is V* by environment; ``entropy`` fixes the random
    choice. In a curriculum (``difficulty``) the nearest of those that the rollout has least often is taken; ties are
    drawn. ``played`` are start states that were played for the same update before.
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
