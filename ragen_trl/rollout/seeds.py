"""Which seeds are used for what, so no start state of the evaluation is ever trained on.

Seeds below ``EVALUATION_END`` are for evaluation only. Training starts at ``StarPOConfig.train_seed_start``, extra
rollouts at ``REFILL``, warm-start play at ``WARM_START``. In a small environment, different seeds may still draw the
same start state.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ragen_trl.errors import OptionError

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

EVALUATION_END = 10_000
REFILL = 500_000_000
WARM_START = 1_000_000_000
SELECTION = 8_000  # from here to EVALUATION_END: evaluation during training


def training_starts(args: "StarPOConfig", num_envs: int = 1) -> list[tuple[int, int]]:
    """The start states of a run, one per training group, in the order in which they are played: (environment, seed).

    With ``max_steps`` the whole run is one pass, so a resumed run continues with exactly the row at which it stopped:
    with ``num_train_seeds`` start states, pass after pass (`in_passes`), or a new one for every group. Without
    ``max_steps``, the rows are one epoch of ``num_train_seeds`` start states per environment. Within a rollout each
    environment comes as often as `interleave` says of ``env_weights``, in an order drawn from ``args.seed``.

    Each of ``num_envs`` environments has the same start states as if it were alone in the run.
    """
    size = args.groups_per_generation
    weights = [1.0] * num_envs if args.env_weights is None else args.env_weights
    if len(weights) != num_envs or not all(0 < weight < math.inf for weight in weights):
        raise OptionError(f"env_weights is {weights} for {num_envs} environment(s); give one positive weight for each")
    if args.num_train_seeds is None and args.max_steps < 1:
        raise OptionError(
            f"max_steps is {args.max_steps} and num_train_epochs is {args.num_train_epochs}, but an epoch needs start "
            "states: set num_train_seeds (or pass a train_dataset), or max_steps"
        )
    if args.num_train_seeds is not None and args.num_train_seeds < size:
        raise OptionError(
            f"num_train_seeds is {args.num_train_seeds}, but every rollout takes {size} different start states; raise "
            "num_train_seeds or leave it unset"
        )
    count = args.num_rollouts * size if args.max_steps > 0 else (args.num_train_seeds or 0) * num_envs
    even = interleave(weights, count)
    # Shuffled within each rollout: an even pattern could give each process only one environment.
    random = np.random.default_rng(np.random.SeedSequence(args.seed, spawn_key=(1,)))
    order = [int(env) for first in range(0, count, size) for env in random.permutation(even[first : first + size])]
    first, seeds = args.train_seed_start, []
    for env in range(num_envs):
        groups = order.count(env)
        different = _for_training(range(first, first + (args.num_train_seeds or groups)))
        seeds.append(iter(in_passes(different, groups, np.random.default_rng([args.seed, env]))))
    return [(env, next(seeds[env])) for env in order]


def _for_training(seeds: range) -> range:
    if seeds.start < EVALUATION_END or seeds.stop > REFILL:
        raise OptionError(
            f"training would use seeds {seeds.start} to {seeds.stop - 1}, but those below {EVALUATION_END} are for "
            f"evaluation and those from {REFILL} on for extra rollouts and warm-start play; change train_seed_start"
        )
    return seeds


def interleave(weights: Sequence[float], count: int) -> list[int]:
    """``count`` indices into positive weights that take turns: the next is the one furthest behind its share.

    Example:
        >>> interleave([3, 1], 8)
        [0, 0, 1, 0, 0, 0, 1, 0]
    """
    total = sum(map(Fraction, weights))
    shares = [Fraction(weight) / total for weight in weights]
    behind, turns = [Fraction(0)] * len(shares), list[int]()
    for _ in range(count):
        behind = [lag + share for lag, share in zip(behind, shares, strict=True)]
        turns.append(behind.index(max(behind)))
        behind[turns[-1]] -= 1
    return turns


def in_passes(items: Sequence[int], count: int, random: np.random.Generator) -> list[int]:
    """``count`` of the items: in their order, then pass after pass, each in a new order.

    Example:
        >>> in_passes(range(3), 6, np.random.default_rng(0))
        [0, 1, 2, 2, 0, 1]
    """
    order = list(items)
    while len(order) < count:
        order += random.permutation(items).tolist()
    return order[:count]


def evaluation_seeds(count: int) -> range:
    """The first ``count`` evaluation seeds, always the same."""
    if not 1 <= count <= SELECTION:
        raise OptionError(f"{count} evaluation episodes; there are {SELECTION} evaluation seeds, from 0 on")
    return range(count)


def selection_seeds(count: int) -> range:
    """``count`` seeds of TRL's evaluation, by which a checkpoint may be chosen; never those of ``evaluate``.

    An environment with few start states may have the same ones for both. For WebShop see ``training_run.quick_rows``.
    `OptionError` if there are not that many.
    """
    if not 1 <= count <= EVALUATION_END - SELECTION:
        raise OptionError(f"num_eval_seeds is {count}; there are {EVALUATION_END - SELECTION} such seeds")
    return range(SELECTION, SELECTION + count)
