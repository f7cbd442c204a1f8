"""A user's own data set of start states, for curricula and for tasks chosen by hand.

Its columns are ``env`` (Gymnasium id), ``seed`` and, optionally, ``kwargs`` (arguments of ``gymnasium.make``). Reward
functions get all other columns. Left out: streamed data sets, because extra rollouts draw from all rows, and functions
instead of ids, because no column can hold one.
"""

import json
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from datasets import Dataset

from ragen_trl.rollout.env_pool import EnvSpec
from ragen_trl.rollout.seeds import EMPTY_PROMPT, EVALUATION_END, WARM_START, SeedOverlapError, StartStateError

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

_WRITTEN_BY_TRAINER = ("env_index", "trajectory", "episode_return")
# Options for which a data set has its own columns.
_SAID_BY_ROWS = ("env_kwargs", "env_weights", "num_train_seeds", "train_seed_start")


def dataset_rows(args: "StarPOConfig", dataset: Dataset) -> tuple[Dataset, list[EnvSpec]]:
    """Training rows from a data set, one per training group, in the order in which they are played.

    With ``max_steps`` the whole run is one pass, as in `training_rows`: first the rows in their own order. If the run
    needs more, they follow again and again, each time in an order drawn from ``args.seed``. Without ``max_steps``, the
    rows are one epoch.

    ``kwargs`` may be a mapping or JSON text. Arrow gives every mapping of a column the keys of all of them, with None
    where a row had no such key. So a None in a mapping counts as absent; JSON text can say ``null``.

    Args:
        args: The configuration. Options that a data set replaces must be left at their defaults.
        dataset: At least ``groups_per_generation`` rows.

    Returns:
        The rows, with ``prompt``, ``env_index`` and canonical JSON in ``kwargs``; and the environments, to which
        ``env_index`` points, in the order in which they first appear.

    Raises:
        SeedOverlapError: If a seed is kept for evaluation or for warm-start play.
        StartStateError: If columns, types, ids or the number of rows are wrong, or an option contradicts the rows.
    """
    _check(args, dataset)
    num_rows = len(dataset)
    kwargs = dataset["kwargs"] if "kwargs" in dataset.column_names else [None] * num_rows
    found: dict[Any, int] = {}
    specs: list[EnvSpec] = []
    indices: list[int] = []
    for row, (env, seed, given) in enumerate(zip(dataset["env"], dataset["seed"], kwargs, strict=True)):
        place = f"row {row} of train_dataset"
        _check_seed(seed, place)
        spec = _spec(env, given, place)
        if spec.key not in found:
            _check_id(spec, place)
            found[spec.key] = len(specs)
            specs.append(spec)
        indices.append(found[spec.key])
    rows = dataset.remove_columns([name for name in ("prompt", "kwargs") if name in dataset.column_names])
    rows = rows.add_column("prompt", [EMPTY_PROMPT] * num_rows)
    rows = rows.add_column("kwargs", [specs[index].key[1] for index in indices])
    rows = rows.add_column("env_index", indices)
    return rows.select(_order(args, num_rows)), specs


def _check(args: "StarPOConfig", dataset: Dataset) -> None:
    if not isinstance(dataset, Dataset):
        raise StartStateError(f"train_dataset is {dataset!r}; pass a datasets.Dataset, not a streamed one")
    for name in ("env", "seed"):
        if name not in dataset.column_names:
            raise StartStateError(
                f"train_dataset has columns {dataset.column_names} but no {name!r}; rows need env (an id) and seed"
            )
    for name in _WRITTEN_BY_TRAINER:
        if name in dataset.column_names:
            raise StartStateError(f"train_dataset has a column {name!r}, which the trainer writes itself; rename it")
    if "env_kwargs" in dataset.column_names:
        raise StartStateError("train_dataset has a column 'env_kwargs'; put arguments of environments into 'kwargs'")
    for name in _SAID_BY_ROWS:
        if getattr(args, name) != getattr(type(args), name):
            raise StartStateError(
                f"{name} is {getattr(args, name)}, but the rows of train_dataset decide that; leave it unset"
            )
    if len(dataset) < args.groups_per_generation:
        raise StartStateError(
            f"train_dataset has {len(dataset)} rows, but every rollout takes {args.groups_per_generation} "
            "(generation_batch_size / num_generations); add rows or make rollouts smaller"
        )


def _check_seed(seed: object, place: str) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise StartStateError(f"{place} has seed {seed!r}; a seed is an integer")
    if not EVALUATION_END <= seed < WARM_START:
        raise SeedOverlapError(
            f"{place} has seed {seed}, but seeds below {EVALUATION_END} are kept for evaluation and those from "
            f"{WARM_START} on for warm-start play; use one in between"
        )


def _spec(env: object, given: object, place: str) -> EnvSpec:
    if not isinstance(env, str):
        raise StartStateError(f"{place} has env {env!r}; write the Gymnasium id of a registered environment")
    if isinstance(given, str) and given:
        try:
            kwargs = json.loads(given)
        except ValueError as error:
            raise StartStateError(f"{place} has kwargs {given!r}, which is not JSON ({error})") from error
    else:
        kwargs = _without_none(given or {})
    if not isinstance(kwargs, dict):
        raise StartStateError(f"{place} has kwargs {given!r}; write a mapping, for example {{'size': 5}}")
    return EnvSpec(env, kwargs)


def _without_none(value: Any) -> Any:
    """A mapping as it was before Arrow gave it the keys of all other rows."""
    if not isinstance(value, dict):
        return value
    return {key: _without_none(inner) for key, inner in value.items() if inner is not None}


def _check_id(spec: EnvSpec, place: str) -> None:
    try:
        gymnasium.spec(spec.label)
    except (gymnasium.error.Error, ImportError) as error:
        raise StartStateError(f"{place} has env {spec.label!r}, which is not registered: {error}") from error


def _order(args: "StarPOConfig", num_rows: int) -> list[int]:
    """The row that each group of the run plays."""
    count = args.num_rollouts * args.groups_per_generation if args.max_steps > 0 else num_rows
    random = np.random.default_rng(args.seed)
    order = list(range(num_rows))
    while len(order) < count:
        order += random.permutation(num_rows).tolist()
    return order[:count]
