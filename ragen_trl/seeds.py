"""Which start states are for what, so that no evaluated one is ever trained on.

Seeds below ``EVALUATION_END`` are for evaluation only, training starts at ``StarPOConfig.train_seed_start``, warm-start
play at ``WARM_START``. Different seeds may still draw the same start state by chance in a small environment;
``benchmarks/train.py`` reports success on those that were never trained on apart.
"""

from typing import Any

import numpy as np
from datasets import Dataset

from ragen_trl.config import StarPOConfig
from ragen_trl.errors import UserError

EVALUATION_END = 10_000
WARM_START = 1_000_000_000
SELECTION = 8_000  # from here to EVALUATION_END: evaluation during training

# TRL wants a prompt column; the trainer replaces it by the environment's first message once it has been played.
_PROMPT = [{"role": "user", "content": ""}]


class SeedOverlapError(UserError, ValueError):
    """Start states meant for evaluation would be trained on, or the other way round."""


def training_rows(args: StarPOConfig) -> Dataset:
    """One row per training group, columns ``prompt`` and ``seed``, in the order in which they are played.

    With ``max_steps`` the whole run is one pass, so that a resumed run continues with the very row at which it was
    stopped: ``num_train_seeds`` start states, shuffled anew each time all were used, or a new one for every group.

    Raises:
        SeedOverlapError: If training would begin among the evaluation seeds or reach those of warm-start play.
    """
    first = args.train_seed_start
    if args.max_steps <= 0:
        assert args.num_train_seeds is not None  # StarPOConfig refuses the other case
        return _rows(range(first, _checked_end(first, args.num_train_seeds)))
    num_groups = args.num_rollouts * args.groups_per_generation
    num_seeds = args.num_train_seeds or num_groups
    end = _checked_end(first, num_seeds)
    if num_seeds >= num_groups:
        return _rows(range(first, first + num_groups))
    random = np.random.default_rng(args.seed)
    passes = [random.permutation(np.arange(first, end)) for _ in range(-(-num_groups // num_seeds))]
    return _rows(np.concatenate(passes)[:num_groups].tolist())


def evaluation_rows(count: int) -> Dataset:
    """Rows for TRL's evaluation during training, by which a checkpoint may be chosen: not the seeds of ``evaluate``.

    Raises:
        SeedOverlapError: If there are not that many.
    """
    if not 1 <= count <= EVALUATION_END - SELECTION:
        raise SeedOverlapError(f"num_eval_seeds is {count}; there are {EVALUATION_END - SELECTION} such seeds")
    return _rows(range(SELECTION, SELECTION + count))


def evaluation_seeds(count: int) -> range:
    """The first ``count`` evaluation seeds: always the same ones.

    Raises:
        SeedOverlapError: If there are not that many.
    """
    if not 1 <= count <= SELECTION:
        raise SeedOverlapError(f"{count} evaluation episodes; there are {SELECTION} evaluation seeds, from 0 on")
    return range(count)


def _checked_end(first: int, count: int) -> int:
    if first < EVALUATION_END:
        raise SeedOverlapError(
            f"train_seed_start is {first}, but seeds below {EVALUATION_END} are kept for evaluation; raise it"
        )
    if first + count > WARM_START:
        raise SeedOverlapError(f"training seeds {first} to {first + count} reach those of warm-start play; lower them")
    return first + count


def _rows(seeds: range | list[int]) -> Dataset:
    rows: dict[str, list[Any]] = {"prompt": [_PROMPT] * len(seeds), "seed": list(seeds)}
    return Dataset.from_dict(rows)
