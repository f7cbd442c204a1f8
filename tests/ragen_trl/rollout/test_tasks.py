"""A user's data set of start states: what becomes of its rows, and which ones are refused."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from ragen_trl import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.rollout.environments import EnvSpec
from ragen_trl.rollout.tasks import Tasks

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"
SMALL: dict[str, Any] = {"per_device_train_batch_size": 8, "num_generations": 4, "gradient_accumulation_steps": 1}


def config(folder: Path, **values: Any) -> StarPOConfig:
    """Two groups of four a rollout, six rollouts."""
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none", "gradient_checkpointing": False}
    return StarPOConfig(output_dir=str(folder), **{**quiet, **SMALL, "max_steps": 6, **values})


def dataset(num_rows: int = 12, **columns: Any) -> Dataset:
    return Dataset.from_dict({"env": [LAKE] * num_rows, "seed": list(range(20_000, 20_000 + num_rows)), **columns})


def test_rows_are_played_in_their_order_with_all_their_columns(tmp_path: Path) -> None:
    given = Dataset.from_dict({"env": [BANDIT, LAKE] * 6, "seed": range(30_000, 29_988, -1), "level": range(12)})
    tasks = Tasks(None, given, config(tmp_path))
    rows, specs = tasks.rows, tasks.specs
    assert specs == [EnvSpec(BANDIT), EnvSpec(LAKE)]
    assert list(rows["env_index"]) == [0, 1] * 6
    assert [list(rows[name]) for name in ("env", "seed", "level")] == [list(given[name]) for name in given.column_names]
    assert rows[0]["prompt"] == [{"role": "user", "content": ""}]
    assert rows[0]["kwargs"] == "{}"


def test_a_long_run_repeats_the_rows_in_a_new_order_each_time(tmp_path: Path) -> None:
    def order(seed: int, steps: int = 10) -> list[int]:
        return list(Tasks(None, dataset(5), config(tmp_path, max_steps=steps, seed=seed)).rows["seed"])

    played = order(1)
    passes = [played[first : first + 5] for first in (0, 5, 10, 15)]
    assert passes[0] == list(range(20_000, 20_005))
    assert all(sorted(each) == passes[0] for each in passes)
    assert len({tuple(each) for each in passes}) > 2
    assert order(1) == played != order(2)
    assert order(1, steps=25)[:20] == played  # a longer run begins like a shorter one


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"seed": [1.5] * 12}, "row 0 of train_dataset has seed 1.5; it has to be an integer"),
        ({"seed": [20_000, None] * 6}, "row 1 of train_dataset has seed None"),
        ({"seed": [20_000, 9_999] * 6}, "row 1 of train_dataset has seed 9999; .* kept for evaluation"),
        ({"env": [LAKE, "ragen/Lake-v0"] * 6}, "row 1 of train_dataset has env 'ragen/Lake-v0' .*NameNotFound"),
        ({"kwargs": ["{size: 5}"] * 12}, "row 0 of train_dataset has env .* kwargs '{size: 5}'; write"),
    ],
)
def test_a_mistake_is_named_with_its_row(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Tasks(None, dataset(**columns), config(tmp_path))


def test_rows_of_an_evaluation_mean_the_runs_environments_or_others(tmp_path: Path) -> None:
    tasks = Tasks(EnvSpec(LAKE, {"size": 5}), None, config(tmp_path))
    seeds = {"seed": [1, 2]}
    alone = tasks.rows_for_evaluation(Dataset.from_dict(seeds))
    named = tasks.rows_for_evaluation(Dataset.from_dict({**seeds, "env": [LAKE, BANDIT]}))
    own = tasks.rows_for_evaluation(Dataset.from_dict({**seeds, "env": [LAKE] * 2, "kwargs": ['{"size": 6}', ""]}))
    assert [list(rows["env_index"]) for rows in (alone, named, own)] == [[0, 0], [0, 1], [2, 3]]
    assert [dict(tasks.evaluated[place].kwargs) for place in range(4)] == [{"size": 5}, {}, {"size": 6}, {}]
    trained = Dataset.from_dict({"seed": [tasks.rows[0]["seed"]]})
    with pytest.raises(OptionError, match="row 0 of eval_dataset has seed 10000, on which the run trains"):
        tasks.rows_for_evaluation(trained, held_out=True)
