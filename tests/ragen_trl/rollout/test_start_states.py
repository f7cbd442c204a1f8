"""A user's data set of start states: what becomes of its rows, and which ones are refused."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from ragen_trl import StarPOConfig
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.seeds import StartStateError
from ragen_trl.rollout.start_states import dataset_rows

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
    rows, specs = dataset_rows(config(tmp_path), given)
    assert specs == [EnvSpec(BANDIT), EnvSpec(LAKE)]
    assert list(rows["env_index"]) == [0, 1] * 6
    assert [list(rows[name]) for name in ("env", "seed", "level")] == [list(given[name]) for name in given.column_names]
    assert rows[0]["prompt"] == [{"role": "user", "content": ""}]
    assert rows[0]["kwargs"] == "{}"


def test_a_long_run_repeats_the_rows_in_a_new_order_each_time(tmp_path: Path) -> None:
    def order(seed: int, steps: int = 10) -> list[int]:
        return list(dataset_rows(config(tmp_path, max_steps=steps, seed=seed), dataset(5))[0]["seed"])

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
        ({"seed": [1.5] * 12}, "row 0 of train_dataset has seed 1.5; a seed is an integer"),
        ({"seed": ["20000"] * 12}, "row 0 of train_dataset has seed '20000'; a seed is an integer"),
        ({"seed": [20_000, None] * 6}, "row 1 of train_dataset has seed None"),
        ({"seed": [True] * 12}, "row 0 of train_dataset has seed True"),
        ({"env": [0] * 12}, "row 0 of train_dataset has env 0; write the Gymnasium id"),
        ({"env": [LAKE, "ragen/Lake-v0"] * 6}, "row 1 of train_dataset has env 'ragen/Lake-v0', which is not regis"),
        ({"env": ["no_such_module:A-v0"] * 12}, "row 0 .* env 'no_such_module:A-v0', which is not registered: "),
        ({"kwargs": ["{size: 5}"] * 12}, "row 0 of train_dataset has kwargs '{size: 5}', which is not JSON"),
        ({"kwargs": ["[5]"] * 12}, r"row 0 of train_dataset has kwargs '\[5\]'; write a mapping"),
        ({"kwargs": [0, 5] * 6}, "row 1 of train_dataset has kwargs 5; write a mapping"),
        ({"env_index": [0] * 12}, "column 'env_index', which the trainer writes itself; rename it"),
    ],
)
def test_columns_of_the_wrong_kind_are_named_with_their_row(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(StartStateError, match=message):
        dataset_rows(config(tmp_path), dataset(**columns))
