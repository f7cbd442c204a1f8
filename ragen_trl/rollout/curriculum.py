"""A curriculum: the first rollouts begin with easy start states, later ones with all.

In rollout r of the first C, a group draws eight new start states and plays one of the easiest ⌈8 (r + 1) / C⌉, each
with equal probability: only the order of difficulties has to be known, and nothing jumps at the end. From a fixed set
(``num_train_seeds``), a rollout takes different ones out of the easiest share (r + 1) / C of the set. Refills and
A*-PO's exchanges follow the rollout that they complete. `ragen_envs.difficulty` gives the difficulties.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragen_envs import NoOracleError, difficulty
from ragen_trl.errors import OptionError
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.environments import make_turns

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

DRAWN = 8
"""Start states of which a group plays one."""


def difficulty_of(spec: EnvSpec, args: "StarPOConfig") -> Callable[[int], float]:
    """The difficulty of an environment's start state by its seed, remembered; `OptionError` if it does not say."""
    turns = functools.cache(lambda: make_turns(spec.env, args, spec.kwargs))

    @functools.cache
    def of(seed: int) -> float:
        turns().reset(seed=seed)
        try:
            return difficulty(turns())
        except NoOracleError as error:
            raise OptionError(
                f"curriculum_rollouts is {args.curriculum_rollouts}, but {spec.label} does not say how hard a start "
                f"state is ({error}); or leave curriculum_rollouts at 0"
            ) from error

    return of


def new_seeds(
    args: "StarPOConfig", rollouts: Sequence[int], first: int, hardness: Callable[[int], float], entropy: list[int]
) -> list[int]:
    """A new start state for each group, by ascending ``rollouts``; ascending seeds from ``first`` on.

    Those that were drawn and not chosen are never played.
    """
    random, seeds, free = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(3,))), [], first
    for rollout in rollouts:
        drawn = DRAWN if rollout < args.curriculum_rollouts else 1
        ranked = sorted(range(free, free + drawn), key=lambda seed: (hardness(seed) if drawn > 1 else 0, seed))
        easiest = math.ceil(drawn * min(1, (rollout + 1) / args.curriculum_rollouts))
        seeds.append(ranked[int(random.integers(easiest))])
        free += drawn
    return seeds


def seeds_of_a_set(
    args: "StarPOConfig", rollouts: Sequence[int], seeds: range, hardness: Callable[[int], float], entropy: list[int]
) -> list[int]:
    """Start states of a fixed set, by ascending ``rollouts`` of the groups; different within a rollout."""
    random = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(3,)))
    chosen: list[int] = []
    for rollout in dict.fromkeys(rollouts):
        groups = rollouts.count(rollout)
        chosen += random.permutation(easiest(args, rollout, groups, seeds, hardness))[:groups].tolist()
    return chosen


def easiest(
    args: "StarPOConfig", rollout: int, groups: int, seeds: range, hardness: Callable[[int], float]
) -> list[int]:
    """The start states of a fixed set that a rollout of so many groups draws from, easy ones first."""
    ranked = sorted(seeds, key=lambda seed: (hardness(seed), seed))
    return ranked[: max(groups, math.ceil(len(ranked) * (rollout + 1) / args.curriculum_rollouts))]
