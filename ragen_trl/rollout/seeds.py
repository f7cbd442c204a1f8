"""Which seeds are used for what, so no start state of the evaluation is ever trained on.

Seeds below ``EVALUATION_END`` are for evaluation only. Training starts at ``StarPOConfig.train_seed_start``, extra
rollouts at ``REFILL``, warm-start play at ``WARM_START``. In a small environment, different seeds may still draw the
same start state. A row is a training group and names its environment twice: ``env`` for reward functions,
``env_index`` for the trainer, because an environment given as a function cannot be found by a text.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from ragen_trl.errors import UserError
from ragen_trl.rollout.curriculum import DRAWN, easiest, new_seeds, seeds_of_a_set
from ragen_trl.rollout.env_specs import EnvSpec

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

EVALUATION_END = 10_000
REFILL = 500_000_000
WARM_START = 1_000_000_000
SELECTION = 8_000  # from here to EVALUATION_END: evaluation during training
REFILL_ATTEMPTS = 64  # extra rollouts that one rollout may have

# TRL needs a prompt column. The trainer replaces it by the environment's first message once that has been played.
EMPTY_PROMPT = [{"role": "user", "content": ""}]


class SeedOverlapError(UserError, ValueError):
    """Training would use start states that are kept for evaluation, or the other way round."""


class StartStateError(UserError, ValueError):
    """The requested start states or weights do not fit the run."""


def training_rows(
    args: "StarPOConfig",
    envs: Sequence[EnvSpec] | None = None,
    hardness: Sequence[Callable[[int], float]] = (),
) -> Dataset:
    """One row per training group, columns ``prompt`` and ``seed``, in the order in which they are played.

    With ``max_steps`` the whole run is one pass, so a resumed run continues with exactly the row at which it stopped:
    with ``num_train_seeds`` start states, shuffled again each time all were used (`in_passes`), or a new one for every
    group. Without ``max_steps``, the rows are one epoch of ``num_train_seeds`` start states per environment.

    Args:
        args: The configuration. Its ``env_weights`` say how often each environment is played.
        envs: The run's environments. If given, the columns ``env`` and ``env_index`` name the row's environment. Within
            a rollout each comes as often as `interleave` says, in an order drawn from ``args.seed``. Each environment
            has the same start states as if it were alone in the run.
        hardness: With a curriculum, the difficulty of a seed in each environment.

    Raises:
        SeedOverlapError: If training would use seeds of the evaluation, of warm-start play, or of extra rollouts (with
            ``max_refills``).
        StartStateError: If there is not one positive weight per environment, if the run has no end, or if there are too
            few seeds for ``max_refills``.
    """
    count = 1 if envs is None else len(envs)
    weights = _checked_weights(args.env_weights, count)
    if args.max_steps > 0:
        num_rows = args.num_rollouts * args.groups_per_generation
    elif args.num_train_seeds is not None:
        num_rows = args.num_train_seeds * count
    else:
        raise StartStateError(
            f"max_steps is {args.max_steps} and num_train_epochs is {args.num_train_epochs}, but an epoch needs start "
            "states: set num_train_seeds (or pass a train_dataset), or max_steps"
        )
    if args.num_train_seeds is not None and args.num_train_seeds < args.groups_per_generation:
        raise StartStateError(
            f"num_train_seeds is {args.num_train_seeds}, but every rollout takes {args.groups_per_generation} "
            "different start states; raise num_train_seeds or leave it unset"
        )
    order = _shuffled_within(interleave(weights, num_rows), args)
    rollouts = [[row // args.groups_per_generation for row, env in enumerate(order) if env == i] for i in range(count)]
    seeds = [iter(_seeds_in_order(args, rollouts[i], i, hardness[i] if hardness else None)) for i in range(count)]
    rows = _rows([next(seeds[index]) for index in order], envs, order)
    if args.max_refills and args.num_train_seeds is None:
        last = (args.num_rollouts - 1, args.max_refills - 1)  # so that mistakes show now
        refill_rows(args, *last, rows, hardness=hardness)
    return rows


def interleave(weights: Sequence[float], count: int) -> list[int]:
    """``count`` indices into positive weights that take turns as evenly as possible (Tijdeman's chairmen, 1980).

    After any number n of turns, index i has come ``n · w_i / Σ w`` times, with an error below 1; 0 where these are
    whole numbers for all indices, as after each rollout of 4 groups with weights 3 and 1.

    Example:
        >>> interleave([3, 1], 8)
        [0, 0, 1, 0, 0, 0, 1, 0]
    """
    total = sum(map(Fraction, weights))
    shares = [Fraction(weight) / total for weight in weights]
    if len(shares) == 1:
        return [0] * count
    slack = Fraction(1, 2 * len(shares) - 2)
    taken = [0] * len(shares)
    turns = []
    for turn in range(1, count + 1):
        lags = [share * turn - past for share, past in zip(shares, taken, strict=True)]
        due = (index for index, lag in enumerate(lags) if lag >= slack)
        chosen = min(due, key=lambda index: (1 - slack - lags[index]) / shares[index])  # the next to lag by 1
        taken[chosen] += 1
        turns.append(chosen)
    return turns


def in_passes(
    played: Sequence[int], items: Sequence[int], rollouts: Sequence[int], random: np.random.Generator
) -> list[int]:
    """An item for each group: pass after pass over all items, each in a new order; none comes twice in a rollout.

    Where a pass begins within a rollout, the items that the rollout has had already wait until after it. ``played``
    comes before the first of these passes (whole ones, or none); ``rollouts`` are the groups', ascending.

    Example:
        >>> in_passes([0, 1, 2], range(3), [0, 0, 1, 1, 2, 2], np.random.default_rng(0))
        [0, 1, 2, 0, 2, 1]
    """
    order = list(played)
    while len(order) < len(rollouts):
        shuffled = random.permutation(items).tolist()
        now = rollouts[len(order)]
        had = set(order[bisect_left(rollouts, now) :])
        soon = [item for item in shuffled if item not in had][: bisect_right(rollouts, now) - len(order)]
        taken = set(soon)
        order += [*soon, *(item for item in shuffled if item not in taken)]
    return order[: len(rollouts)]


def refill_rows(
    args: "StarPOConfig",
    rollout_index: int,
    attempt: int,
    rows: Dataset,
    from_dataset: bool = False,
    hardness: Sequence[Callable[[int], float]] = (),
) -> list[dict[str, Any]]:
    """Start states for an extra rollout, used when too few groups of the last one are worth training on.

    If every group of the run has a new start state, so has every extra group, from a range of seeds of their own. If
    the start states are a fixed set, the extra ones are drawn from it, first those that this rollout has not played. In
    a curriculum both are as easy as the rollout's.

    Args:
        args: The configuration.
        rollout_index: Number of the rollout in the run, from 0.
        attempt: Number of the extra rollout for it, from 0.
        rows: All rows of the run, as `training_rows` gives them.
        from_dataset: Whether the rows are a user's data set; then no new seeds are made up.
        hardness: With a curriculum, the difficulty of a seed in each environment.

    Returns:
        One row per group, for all processes together, with the columns of ``rows``. Equal arguments give equal rows.

    Raises:
        SeedOverlapError: If training uses seeds of the extra rollouts, or these reach the seeds of warm-start play.
        StartStateError: If there are no seeds for so many attempts.
    """
    size = args.groups_per_generation
    first = rollout_index % (len(rows) // size) * size
    now = range(first, first + size)
    starts = _starts(rows)
    envs = [starts[row][0] for row in now]
    eased = bool(hardness) and rollout_index < args.curriculum_rollouts
    if from_dataset or args.num_train_seeds is not None:
        chosen = _others_first(starts, now, [args.seed, rollout_index])
        if eased:
            easy = _easy_starts(args, rollout_index, envs, hardness)
            chosen = [row for row in chosen if starts[row] in easy]
        return [rows[chosen[place % len(chosen)]] for place in range(attempt * size, (attempt + 1) * size)]
    begin = _first_of_refill(args, rollout_index, attempt, max(rows["seed"]))
    if not eased:
        return [{**rows[row], "seed": begin + place} for place, row in enumerate(now)]
    seeds = {}
    for env in set(envs):
        entropy = [args.seed, env, rollout_index, attempt + 1]
        seeds[env] = iter(new_seeds(args, [rollout_index] * envs.count(env), begin, hardness[env], entropy))
    return [{**rows[row], "seed": next(seeds[env])} for row, env in zip(now, envs, strict=True)]


def _first_of_refill(args: "StarPOConfig", rollout_index: int, attempt: int, last: int) -> int:
    """The first seed of an extra rollout with new start states; ``last`` is the last one of training."""
    if not 0 <= attempt < REFILL_ATTEMPTS:
        raise StartStateError(f"attempt is {attempt}; a rollout has at most {REFILL_ATTEMPTS} extra rollouts")
    width = args.groups_per_generation * (DRAWN if args.curriculum_rollouts else 1)
    begin = REFILL + (rollout_index * REFILL_ATTEMPTS + attempt) * width
    if last >= REFILL:
        raise SeedOverlapError(f"training seeds go up to {last}, but extra rollouts begin at {REFILL}; lower them")
    if begin + width > WARM_START:
        raise SeedOverlapError(f"rollout {rollout_index} has no seeds below {WARM_START} left for extra rollouts")
    return begin


def evaluation_rows(count: int, envs: Sequence[EnvSpec] | None = None) -> Dataset:
    """``count`` rows for TRL's evaluation, by which a checkpoint may be chosen; never the seeds of ``evaluate``.

    The environments take turns, and each starts with the same first seed. An environment with few start states may have
    the same ones for both. For WebShop see ``recipes.selection_kwargs``.

    Raises:
        SeedOverlapError: If there are not that many seeds.
        StartStateError: If there are fewer rows than environments.
    """
    if not 1 <= count <= EVALUATION_END - SELECTION:
        raise SeedOverlapError(f"num_eval_seeds is {count}; there are {EVALUATION_END - SELECTION} such seeds")
    num_envs = 1 if envs is None else len(envs)
    if count < num_envs:
        raise StartStateError(f"num_eval_seeds is {count} for {num_envs} environments; each needs at least one")
    return _rows([SELECTION + row // num_envs for row in range(count)], envs, [row % num_envs for row in range(count)])


def evaluation_seeds(count: int) -> range:
    """The first ``count`` evaluation seeds, always the same; `SeedOverlapError` if there are not that many."""
    if not 1 <= count <= SELECTION:
        raise SeedOverlapError(f"{count} evaluation episodes; there are {SELECTION} evaluation seeds, from 0 on")
    return range(count)


def _checked_weights(weights: Sequence[float] | None, count: int) -> Sequence[float]:
    if weights is None:
        return [1.0] * count
    if len(weights) != count:
        raise StartStateError(f"env_weights is {weights} for {count} environment(s); give one weight for each")
    if not all(0 < weight < float("inf") for weight in weights):
        raise StartStateError(f"env_weights is {weights}; weights must be positive, so leave out what has weight 0")
    return weights


def _checked_end(first: int, count: int) -> int:
    if first < EVALUATION_END:
        raise SeedOverlapError(
            f"train_seed_start is {first}, but seeds below {EVALUATION_END} are kept for evaluation; raise it"
        )
    if first + count > WARM_START:
        raise SeedOverlapError(f"training seeds {first} to {first + count} reach those of warm-start play; lower them")
    return first + count


def _seeds_in_order(
    args: "StarPOConfig", rollouts: Sequence[int], env_index: int, hardness: Callable[[int], float] | None
) -> list[int]:
    """The start states of one environment's groups (ascending ``rollouts``), in the order in which they are played."""
    count, first, entropy = len(rollouts), args.train_seed_start, [args.seed, env_index]
    if hardness is not None and args.num_train_seeds is None:
        seeds = new_seeds(args, rollouts, first, hardness, entropy)
        _checked_end(first, max(seeds, default=first) - first + 1)
        return seeds
    num_seeds = args.num_train_seeds or count
    end = _checked_end(first, num_seeds)
    if hardness is not None:
        eased = [rollout for rollout in rollouts if rollout < args.curriculum_rollouts]
        later = _seeds_in_order(args, rollouts[len(eased) :], env_index, None)
        return seeds_of_a_set(args, eased, range(first, end), hardness, entropy) + later
    if num_seeds >= count:
        return list(range(first, first + count))
    return in_passes([], range(first, end), rollouts, np.random.default_rng(entropy))


def _shuffled_within(order: list[int], args: "StarPOConfig") -> list[int]:
    """Shuffle within each rollout. Otherwise an even pattern could give each process only one environment."""
    random = np.random.default_rng(np.random.SeedSequence(args.seed, spawn_key=(1,)))
    size = args.groups_per_generation
    shuffled: list[int] = []
    for first in range(0, len(order), size):
        shuffled += random.permutation(order[first : first + size]).tolist()
    return shuffled


def _starts(rows: Dataset) -> list[tuple[int, int]]:
    envs = rows["env_index"] if "env_index" in rows.column_names else [0] * len(rows)
    return list(zip(envs, rows["seed"], strict=True))


def _easy_starts(
    args: "StarPOConfig", rollout: int, envs: Sequence[int], hardness: Sequence[Callable[[int], float]]
) -> set[tuple[int, int]]:
    """Start states of a fixed set (environment, seed) that a rollout with groups of these environments draws from."""
    assert args.num_train_seeds is not None
    seeds = range(args.train_seed_start, args.train_seed_start + args.num_train_seeds)
    return {
        (env, seed)
        for env, of_env in enumerate(hardness)
        for seed in easiest(args, rollout, envs.count(env), seeds, of_env)
    }


def _others_first(starts: Sequence[tuple[int, int]], now: range, entropy: list[int]) -> list[int]:
    """One row for every different start state, in shuffled order; the ones in ``now`` come last."""
    current = {starts[row] for row in now}
    shuffled = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(2,))).permutation(len(starts)).tolist()
    found: dict[tuple[int, int], int] = {}
    for row in [*(row for row in shuffled if starts[row] not in current), *now]:
        found.setdefault(starts[row], row)
    return list(found.values())


def _rows(seeds: Sequence[int], envs: Sequence[EnvSpec] | None, env_indices: Sequence[int]) -> Dataset:
    rows: dict[str, list[Any]] = {"prompt": [EMPTY_PROMPT] * len(seeds), "seed": list(seeds)}
    if envs is not None:
        rows |= {"env": [envs[index].label for index in env_indices], "env_index": list(env_indices)}
    return Dataset.from_dict(rows)
