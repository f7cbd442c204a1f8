"""A user's data set of start states: what becomes of its rows, and which ones are refused."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from ragen_trl import StarPOConfig
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.seeds import WARM_START, SeedOverlapError, StartStateError
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


def test_a_short_run_plays_the_first_rows(tmp_path: Path) -> None:
    rows, _ = dataset_rows(config(tmp_path, max_steps=2), dataset())
    assert list(rows["seed"]) == [20_000, 20_001, 20_002, 20_003]


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


def test_a_rollout_in_which_a_pass_ends_has_no_row_twice(tmp_path: Path) -> None:
    args = config(tmp_path, per_device_train_batch_size=16, max_steps=40)
    played = list(dataset_rows(args, dataset(5))[0]["seed"])
    assert all(len(set(played[first : first + 4])) == 4 for first in range(0, 160, 4))
    assert all(sorted(played[first : first + 5]) == list(range(20_000, 20_005)) for first in range(0, 160, 5))


def test_mappings_and_json_mean_the_same(tmp_path: Path) -> None:
    mapped = dataset(2, kwargs=[{"size": 5, "is_slippery": False}, {"is_slippery": False, "size": 5}])
    texts = dataset(2, kwargs=['{"size": 5, "is_slippery": false}', '{"is_slippery": false, "size": 5}'])
    for given in (mapped, texts):
        rows, specs = dataset_rows(config(tmp_path, max_steps=1), given)
        assert specs == [EnvSpec(LAKE, {"size": 5, "is_slippery": False})]
        assert list(rows["kwargs"]) == ['{"is_slippery": false, "size": 5}'] * 2
        assert list(rows["env_index"]) == [0, 0]


def test_a_row_does_not_inherit_keys_from_other_rows(tmp_path: Path) -> None:
    """Arrow fills a mapping up with None for the keys of other rows, which no environment would take."""
    kwargs = [{"size": 5}, {"is_slippery": False}, {"size": None}, None, {"desc": ["SF", "FG"]}]
    given = dataset(5, kwargs=kwargs)
    assert given[1]["kwargs"]["size"] is None
    _, specs = dataset_rows(config(tmp_path, max_steps=1), given)
    wanted: list[dict[str, Any]] = [{"size": 5}, {"is_slippery": False}, {}, {"desc": ["SF", "FG"]}]
    assert [spec.kwargs for spec in specs] == wanted
    assert len(EnvPool(config(tmp_path)).take(specs[:3])) == 3


def test_json_text_can_say_none_and_nothing(tmp_path: Path) -> None:
    _, specs = dataset_rows(config(tmp_path, max_steps=1), dataset(3, kwargs=['{"desc": null}', "", None]))
    assert [spec.kwargs for spec in specs] == [{"desc": None}, {}]


@pytest.mark.parametrize("seed", [0, 9_999, -1, WARM_START, WARM_START + 5])
def test_seeds_that_are_kept_for_something_else_are_refused(tmp_path: Path, seed: int) -> None:
    given = Dataset.from_dict({"env": [LAKE] * 3, "seed": [20_000, seed, 20_001]})
    with pytest.raises(SeedOverlapError, match=f"row 1 of train_dataset has seed {seed}, but seeds below 10000 are"):
        dataset_rows(config(tmp_path), given)


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


@pytest.mark.parametrize("missing", ["env", "seed"])
def test_env_and_seed_are_needed(tmp_path: Path, missing: str) -> None:
    with pytest.raises(StartStateError, match=f"train_dataset has columns .* but no '{missing}'"):
        dataset_rows(config(tmp_path), dataset().remove_columns([missing]))


def test_a_streamed_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartStateError, match="pass a datasets.Dataset, not a streamed one"):
        dataset_rows(config(tmp_path), dataset().to_iterable_dataset())


def test_a_rollout_needs_a_row_for_each_of_its_groups(tmp_path: Path) -> None:
    with pytest.raises(StartStateError, match="has 1 rows, but every rollout takes 2: .*gradient_accumulation_steps"):
        dataset_rows(config(tmp_path), dataset(1))
    assert len(dataset_rows(config(tmp_path), dataset(2))[0]) == 12


@pytest.mark.parametrize(
    "option",
    [{"env_kwargs": {"size": 5}}, {"env_weights": [1.0]}, {"num_train_seeds": 9}, {"train_seed_start": 20_000}],
    ids=str,
)
def test_options_that_rows_make_void_are_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    ((name, _),) = option.items()
    with pytest.raises(StartStateError, match=f"{name} is .*, but the rows of train_dataset decide that"):
        dataset_rows(config(tmp_path, **option), dataset())


def test_a_column_that_would_be_overlooked_is_refused(tmp_path: Path) -> None:
    given = Dataset.from_dict({"env": [LAKE] * 2, "seed": [20_000, 20_001], "env_kwargs": [{"size": 5}] * 2})
    with pytest.raises(StartStateError, match="a column 'env_kwargs'; put arguments of environments into 'kwargs'"):
        dataset_rows(config(tmp_path), given)


def test_rows_may_repeat_a_start_state(tmp_path: Path) -> None:
    given = Dataset.from_dict({"env": [LAKE] * 3, "seed": [20_000, 20_000, 20_001]})
    rows, _ = dataset_rows(config(tmp_path), given)
    assert Counter(rows["seed"]) == {20_000: 8, 20_001: 4}
