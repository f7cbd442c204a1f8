"""A user's own data set of start states, for curricula and for tasks chosen by hand.

Its columns are ``env`` (Gymnasium id), ``seed`` and, optionally, ``kwargs`` (of ``gymnasium.make``). Reward functions
get all other columns. For TRL's evaluation, ``env`` may also be the name of a function of the run, and may be missing
if the run has one environment.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from datasets import Dataset, IterableDataset

from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.seeds import (
    EMPTY_PROMPT,
    EVALUATION_END,
    WARM_START,
    SeedOverlapError,
    StartStateError,
    in_passes,
)

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

_WRITTEN_BY_TRAINER = ("env_index", "trajectory", "episode_return")
# Options for which a data set has its own columns.
_SAID_BY_ROWS = ("env_kwargs", "env_weights", "num_train_seeds", "train_seed_start", "curriculum_rollouts")


def dataset_rows(args: "StarPOConfig", dataset: Dataset) -> tuple[Dataset, list[EnvSpec]]:
    """Training rows from a data set, one per training group, in the order in which they are played.

    With ``max_steps`` the whole run is one pass: first the rows in their own order, then again and again, each time in
    an order drawn from ``args.seed`` (`in_passes`). Without ``max_steps``, the rows are one epoch.

    ``kwargs`` may be a mapping or JSON text. Arrow gives every mapping of a column the keys of all of them, with None
    where a row had no such key, so a None in a mapping counts as absent; JSON text can say ``null``.

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
        indices.append(_index(_spec(env, given, place), specs, found, place))
    return _as_rows(dataset, specs, indices).select(_order(args, num_rows)), specs


def dataset_for_evaluation(
    dataset: Dataset | IterableDataset, specs: Sequence[EnvSpec], others: Sequence[EnvSpec] = ()
) -> tuple[Dataset, list[EnvSpec]]:
    """Rows for TRL's evaluation from a data set, in its order; a streamed one is read to its end.

    Columns are as in training. Seeds may be any that warm-start play does not use. A row whose ``env`` is of the run
    and that has no ``kwargs`` column is played with the run's arguments; another registered id is played, too.

    Args:
        dataset: At least one row. ``env`` may be missing if the run has one environment.
        specs: The run's environments.
        others: Those environments and, after them, the ones that earlier evaluations added.

    Returns:
        The rows, with ``prompt`` and ``env_index``; and the environments to which that points, ``others`` first.

    Raises:
        SeedOverlapError: If a seed belongs to warm-start play.
        StartStateError: If columns, types, ids or the number of rows are wrong.
    """
    if isinstance(dataset, IterableDataset):
        dataset = Dataset.from_list(list(dataset))
    if not isinstance(dataset, Dataset):
        raise StartStateError(f"eval_dataset is {dataset!r}; pass a datasets.Dataset (Dataset.from_list(rows))")
    columns = dataset.column_names
    if not len(dataset) or "seed" not in columns:
        raise StartStateError(
            f"eval_dataset has {len(dataset)} rows with columns {columns}; give at least one row, with a column 'seed' "
            "(which start state) and 'env' (an id) where it is not the run's only environment"
        )
    _check_columns(dataset, "eval_dataset", _WRITTEN_BY_TRAINER[1:])
    if "env" not in columns and len(specs) > 1:
        names = ", ".join(spec.label for spec in specs)
        raise StartStateError(f"eval_dataset has no column 'env', but the run plays {names}; say which for each row")
    known = list(others or specs)
    found = {spec.key: place for place, spec in enumerate(known)}
    indices = []
    for number, row in enumerate(dataset):
        place = f"row {number} of eval_dataset"
        _check_seed(row["seed"], place, evaluation=True)
        spec = _of_the_run(row, specs, place) or _spec(row["env"], row.get("kwargs"), place)
        indices.append(_index(spec, known, found, place))
    return _as_rows(dataset, known, indices), known


def _of_the_run(row: Mapping[str, Any], specs: Sequence[EnvSpec], place: str) -> EnvSpec | None:
    """The environment of the run that a row of an evaluation means; ``None`` if it describes one itself."""
    if "env" not in row:
        return specs[0]
    named = [spec for spec in specs if spec.label == row["env"]]
    if row.get("env_index") is not None:  # a row of this run, given back
        index = row["env_index"]
        named = [specs[index]] if 0 <= index < len(specs) and specs[index] in named else []
    elif "kwargs" in row and named and isinstance(named[0].env, str):
        return None
    if len(named) > 1:
        raise StartStateError(
            f"{place} has env {row['env']!r}, which the run plays with {len(named)} kinds of arguments; add the column "
            "'kwargs'"
        )
    return named[0] if named else None


def _index(spec: EnvSpec, specs: list[EnvSpec], found: dict[Any, int], place: str) -> int:
    if spec.key not in found:
        _check_id(spec, place)
        found[spec.key] = len(specs)
        specs.append(spec)
    return found[spec.key]


def _as_rows(dataset: Dataset, specs: Sequence[EnvSpec], indices: Sequence[int]) -> Dataset:
    ours = ("prompt", "kwargs", "env_index")
    rows = dataset.remove_columns([name for name in ours if name in dataset.column_names])
    rows = rows.add_column("prompt", [EMPTY_PROMPT] * len(rows))
    rows = rows.add_column("kwargs", [specs[index].key[1] for index in indices])
    return rows.add_column("env_index", list(indices))


def _check(args: "StarPOConfig", dataset: Dataset) -> None:
    if not isinstance(dataset, Dataset):
        raise StartStateError(f"train_dataset is {dataset!r}; pass a datasets.Dataset, not a streamed one")
    for name in ("env", "seed"):
        if name not in dataset.column_names:
            raise StartStateError(
                f"train_dataset has columns {dataset.column_names} but no {name!r}; rows are start states, which need "
                "env (an id) and seed, and no prompts, which the environment writes"
            )
    _check_columns(dataset, "train_dataset", _WRITTEN_BY_TRAINER)
    for name in _SAID_BY_ROWS:
        if getattr(args, name) != getattr(type(args), name):
            raise StartStateError(
                f"{name} is {getattr(args, name)}, but the rows of train_dataset decide that; leave it unset"
            )
    if len(dataset) < args.groups_per_generation:
        raise StartStateError(
            f"train_dataset has {len(dataset)} rows, but every rollout takes {args.groups_per_generation}: "
            f"{args.generation_batch_size} trajectories (per_device_train_batch_size "
            f"{args.per_device_train_batch_size} · steps_per_generation {args.steps_per_generation}, which is "
            f"gradient_accumulation_steps if unset · processes) in groups of num_generations {args.num_generations}; "
            "add rows, or lower one of the first"
        )


def _check_columns(dataset: Dataset, which: str, written: Iterable[str]) -> None:
    for name in written:
        if name in dataset.column_names:
            raise StartStateError(f"{which} has a column {name!r}, which the trainer writes itself; rename it")
    if "env_kwargs" in dataset.column_names:
        raise StartStateError(f"{which} has a column 'env_kwargs'; put arguments of environments into 'kwargs'")


def _check_seed(seed: object, place: str, evaluation: bool = False) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise StartStateError(f"{place} has seed {seed!r}; a seed is an integer")
    if evaluation:
        if not 0 <= seed < WARM_START:
            raise SeedOverlapError(
                f"{place} has seed {seed}, but seeds from {WARM_START} on are those of warm-start play; use one from 0 "
                "on and below"
            )
    elif not EVALUATION_END <= seed < WARM_START:
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
    count = args.num_rollouts * args.groups_per_generation if args.max_steps > 0 else num_rows
    rollouts = [group // args.groups_per_generation for group in range(count)]
    return in_passes(range(num_rows), range(num_rows), rollouts, np.random.default_rng(args.seed))
