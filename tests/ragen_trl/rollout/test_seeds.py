"""Seeds: training, evaluation and warm start never share a start state's seed, and a run's order is fixed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from ragen_trl import StarPOConfig
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.seeds import (
    EVALUATION_END,
    REFILL,
    REFILL_ATTEMPTS,
    WARM_START,
    SeedOverlapError,
    interleave,
    refill_rows,
    training_rows,
)

LAKE, BANDIT = EnvSpec("ragen/FrozenLake-v0"), EnvSpec("ragen/Bandit-v0")

QUIET: dict[str, Any] = {"bf16": False, "use_cpu": True, "report_to": "none", "gradient_checkpointing": False}


def config(folder: Path, **values: Any) -> StarPOConfig:
    """Two groups of four a rollout, six rollouts."""
    small = {"per_device_train_batch_size": 8, "num_generations": 4, "gradient_accumulation_steps": 1, "max_steps": 6}
    return StarPOConfig(output_dir=str(folder), **{**QUIET, **small, **values})


def seeds(args: StarPOConfig) -> list[int]:
    return list(training_rows(args)["seed"])


def test_few_start_states_come_round_in_a_new_order_each_time(tmp_path: Path) -> None:
    played = seeds(config(tmp_path, num_train_seeds=4))
    rounds = [played[first : first + 4] for first in (0, 4, 8)]
    assert all(sorted(each) == list(range(EVALUATION_END, EVALUATION_END + 4)) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_the_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    first, again, other = (seeds(config(tmp_path, num_train_seeds=5, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_longer_run_begins_like_a_shorter_one(tmp_path: Path) -> None:
    """What was played up to a stop must not depend on how long the run was planned to be."""
    short, long = (seeds(config(tmp_path, num_train_seeds=5, max_steps=steps)) for steps in (4, 9))
    assert long[: len(short)] == short


@pytest.mark.parametrize("first", [0, EVALUATION_END - 1])
def test_training_on_evaluation_seeds_is_refused(tmp_path: Path, first: int) -> None:
    with pytest.raises(SeedOverlapError, match=f"train_seed_start is {first}, but seeds below 10000"):
        training_rows(config(tmp_path, train_seed_start=first))


def test_training_on_warm_start_seeds_is_refused(tmp_path: Path) -> None:
    assert seeds(config(tmp_path, train_seed_start=WARM_START - 12))[-1] == WARM_START - 1
    with pytest.raises(SeedOverlapError, match="reach those of warm-start play"):
        training_rows(config(tmp_path, train_seed_start=WARM_START - 11))


@pytest.mark.parametrize("num_seeds", [8, 9, 10, 13, 16])
def test_a_rollout_in_which_a_pass_ends_has_no_start_state_twice(tmp_path: Path, num_seeds: int) -> None:
    """The docstring said so, but a pass began with states that the rollout had had at the end of the last one."""
    args = config(tmp_path, per_device_train_batch_size=32, max_steps=40, num_train_seeds=num_seeds)
    played = seeds(args)
    assert all(len(set(played[first : first + 8])) == 8 for first in range(0, 320, 8))
    whole = [played[first : first + num_seeds] for first in range(0, 320 - num_seeds, num_seeds)]
    assert all(sorted(each) == list(range(EVALUATION_END, EVALUATION_END + num_seeds)) for each in whole)
    rng = np.random.default_rng([42, 0])
    drawn = [rng.permutation(np.arange(10_000, 10_000 + num_seeds)).tolist() for _ in whole]
    assert (whole == drawn) == (num_seeds % 8 == 0)  # where passes end between rollouts nothing waits
    shorter = config(tmp_path, per_device_train_batch_size=32, max_steps=7, num_train_seeds=num_seeds)
    assert seeds(shorter) == played[:56]


def test_no_environment_of_several_has_a_start_state_twice_in_a_rollout(tmp_path: Path) -> None:
    rows = mixed(tmp_path, [2, 1], per_device_train_batch_size=32, max_steps=40, num_train_seeds=9)
    starts = list(zip(rows["env_index"], rows["seed"], strict=True))
    assert all(len(set(starts[first : first + 8])) == 8 for first in range(0, 320, 8))


def test_turns_are_taken_by_weight() -> None:
    assert interleave([3, 1], 8) == [0, 0, 1, 0, 0, 0, 1, 0]
    assert interleave([1, 1, 1], 6) == [0, 1, 2, 0, 1, 2]
    assert interleave([5.0], 3) == [0, 0, 0]
    assert interleave([0.5, 0.25], 6) == interleave([200, 100], 6)
    assert interleave([1, 2], 0) == []


def mixed(folder: Path, weights: list[float] | None = None, **values: Any) -> Dataset:
    return training_rows(config(folder, env_weights=weights, **values), [LAKE, BANDIT])


def test_the_mixture_depends_on_the_seed_alone_and_a_longer_run_begins_alike(tmp_path: Path) -> None:
    first, again, other = (list(mixed(tmp_path, [3, 2], seed=seed)["env_index"]) for seed in (1, 1, 2))
    assert first == again != other
    longer = list(mixed(tmp_path, [3, 2], seed=1, max_steps=20))
    assert longer[:12] == list(mixed(tmp_path, [3, 2], seed=1))


def refilled(args: StarPOConfig, rollout: int, attempt: int, rows: Dataset, from_dataset: bool = False) -> list[int]:
    return [row["seed"] for row in refill_rows(args, rollout, attempt, rows, from_dataset)]


def test_extra_rollouts_have_new_start_states_in_a_range_of_their_own(tmp_path: Path) -> None:
    args = config(tmp_path)
    rows = training_rows(args)
    extra = [
        seed
        for rollout in range(args.num_rollouts)
        for attempt in range(REFILL_ATTEMPTS)
        for seed in refilled(args, rollout, attempt, rows)
    ]
    assert len(set(extra)) == len(extra) == 6 * REFILL_ATTEMPTS * 2
    assert min(extra) == REFILL > max(rows["seed"]) and max(extra) < WARM_START
    assert refilled(args, 3, 1, rows) == [REFILL + (3 * REFILL_ATTEMPTS + 1) * 2 + place for place in (0, 1)]


def test_extra_rollouts_draw_from_a_fixed_set_what_this_rollout_has_not_had(tmp_path: Path) -> None:
    args = config(tmp_path, num_train_seeds=7)
    rows = training_rows(args)
    for rollout in range(args.num_rollouts):
        had = list(rows["seed"])[2 * rollout : 2 * rollout + 2]
        others = [seed for attempt in range(3) for seed in refilled(args, rollout, attempt, rows)]
        assert len(set(others)) == 6 and set(others) <= set(range(10_000, 10_007))
        assert not set(others[: 7 - len(set(had))]) & set(had)  # those come back when nothing else is left
        assert others == [seed for attempt in range(3) for seed in refilled(args, rollout, attempt, rows)]
    orders = {tuple(refilled(args, rollout, 0, rows)) for rollout in range(args.num_rollouts)}
    assert len(orders) > 1


def test_one_seed_in_two_environments_is_two_start_states(tmp_path: Path) -> None:
    args = config(tmp_path, num_train_seeds=2)
    rows = training_rows(args, [LAKE, BANDIT])
    starts = [(row["env_index"], row["seed"]) for attempt in (0, 1) for row in refill_rows(args, 0, attempt, rows)]
    assert sorted(starts) == [(0, 10_000), (0, 10_001), (1, 10_000), (1, 10_001)]
