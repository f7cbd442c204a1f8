"""Seeds: training, evaluation and warm start never share a start state's seed, and a run's order is fixed."""

import random
from collections import Counter
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
    SELECTION,
    WARM_START,
    SeedOverlapError,
    StartStateError,
    evaluation_rows,
    evaluation_seeds,
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


def test_every_group_has_a_new_start_state_unless_told_otherwise(tmp_path: Path) -> None:
    assert seeds(config(tmp_path)) == list(range(EVALUATION_END, EVALUATION_END + 12))


def test_updates_on_old_rollouts_and_accumulation_need_no_more_rows(tmp_path: Path) -> None:
    assert len(seeds(config(tmp_path, num_iterations=2))) == 6
    assert len(seeds(config(tmp_path, num_iterations=4))) == 4  # the second rollout has begun, so all of it counts
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
    """What was played up to a stop must not depend on how long the run was planned to be."""
    short, long = (seeds(config(tmp_path, num_train_seeds=5, max_steps=steps)) for steps in (4, 9))
    assert long[: len(short)] == short


def test_epochs_need_a_number_of_seeds(tmp_path: Path) -> None:
    assert seeds(config(tmp_path, max_steps=-1, num_train_seeds=3)) == [10_000, 10_001, 10_002]
    with pytest.raises(ValueError, match="num_train_epochs is 3.0, but an epoch needs start states: set"):
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


def test_the_shuffled_order_is_the_one_that_published_runs_had(tmp_path: Path) -> None:
    rng = np.random.default_rng(42)
    expected = np.concatenate([rng.permutation(np.arange(10_000, 10_005)) for _ in range(3)])[:12]
    assert seeds(config(tmp_path, num_train_seeds=5, seed=42)) == expected.tolist()


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


def test_no_index_is_ever_a_whole_turn_ahead_or_behind() -> None:
    rng = random.Random(0)
    for _ in range(40):
        weights = [rng.choice([0.01, rng.random(), rng.randint(1, 9)]) for _ in range(rng.randint(2, 6))]
        counts, bound = Counter[int](), 1 - 1 / (2 * len(weights) - 2)
        for turn, index in enumerate(interleave(weights, 300), start=1):
            counts[index] += 1
            off = max(abs(counts[i] - turn * weight / sum(weights)) for i, weight in enumerate(weights))
            assert off <= bound + 1e-9


def mixed(folder: Path, weights: list[float] | None = None, **values: Any) -> Dataset:
    return training_rows(config(folder, env_weights=weights, **values), [LAKE, BANDIT])


def test_a_single_environment_in_a_list_has_the_same_rows_and_its_name(tmp_path: Path) -> None:
    for values in ({}, {"num_train_seeds": 5}, {"max_steps": -1, "num_train_seeds": 3}):
        args = config(tmp_path, **values)
        rows = training_rows(args, [LAKE])
        assert list(rows["seed"]) == seeds(args)
        assert set(rows["env"]) == {"ragen/FrozenLake-v0"} and set(rows["env_index"]) == {0}


def test_every_rollout_has_its_environments_in_proportion(tmp_path: Path) -> None:
    rows = mixed(tmp_path, [3, 1], per_device_train_batch_size=32, max_steps=50)  # 8 groups a rollout
    indices = list(rows["env_index"])
    windows = [tuple(indices[first : first + 8]) for first in range(0, 400, 8)]
    assert all(window.count(0) == 6 and window.count(1) == 2 for window in windows)
    assert len(set(windows)) > 10  # no process plays one environment all the time
    assert list(rows["env"]) == [(LAKE, BANDIT)[index].label for index in indices]


def test_environments_are_played_equally_by_default(tmp_path: Path) -> None:
    indices = list(mixed(tmp_path)["env_index"])
    assert all(sorted(indices[first : first + 2]) == [0, 1] for first in range(0, 12, 2))


def test_each_environment_has_the_start_states_that_it_would_have_alone(tmp_path: Path) -> None:
    rows = list(mixed(tmp_path, [2, 1], max_steps=9))
    assert [row["seed"] for row in rows if row["env_index"] == 0] == list(range(10_000, 10_012))
    assert [row["seed"] for row in rows if row["env_index"] == 1] == list(range(10_000, 10_006))
    again = list(mixed(tmp_path, [2, 1], max_steps=9, num_train_seeds=4))
    alone = seeds(config(tmp_path, max_steps=6, num_train_seeds=4))
    assert [row["seed"] for row in again if row["env_index"] == 0] == alone
    assert Counter(row["seed"] for row in again if row["env_index"] == 1).keys() == set(range(10_000, 10_004))


def test_the_mixture_depends_on_the_seed_alone_and_a_longer_run_begins_alike(tmp_path: Path) -> None:
    first, again, other = (list(mixed(tmp_path, [3, 2], seed=seed)["env_index"]) for seed in (1, 1, 2))
    assert first == again != other
    longer = list(mixed(tmp_path, [3, 2], seed=1, max_steps=20))
    assert longer[:12] == list(mixed(tmp_path, [3, 2], seed=1))


def test_an_epoch_has_every_start_state_of_every_environment(tmp_path: Path) -> None:
    rows = mixed(tmp_path, max_steps=-1, num_train_seeds=3)
    assert sorted(zip(rows["env_index"], rows["seed"], strict=True)) == [
        (index, seed) for index in (0, 1) for seed in (10_000, 10_001, 10_002)
    ]


@pytest.mark.parametrize("weights", [[1.0], [1, 2, 3], []])
def test_every_environment_needs_a_weight(tmp_path: Path, weights: list[float]) -> None:
    with pytest.raises(StartStateError, match="for 2 environment.s.; give one weight for each"):
        mixed(tmp_path, weights)
    with pytest.raises(StartStateError, match=r"env_weights is \[3, 1\] for 1 environment"):
        training_rows(config(tmp_path, env_weights=[3, 1]))


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf")])
def test_weights_are_positive_numbers(tmp_path: Path, weight: float) -> None:
    with pytest.raises(StartStateError, match=f"env_weights is .1, {weight}.; weights must be positive"):
        mixed(tmp_path, [1, weight])


def test_environments_take_turns_in_the_evaluation_during_training() -> None:
    rows = evaluation_rows(5, [LAKE, BANDIT])
    assert list(rows["env_index"]) == [0, 1, 0, 1, 0]
    assert list(rows["seed"]) == [8000, 8000, 8001, 8001, 8002]
    assert list(evaluation_rows(3, [LAKE])["seed"]) == list(evaluation_rows(3)["seed"])
    with pytest.raises(StartStateError, match="num_eval_seeds is 1 for 2 environments"):
        evaluation_rows(1, [LAKE, BANDIT])


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


def test_an_extra_rollout_plays_the_environments_of_the_one_that_it_adds_to(tmp_path: Path) -> None:
    args = config(tmp_path, per_device_train_batch_size=32, env_weights=[3, 1])
    rows = training_rows(args, [LAKE, BANDIT])
    for rollout in range(6):
        here = [rows[row] for row in range(8 * rollout, 8 * rollout + 8)]
        extra = refill_rows(args, rollout, 2, rows)
        assert [row["env_index"] for row in extra] == [row["env_index"] for row in here]
        assert [row["env"] for row in extra] == [row["env"] for row in here]
        assert [row["prompt"] for row in extra] == [row["prompt"] for row in here]


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


def test_extra_rollouts_go_round_in_a_small_set(tmp_path: Path) -> None:
    args = config(tmp_path, num_train_seeds=2)
    rows = training_rows(args)
    assert sorted(refilled(args, 0, 0, rows)) == sorted(refilled(args, 0, 99, rows)) == [10_000, 10_001]


def test_one_seed_in_two_environments_is_two_start_states(tmp_path: Path) -> None:
    args = config(tmp_path, num_train_seeds=2)
    rows = training_rows(args, [LAKE, BANDIT])
    starts = [(row["env_index"], row["seed"]) for attempt in (0, 1) for row in refill_rows(args, 0, attempt, rows)]
    assert sorted(starts) == [(0, 10_000), (0, 10_001), (1, 10_000), (1, 10_001)]


def test_a_users_rows_are_a_fixed_set(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"env_index": [0] * 4, "seed": [20_000, 20_001, 30_000, 30_001], "level": [1, 1, 2, 2]})
    args = config(tmp_path, max_steps=2)
    first, second = refill_rows(args, 1, 0, rows, from_dataset=True)
    assert {first["seed"], second["seed"]} == {20_000, 20_001}
    assert (first["level"], second["level"]) == (1, 1)


def test_extra_rollouts_never_reach_other_seeds(tmp_path: Path) -> None:
    args = config(tmp_path)
    rows = training_rows(args)
    with pytest.raises(StartStateError, match="attempt is 64; a rollout has at most 64"):
        refill_rows(args, 0, REFILL_ATTEMPTS, rows)
    with pytest.raises(SeedOverlapError, match="rollout 9999999 has no seeds below 1000000000 left"):
        refill_rows(args, 9_999_999, 0, rows)
    late = config(tmp_path, train_seed_start=REFILL - 11)
    with pytest.raises(SeedOverlapError, match=f"training seeds go up to {REFILL}, but extra rollouts begin"):
        refill_rows(late, 0, 0, training_rows(late))


def test_a_run_that_has_no_seeds_for_its_refills_does_not_begin(tmp_path: Path) -> None:
    assert len(training_rows(config(tmp_path, max_refills=REFILL_ATTEMPTS))) == 12
    with pytest.raises(StartStateError, match="attempt is 64; a rollout has at most 64 extra rollouts"):
        training_rows(config(tmp_path, max_refills=REFILL_ATTEMPTS + 1))
    assert len(training_rows(config(tmp_path, max_refills=REFILL_ATTEMPTS + 1, num_train_seeds=4))) == 12
    with pytest.raises(SeedOverlapError, match="but extra rollouts begin at 500000000; lower them"):
        training_rows(config(tmp_path, train_seed_start=REFILL - 11, max_refills=1))
