"""What a run plays: its environments, and the start states of every rollout."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from datasets import Dataset, IterableDataset

from ragen_trl.rollout.curriculum import difficulty_of
from ragen_trl.rollout.env_specs import EnvMaker, EnvSpec, EnvSpecError, env_specs, unique_names
from ragen_trl.rollout.seeds import (
    SeedOverlapError,
    StartStateError,
    evaluation_rows,
    refill_rows,
    training_rows,
)
from ragen_trl.rollout.start_states import dataset_for_evaluation, dataset_rows

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

EnvLike = str | EnvMaker | EnvSpec
# Columns that say which start state a row is; reward functions get all others for what they hold.
_OF_START_STATES = ("env", "seed", "kwargs", "prompt", "env_index")


class Tasks:
    """The environments of a run and its start states, one row per training group, from ``env`` or a user's ``dataset``.

    Attributes:
        specs: The environments, in an order that all processes share. Evaluation may add others after them.
        rows: What is trained on: columns ``prompt`` and ``seed``, and ``env_index`` if there may be several.

    Raises:
        EnvSpecError: If neither or both are given, or the description of an environment is wrong.
        StartStateError: If the description of the start states is wrong.
        SeedOverlapError: If training would use start states that are kept for evaluation.
    """

    def __init__(self, env: EnvLike | Sequence[EnvLike] | None, dataset: Dataset | None, args: "StarPOConfig") -> None:
        if env is not None and dataset is not None:
            raise EnvSpecError(
                "both of env and train_dataset given, but rows of a data set say what they play; leave env out, and "
                "write its id into a column 'env', beside 'seed'"
            )
        if env is None and dataset is None:
            raise EnvSpecError("neither of env and train_dataset given; give one of them")
        self._args, self._from_dataset = args, dataset is not None
        self._hardness: list[Callable[[int], float]] = []
        if dataset is not None:
            self.rows, self.specs = dataset_rows(args, dataset)
        else:
            assert env is not None
            self.specs = env_specs(env, args)
            if args.curriculum_rollouts:
                self._hardness = [difficulty_of(spec, args) for spec in self.specs]
            self.rows = training_rows(args, self._several, self._hardness)
        self._evaluated = self.specs

    @property
    def _several(self) -> list[EnvSpec] | None:
        return self.specs if self._from_dataset or len(self.specs) > 1 else None

    def spec(self, task: int) -> EnvSpec:
        """The environment of a row with this index, in training or in evaluation."""
        return self._evaluated[task]

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows matters: several environments come in proportion, or a user chose it."""
        return self._several is not None

    @property
    def names(self) -> list[str]:
        """Names of the environments, all different, for metrics."""
        return unique_names(self.specs)

    @property
    def names_in_evaluation(self) -> list[str]:
        """The same for evaluation, which may play further environments."""
        return unique_names(self._evaluated)

    def index(self, row: Mapping[str, Any]) -> int:
        """Place of a row's environment in ``specs``."""
        return int(row.get("env_index", 0))

    def starts(self) -> dict[int, list[int]]:
        """Seeds of all different start states, by the index of their environment, in the order of the rows."""
        seeds = {index: [seed for env, seed in self._first_rows if env == index] for index in range(len(self.specs))}
        return {index: found for index, found in seeds.items() if found}

    def row(self, task: int, seed: int) -> dict[str, Any]:
        """The row of a start state, with all columns of the data set."""
        return dict(self.rows[self._first_rows[task, seed]])

    def columns(self, starts: Iterable[tuple[int, int]]) -> dict[str, list[Any]]:
        """What TRL gives reward functions of start states (environment, seed): the data set's columns."""
        rows = [self.row(*start) for start in starts]
        return {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}

    def digest_of_columns(self, task: int) -> str:
        """SHA-256 of the user's columns of an environment's start states; empty without such columns."""
        own = [name for name in self.rows.column_names if name not in _OF_START_STATES]
        if not own:
            return ""
        seeds = sorted(self.starts()[task])
        rows = [(seed, self.row(task, seed)) for seed in seeds]
        texts = [_as_text({"seed": seed, **{name: row[name] for name in own}}) for seed, row in rows]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()

    @cached_property
    def _first_rows(self) -> dict[tuple[int, int], int]:
        indices = self.rows["env_index"] if "env_index" in self.rows.column_names else [0] * len(self.rows)
        first: dict[tuple[int, int], int] = {}
        for place, start in enumerate(zip(indices, self.rows["seed"], strict=True)):
            first.setdefault(start, place)
        return first

    def check_rows_agree(self) -> None:
        """Raise `StartStateError` unless the rows of each start state agree, because a start state has one V*."""
        if not self._from_dataset:
            return
        for place, row in enumerate(self.rows):
            first = self.row(self.index(row), row["seed"])
            if _as_text(first) != _as_text(row):
                raise StartStateError(
                    f"row {place} of the training rows has the environment and the seed {row['seed']} of another row, "
                    "but other columns differ, and a start state has one V*; keep one row"
                )

    def evaluation_rows(self) -> Dataset:
        """Rows of TRL's evaluation during training, if a user gives none; without the user's columns."""
        rows = evaluation_rows(self._args.num_eval_seeds, self._several)
        if self._several is None:
            return rows
        return rows.add_column("kwargs", [self.spec(env).key[1] for env in rows["env_index"]])

    def rows_for_evaluation(self, dataset: Dataset | IterableDataset, held_out: bool = False) -> Dataset:
        """A user's own rows for TRL's evaluation; ``held_out`` says that a checkpoint may be chosen by them.

        Raises:
            SeedOverlapError: If they are held out, but the run trains on one of them.
            StartStateError: If they do not describe start states.
        """
        rows, self._evaluated = dataset_for_evaluation(dataset, self.specs, self._evaluated)
        if not held_out:
            return rows
        for place, start in enumerate(zip(rows["env_index"], rows["seed"], strict=True)):
            if start in self._first_rows:
                raise SeedOverlapError(
                    f"row {place} of eval_dataset has seed {start[1]}, on which the run trains in the same "
                    "environment; take it out of one of the two"
                )
        return rows

    def columns_missing(self, rows: Dataset) -> list[str]:
        """The user's columns of the training rows that these rows of an evaluation lack."""
        known = {*rows.column_names, "env", "seed", "kwargs"}
        return [name for name in self.rows.column_names if name not in known]

    def refill_rows(self, rollout: int, attempt: int) -> list[dict[str, Any]]:
        """Start states of an extra rollout for all processes, one row per group; both numbers count from 0."""
        return refill_rows(self._args, rollout, attempt, self.rows, self._from_dataset, self._hardness)

    def difficulty(self, task: int, seed: int) -> float:
        """How hard a start state is (`ragen_envs.difficulty`); only in a run with a curriculum."""
        return self._hardness[task](seed)


def _as_text(row: Mapping[str, Any]) -> str:
    """A row as text, to compare rows: a NaN (an empty cell becomes one) is not equal to itself."""
    return json.dumps(row, sort_keys=True, default=repr)
