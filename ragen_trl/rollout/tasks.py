"""What a run plays: its environments, and the start states of every rollout."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from datasets import Dataset

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.env_pool import EnvMaker, EnvSpec, EnvSpecError, env_specs, unique_names
from ragen_trl.rollout.seeds import StartStateError, evaluation_rows, refill_rows, training_rows
from ragen_trl.rollout.start_states import dataset_rows

EnvLike = str | EnvMaker | EnvSpec


class Tasks:
    """The environments of a run and its start states, one row a training group.

    Args:
        env: One environment or several; not next to a data set.
        dataset: Start states of one's own, see `start_states`.
        args: Numbers of rollouts and start states.

    Attributes:
        specs: The environments, in an order that all processes share.
        rows: What is trained on: columns ``prompt`` and ``seed``, and ``env_index`` where there may be several.

    Raises:
        EnvSpecError: If neither or both are given, or an environment is described wrongly.
        StartStateError: If start states are described wrongly.
        SeedOverlapError: If training would use start states that are kept for evaluation.
    """

    def __init__(self, env: EnvLike | Sequence[EnvLike] | None, dataset: Dataset | None, args: StarPOConfig) -> None:
        if (env is None) == (dataset is None):
            given = "both" if env is not None else "neither"
            raise EnvSpecError(f"{given} of env and train_dataset given; a data set names its environments itself")
        self._args, self._from_dataset = args, dataset is not None
        if dataset is not None:
            self.rows, self.specs = dataset_rows(args, dataset)
        else:
            assert env is not None
            self.specs = env_specs(env, args)
            self.rows = training_rows(args, self._several)

    @property
    def _several(self) -> list[EnvSpec] | None:
        return self.specs if self._from_dataset or len(self.specs) > 1 else None

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows matters: environments come in proportion, or a user chose it."""
        return self._several is not None

    @property
    def names(self) -> list[str]:
        """Names of the environments, for metrics."""
        return unique_names(self.specs)

    def index(self, row: Mapping[str, Any]) -> int:
        """Place of a row's environment in ``specs``."""
        return int(row.get("env_index", 0))

    def starts(self) -> dict[int, list[int]]:
        """Seeds of all different start states, by the index of their environment, in the order of the rows."""
        found: dict[int, dict[int, None]] = {index: {} for index in range(len(self.specs))}
        indices = self.rows["env_index"] if "env_index" in self.rows.column_names else [0] * len(self.rows)
        for index, seed in zip(indices, self.rows["seed"], strict=True):
            found[index][seed] = None
        return {index: list(seeds) for index, seeds in found.items() if seeds}

    def row(self, task: int, seed: int) -> dict[str, Any]:
        """The row of a start state, with all columns of a data set."""
        return dict(self.rows[self._first_rows[task, seed]])

    @cached_property
    def _first_rows(self) -> dict[tuple[int, int], int]:
        indices = self.rows["env_index"] if "env_index" in self.rows.column_names else [0] * len(self.rows)
        first: dict[tuple[int, int], int] = {}
        for place, start in enumerate(zip(indices, self.rows["seed"], strict=True)):
            first.setdefault(start, place)
        return first

    def check_rows_agree(self) -> None:
        """Refuse a data set in which one start state has rows that differ in other columns: it has one V*.

        Raises:
            StartStateError: If there are such rows.
        """
        if not self._from_dataset:
            return
        for place, row in enumerate(self.rows):
            first = self.row(self.index(row), row["seed"])
            if _as_text(first) != _as_text(row):
                raise StartStateError(
                    f"row {place} of the training rows has environment and seed {row['seed']} of another row, but "
                    "other columns differ, and a start state has one V*; give it one row"
                )

    def evaluation_rows(self) -> Dataset:
        """Rows of TRL's evaluation during training."""
        return evaluation_rows(self._args.num_eval_seeds, self._several)

    def refill_rows(self, rollout: int, attempt: int) -> list[dict[str, Any]]:
        """Start states of an extra rollout, one row a group, for all processes together.

        Args:
            rollout: Which rollout of the run, from 0 on.
            attempt: Which extra rollout of it, from 0 on.
        """
        return refill_rows(self._args, rollout, attempt, self.rows, self._from_dataset)


def _as_text(row: Mapping[str, Any]) -> str:
    """For comparing rows: a NaN, as an empty cell becomes, is not equal to itself."""
    return json.dumps(row, sort_keys=True, default=repr)
