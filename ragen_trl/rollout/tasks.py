"""What a run plays: its environments, and the start states of every rollout, made up here or from a user's data set."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from datasets import Dataset

from ragen_trl.errors import OptionError
from ragen_trl.rollout import seeds
from ragen_trl.rollout.environments import EnvLike, EnvSpec, env_specs, unique_names

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

# TRL needs a prompt column. The trainer replaces it by the environment's first message once that has been played.
_EMPTY_PROMPT = [{"role": "user", "content": ""}]
# Columns that say which start state a row is. `env_index` is the trainer's: a function cannot be found by a text.
_OF_START_STATES = ("env", "seed", "kwargs", "env_index")
REFILL_ATTEMPTS = 64  # extra rollouts that one rollout may have


class Tasks:
    """The environments of a run and its start states, one row per training group, from ``env`` or a user's ``dataset``.

    A data set has the columns ``env`` (Gymnasium id), ``seed`` and, optionally, ``kwargs`` of ``gymnasium.make`` as
    JSON; with an ``env`` beside it, it needs neither of the first two. All others reach the environment's
    ``reset(options=…)`` and the reward functions. Its rows are played in their order, then again and again, each time
    in an order drawn from ``args.seed``.

    Attributes:
        specs: The environments, in an order that all processes share.
        names: Their names, all different.
        evaluated: The same, and after them those that only evaluation plays; ``env_index`` of a row is a place here.
        rows: What is trained on, one row per group in the order of play: the columns above, ``prompt``, ``env_index``.
    """

    def __init__(self, env: EnvLike | Sequence[EnvLike] | None, dataset: Dataset | None, args: "StarPOConfig") -> None:
        if env is None and dataset is None:
            raise OptionError("neither env nor train_dataset is given; say what is played by one of the two, or both")
        self._args, self._from_dataset, size = args, dataset is not None, args.groups_per_generation
        if dataset is not None:
            given = [] if env is None else env_specs(env, args)
            rows, self.specs = _described(dataset, given, "train_dataset", seeds.EVALUATION_END, len(given))
            if len(rows) < size:
                raise OptionError(
                    f"train_dataset has {len(rows)} rows; give at least the {size} of a rollout (generation_batch_size "
                    "/ num_generations)"
                )
            count = args.num_rollouts * size if args.max_steps > 0 else len(rows)
            self.rows = rows.select(seeds.in_passes(range(len(rows)), count, np.random.default_rng(args.seed)))
        else:
            assert env is not None
            self.specs = env_specs(env, args)
            self.rows = self._made_up(seeds.training_starts(args, len(self.specs)))
        self.names, self.evaluated = unique_names(self.specs), self.specs

    @property
    def metric_names(self) -> list[str]:
        """A name for metrics of each of ``evaluated``; rows of a data set are known by the id alone."""
        of_run = [] if self._from_dataset else self.names
        by_row, labels = self.evaluated[len(of_run) :], dict[str, set[str]]()
        for spec in by_row:
            labels.setdefault(spec.name, set()).add(spec.label)
        return [*of_run, *(spec.name if len(labels[spec.name]) == 1 else spec.label for spec in by_row)]

    def starts(self) -> dict[int, list[int]]:
        """Seeds of all different start states, by the index of their environment, in the order of the rows."""
        found: dict[int, list[int]] = {}
        for env, seed in self._first_rows:
            found.setdefault(env, []).append(seed)
        return {env: found[env] for env in sorted(found)}

    def row(self, task: int, seed: int) -> dict[str, Any]:
        """The row of a start state, with all columns of the data set."""
        return dict(self.rows[self._first_rows[task, seed]])

    def digest_of_columns(self, task: int) -> str:
        """SHA-256 of the user's columns of an environment's start states; empty without such columns.

        `OptionError` if a start state has other columns in another row: its V* could only be of one of them.
        """
        if not (own := list(reset_options(self.rows[0]))):
            return ""
        texts: dict[int, str] = {}
        for (env, seed), row in zip(self._starts, self.rows.select_columns(own), strict=True):
            text = json.dumps({"seed": seed, **row}, sort_keys=True, default=repr)
            if env == task and texts.setdefault(seed, text) != text:
                raise OptionError(
                    f"train_dataset has seed {seed} of {self.names[task]} in two rows with different {own}, which "
                    "environments and reward functions read; A*-PO has one value for each start state: use another seed"
                )
        return hashlib.sha256("\n".join(texts[seed] for seed in sorted(texts)).encode()).hexdigest()

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        return list(zip(self.rows["env_index"], self.rows["seed"], strict=True))

    @cached_property
    def _first_rows(self) -> dict[tuple[int, int], int]:
        return {start: place for place, start in reversed([*enumerate(self._starts)])}

    def evaluation_rows(self, dataset: Dataset | None = None, held_out: bool = True) -> Dataset:
        """Rows of TRL's evaluation: a user's own, in their order, in environments of the run or in others, or made up.

        ``env`` may be missing if the run has one environment; it may be the name of a function of the run. Without a
        column ``kwargs``, an environment of the run has the run's arguments.
        ``held_out`` rows, by which a checkpoint may be chosen, must not be trained on. In made-up ones the environments
        take turns, and each starts with the same first seed.
        """
        if dataset is None:
            count = len(self.specs)
            places = range(len(seeds.selection_seeds(self._args.num_eval_seeds)))
            return self._made_up([(place % count, seeds.SELECTION + place // count) for place in places])
        rows, self.evaluated = _described(dataset, self.evaluated, "eval_dataset", 0, len(self.specs))
        for place, start in enumerate(zip(rows["env_index"], rows["seed"], strict=True) if held_out else ()):
            if start in self._first_rows:
                raise OptionError(
                    f"row {place} of eval_dataset has seed {start[1]}, on which the run trains in the same "
                    "environment; take it out of one of the two"
                )
        return rows

    def refill_rows(self, rollout: int, attempt: int) -> list[dict[str, Any]]:
        """Start states of an extra rollout, used when too few groups of the last one are worth training on.

        If every group of the run has a new start state, so has every extra group, from a range of seeds of their own.
        If the start states are a fixed set, the extra ones are drawn from it, first those that this rollout has not
        played. ``rollout`` counts from 0 in the run, ``attempt`` in the rollout; equal numbers give equal rows, one
        per group.
        """
        args, size = self._args, self._args.groups_per_generation
        first = rollout % (len(self.rows) // size) * size
        now = range(first, first + size)
        if self._from_dataset or args.num_train_seeds is not None:
            random = np.random.default_rng(np.random.SeedSequence([args.seed, rollout], spawn_key=(2,)))
            current = {self._starts[row] for row in now}
            chosen = random.permutation(list(self._first_rows.values())).tolist()
            chosen.sort(key=lambda row: self._starts[row] in current)
            return [self.rows[chosen[place % len(chosen)]] for place in range(attempt * size, (attempt + 1) * size)]
        begin = seeds.REFILL + (rollout * REFILL_ATTEMPTS + attempt) * size
        if attempt >= REFILL_ATTEMPTS or begin + size > seeds.WARM_START:
            raise OptionError(f"no seeds are left for extra rollout {attempt} of rollout {rollout}; lower max_refills")
        return [{**self.rows[row], "seed": begin + place} for place, row in enumerate(now)]

    def _made_up(self, starts: Sequence[tuple[int, int]]) -> Dataset:
        envs = [self.specs[env] for env, _ in starts]
        columns = {"seed": [seed for _, seed in starts], "env": [spec.label for spec in envs]}
        return _with_environments(Dataset.from_dict(columns), [env for env, _ in starts], self.specs)


def reset_options(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says beside its start state, for the environment's ``reset(options=…)``: the user's columns."""
    kept = {name: value for name, value in row.items() if name not in _OF_START_STATES}
    return {name: value for name, value in kept.items() if (name, value) != ("prompt", _EMPTY_PROMPT)}


def _described(
    dataset: Dataset, known: Sequence[EnvSpec], which: str, first_seed: int, in_run: int = 0
) -> tuple[Dataset, list[EnvSpec]]:
    """Rows with ``prompt``, ``env_index`` and canonical JSON in ``kwargs``, and the environments to which that points.

    These are the ``known`` ones, of which the first ``in_run`` are the run's, and then those that the rows name.
    """
    columns = dataset.column_names if isinstance(dataset, Dataset) else []
    wanted = set() if in_run == 1 else {"env"}
    if not columns or not wanted <= set(columns) or not len(dataset):
        raise OptionError(
            f"{which} is {dataset!r}; give a datasets.Dataset that is not streamed, whose rows are start states: with "
            "a column 'env' unless the run has one environment, and arguments of gymnasium.make in 'kwargs'"
        )
    if "seed" not in columns:
        columns = [*columns, "seed"]
        dataset = dataset.add_column("seed", [*range(first_seed, first_seed + len(dataset))])
    specs, indices = list(known), []
    places = {spec.key: place for place, spec in enumerate(specs)}
    read = dataset.select_columns([name for name in ("env", "seed", "kwargs") if name in columns])
    for number, row in enumerate(read):
        place, seed = f"row {number} of {which}", row["seed"]
        if not isinstance(seed, int) or isinstance(seed, bool) or not first_seed <= seed < seeds.WARM_START:
            raise OptionError(
                f"{place} has seed {seed!r}; it has to be an integer from {first_seed} on and below "
                f"{seeds.WARM_START}: smaller ones are kept for evaluation, larger ones for warm-start play"
            )
        spec = _spec(row, specs[:in_run], place)
        if places.setdefault(spec.key, len(specs)) == len(specs):
            specs.append(spec)
        indices.append(places[spec.key])
    rows = dataset.remove_columns([name for name in ("kwargs", "env_index") if name in columns])
    return _with_environments(rows, indices, specs), specs


def _with_environments(rows: Dataset, indices: Sequence[int], specs: Sequence[EnvSpec]) -> Dataset:
    if "prompt" not in rows.column_names:
        rows = rows.add_column("prompt", [_EMPTY_PROMPT] * len(rows))
    rows = rows.add_column("kwargs", [specs[index].key[1] for index in indices])
    return rows.add_column("env_index", list(indices))


def _spec(row: Mapping[str, Any], of_run: Sequence[EnvSpec], place: str) -> EnvSpec:
    if "env" not in row:
        return of_run[0]
    env, kwargs = row["env"], row.get("kwargs")
    named = [spec for spec in of_run if spec.label == env and ("kwargs" not in row or not isinstance(spec.env, str))]
    if len(named) == 1:
        return named[0]
    try:
        gymnasium.spec(env)
        return EnvSpec(env, dict(json.loads(kwargs or "{}")))
    except (gymnasium.error.Error, ImportError, ValueError, TypeError, AttributeError) as error:
        raise OptionError(
            f"{place} has env {env!r} with kwargs {kwargs!r}; write the id of a registered environment and its "
            f"arguments as JSON, such as '{{\"size\": 5}}' ({type(error).__name__}: {error})"
        ) from error
