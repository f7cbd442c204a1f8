"""Seeds: training, evaluation and warm start never share a start state's seed, and a run's order is fixed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragen_trl import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.rollout.seeds import EVALUATION_END, REFILL, WARM_START, interleave, training_starts
from ragen_trl.rollout.tasks import REFILL_ATTEMPTS, Tasks

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"

QUIET: dict[str, Any] = {"bf16": False, "use_cpu": True, "report_to": "none", "gradient_checkpointing": False}


def config(folder: Path, **values: Any) -> StarPOConfig:
    """Two groups of four a rollout, six rollouts."""
    small = {"per_device_train_batch_size": 8, "num_generations": 4, "gradient_accumulation_steps": 1, "max_steps": 6}
    return StarPOConfig(output_dir=str(folder), **{**QUIET, **small, **values})


def seeds(args: StarPOConfig) -> list[int]:
    return [seed for _, seed in training_starts(args)]


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
    for few in (5, None):
        short, long = (config(tmp_path, num_train_seeds=few, max_steps=steps) for steps in (4, 9))
        assert seeds(long)[: len(seeds(short))] == seeds(short)
        assert not long.shuffle_dataset  # TRL would play the rows in an order that depends on their number


@pytest.mark.parametrize("first", [0, EVALUATION_END - 1])
def test_training_on_evaluation_seeds_is_refused(tmp_path: Path, first: int) -> None:
    with pytest.raises(OptionError, match=f"training would use seeds {first} to .* below 10000 are for evaluation"):
        training_starts(config(tmp_path, train_seed_start=first))


def test_training_on_seeds_of_refills_and_warm_starts_is_refused(tmp_path: Path) -> None:
    assert seeds(config(tmp_path, train_seed_start=REFILL - 12))[-1] == REFILL - 1
    with pytest.raises(OptionError, match="for extra rollouts and warm-start play"):
        training_starts(config(tmp_path, train_seed_start=REFILL - 11))


@pytest.mark.parametrize("num_seeds", [8, 9, 10, 13, 16])
def test_a_rollout_in_which_a_pass_ends_has_no_start_state_twice(tmp_path: Path, num_seeds: int) -> None:
    """The docstring said so, but a pass began with states that the rollout had had at the end of the last one."""
    args = config(tmp_path, per_device_train_batch_size=32, max_steps=40, num_train_seeds=num_seeds)
    played = seeds(args)
    assert all(len(set(played[first : first + 8])) == 8 for first in range(0, 320, 8))
    whole = [played[first : first + num_seeds] for first in range(0, 320 - num_seeds, num_seeds)]
    assert all(sorted(each) == list(range(EVALUATION_END, EVALUATION_END + num_seeds)) for each in whole)
    rng, seeds_ = np.random.default_rng([42, 0]), np.arange(10_000, 10_000 + num_seeds)
    drawn = [seeds_.tolist(), *(rng.permutation(seeds_).tolist() for _ in whole[1:])]
    assert (whole == drawn) == (num_seeds % 8 == 0)  # where passes end between rollouts nothing waits
    shorter = config(tmp_path, per_device_train_batch_size=32, max_steps=7, num_train_seeds=num_seeds)
    assert seeds(shorter) == played[:56]


def test_no_environment_of_several_has_a_start_state_twice_in_a_rollout(tmp_path: Path) -> None:
    starts = mixed(tmp_path, [2, 1], per_device_train_batch_size=32, max_steps=40, num_train_seeds=9)
    assert all(len(set(starts[first : first + 8])) == 8 for first in range(0, 320, 8))


def test_turns_are_taken_by_weight() -> None:
    assert interleave([3, 1], 8) == [0, 0, 1, 0, 0, 0, 1, 0]
    assert interleave([1, 1, 1], 6) == [0, 1, 2, 0, 1, 2]
    assert interleave([5.0], 3) == [0, 0, 0]
    assert interleave([0.5, 0.25], 6) == interleave([200, 100], 6)
    assert interleave([1, 2], 0) == []


def mixed(folder: Path, weights: list[float] | None = None, **values: Any) -> list[tuple[int, int]]:
    return training_starts(config(folder, env_weights=weights, **values), 2)


def test_the_mixture_depends_on_the_seed_alone_and_a_longer_run_begins_alike(tmp_path: Path) -> None:
    first, again, other = ([env for env, _ in mixed(tmp_path, [3, 2], seed=seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert mixed(tmp_path, [3, 2], seed=1, max_steps=20)[:12] == mixed(tmp_path, [3, 2], seed=1)


def refilled(tasks: Tasks, rollout: int, attempt: int) -> list[int]:
    return [row["seed"] for row in tasks.refill_rows(rollout, attempt)]


def test_extra_rollouts_have_new_start_states_in_a_range_of_their_own(tmp_path: Path) -> None:
    args = config(tmp_path)
    tasks = Tasks(LAKE, None, args)
    extra = [
        seed
        for rollout in range(args.num_rollouts)
        for attempt in range(REFILL_ATTEMPTS)
        for seed in refilled(tasks, rollout, attempt)
    ]
    assert len(set(extra)) == len(extra) == 6 * REFILL_ATTEMPTS * 2
    assert min(extra) == REFILL > max(tasks.rows["seed"]) and max(extra) < WARM_START
    assert refilled(tasks, 3, 1) == [REFILL + (3 * REFILL_ATTEMPTS + 1) * 2 + place for place in (0, 1)]


def test_extra_rollouts_draw_from_a_fixed_set_what_this_rollout_has_not_had(tmp_path: Path) -> None:
    args = config(tmp_path, num_train_seeds=7)
    tasks = Tasks(LAKE, None, args)
    for rollout in range(args.num_rollouts):
        had = list(tasks.rows["seed"])[2 * rollout : 2 * rollout + 2]
        others = [seed for attempt in range(3) for seed in refilled(tasks, rollout, attempt)]
        assert len(set(others)) == 6 and set(others) <= set(range(10_000, 10_007))
        assert not set(others[: 7 - len(set(had))]) & set(had)  # those come back when nothing else is left
        assert others == [seed for attempt in range(3) for seed in refilled(tasks, rollout, attempt)]
    orders = {tuple(refilled(tasks, rollout, 0)) for rollout in range(args.num_rollouts)}
    assert len(orders) > 1


def test_one_seed_in_two_environments_is_two_start_states(tmp_path: Path) -> None:
    tasks = Tasks([LAKE, BANDIT], None, config(tmp_path, num_train_seeds=2))
    starts = [(row["env_index"], row["seed"]) for attempt in (0, 1) for row in tasks.refill_rows(0, attempt)]
    assert sorted(starts) == [(0, 10_000), (0, 10_001), (1, 10_000), (1, 10_001)]
