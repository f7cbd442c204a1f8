"""Seeds: training, evaluation and warm start never share a start state's seed, and a run's order is fixed."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.seeds import (
    EVALUATION_END,
    SELECTION,
    WARM_START,
    SeedOverlapError,
    evaluation_rows,
    evaluation_seeds,
    training_rows,
)

QUIET: dict[str, Any] = {"bf16": False, "use_cpu": True, "report_to": "none", "gradient_checkpointing": False}


def config(folder: Path, **values: Any) -> StarPOConfig:
    """Two groups of four a rollout, six rollouts."""
    small = {"per_device_train_batch_size": 8, "num_generations": 4, "gradient_accumulation_steps": 1, "max_steps": 6}
    return StarPOConfig(output_dir=str(folder), **{**QUIET, **small, **values})


def seeds(args: StarPOConfig) -> list[int]:
    return list(training_rows(args)["seed"])


def test_every_group_has_a_new_start_state_unless_told_otherwise(tmp_path: Path) -> None:
    assert seeds(config(tmp_path)) == list(range(EVALUATION_END, EVALUATION_END + 12))


def test_updates_on_old_rollouts_and_accumulation_need_no_more_rows(tmp_path: Path) -> None:
    assert len(seeds(config(tmp_path, num_iterations=2))) == 6
    assert len(seeds(config(tmp_path, num_iterations=4))) == 4  # the second rollout is begun, hence counted whole
    split = config(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    assert len(seeds(split)) == 12


def test_few_start_states_come_round_in_a_new_order_each_time(tmp_path: Path) -> None:
    played = seeds(config(tmp_path, num_train_seeds=4))
    rounds = [played[first : first + 4] for first in (0, 4, 8)]
    assert all(sorted(each) == list(range(EVALUATION_END, EVALUATION_END + 4)) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_the_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    first, again, other = (seeds(config(tmp_path, num_train_seeds=5, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_longer_run_begins_like_a_shorter_one(tmp_path: Path) -> None:
    """What was played up to a stop must not depend on how long the run was to be."""
    short, long = (seeds(config(tmp_path, num_train_seeds=5, max_steps=steps)) for steps in (4, 9))
    assert long[: len(short)] == short


def test_epochs_need_a_number_of_seeds(tmp_path: Path) -> None:
    assert seeds(config(tmp_path, max_steps=-1, num_train_seeds=3)) == [10_000, 10_001, 10_002]
    with pytest.raises(ValueError, match="max_steps is -1; set it, or num_train_seeds"):
        training_rows(config(tmp_path, max_steps=-1))


def test_rows_have_the_prompt_that_trl_wants(tmp_path: Path) -> None:
    assert training_rows(config(tmp_path)).column_names == ["prompt", "seed"]
    selection = list(evaluation_rows(3)["seed"])  # chooses checkpoints, so it must not be what `evaluate` plays
    assert selection == [8000, 8001, 8002]
    assert not set(selection) & set(evaluation_seeds(SELECTION))


@pytest.mark.parametrize("first", [0, EVALUATION_END - 1])
def test_training_on_evaluation_seeds_is_refused(tmp_path: Path, first: int) -> None:
    with pytest.raises(SeedOverlapError, match=f"train_seed_start is {first}, but seeds below 10000"):
        training_rows(config(tmp_path, train_seed_start=first))


def test_training_on_warm_start_seeds_is_refused(tmp_path: Path) -> None:
    assert seeds(config(tmp_path, train_seed_start=WARM_START - 12))[-1] == WARM_START - 1
    with pytest.raises(SeedOverlapError, match="reach those of warm-start play"):
        training_rows(config(tmp_path, train_seed_start=WARM_START - 11))


def test_the_evaluation_seeds_are_always_the_first() -> None:
    assert list(evaluation_seeds(5)) == [0, 1, 2, 3, 4]
    assert evaluation_seeds(SELECTION)[-1] == SELECTION - 1


@pytest.mark.parametrize("count", [0, -1, SELECTION + 1])
def test_more_evaluation_seeds_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(SeedOverlapError, match=f"{count} evaluation episodes; there are 8000"):
        evaluation_seeds(count)
