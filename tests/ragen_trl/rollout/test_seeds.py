"""Seeds: training, evaluation and warm start share none, a run's order is fixed; curricula; a user's data set."""

from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from ragen_trl import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.rollout.environments import EnvSpec
from ragen_trl.rollout.seeds import EVALUATION_END, REFILL, interleave, training_starts
from ragen_trl.rollout.tasks import Tasks
from tests.support.ragen_trl.trainers import on_cpu

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"


def config(**values: Any) -> StarPOConfig:
    """Two groups of four a rollout, six rollouts."""
    small = {"per_device_train_batch_size": 8, "num_generations": 4, "gradient_accumulation_steps": 1, "max_steps": 6}
    return on_cpu(**{**small, **values})


def seeds(args: StarPOConfig) -> list[int]:
    return [seed for _, seed in training_starts(args)]


def test_the_order_depends_on_the_seed_alone() -> None:
    first, again, other = (seeds(config(num_train_seeds=5, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    short, long = (config(max_steps=steps) for steps in (4, 9))  # a run may be made longer
    assert seeds(long)[: len(seeds(short))] == seeds(short)
    assert not long.shuffle_dataset  # TRL would play the rows in an order that depends on their number


@pytest.mark.parametrize("first", [0, EVALUATION_END - 1])
def test_training_on_evaluation_seeds_is_refused(first: int) -> None:
    with pytest.raises(OptionError, match=f"training would use seeds {first} to .* below 10000 are for evaluation"):
        training_starts(config(train_seed_start=first))


def test_training_on_seeds_of_refills_and_warm_starts_is_refused() -> None:
    assert seeds(config(train_seed_start=REFILL - 12))[-1] == REFILL - 1
    with pytest.raises(OptionError, match="for extra rollouts and warm-start play"):
        training_starts(config(train_seed_start=REFILL - 11))


@pytest.mark.parametrize("num_seeds", [8, 13])
def test_passes_follow_one_another_each_in_an_order_of_its_own(num_seeds: int) -> None:
    args = config(per_device_train_batch_size=32, max_steps=40, num_train_seeds=num_seeds)
    rng, states = np.random.default_rng([42, 0]), list(range(EVALUATION_END, EVALUATION_END + num_seeds))
    drawn = states + [seed for _ in range(40) for seed in rng.permutation(states).tolist()]
    assert seeds(args) == drawn[:320]


def test_turns_are_taken_by_weight() -> None:
    assert interleave([3, 1], 8) == [0, 0, 1, 0, 0, 0, 1, 0]
    assert interleave([1, 1, 1], 6) == [0, 1, 2, 0, 1, 2]
    assert interleave([5.0], 3) == [0, 0, 0]
    assert interleave([0.5, 0.25], 6) == interleave([200, 100], 6)
    assert interleave([1, 2], 0) == []


def mixed(weights: list[float] | None = None, **values: Any) -> list[tuple[int, int]]:
    return training_starts(config(env_weights=weights, **values), 2)


def test_the_mixture_depends_on_the_seed_alone_and_a_longer_run_begins_alike() -> None:
    first, again, other = ([env for env, _ in mixed([3, 2], seed=seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert mixed([3, 2], seed=1, max_steps=20)[:12] == mixed([3, 2], seed=1)


def refilled(tasks: Tasks, rollout: int, attempt: int) -> list[int]:
    return [row["seed"] for row in tasks.refill_rows(rollout, attempt)]


def test_extra_rollouts_draw_from_a_fixed_set_what_this_rollout_has_not_had() -> None:
    args = config(num_train_seeds=7)
    tasks = Tasks(LAKE, None, args)
    for rollout in range(args.num_rollouts):
        had = list(tasks.rows["seed"])[2 * rollout : 2 * rollout + 2]
        others = [seed for attempt in range(3) for seed in refilled(tasks, rollout, attempt)]
        assert len(set(others)) == 6 and set(others) <= set(range(10_000, 10_007))
        assert not set(others[: 7 - len(set(had))]) & set(had)  # those come back when nothing else is left
        assert others == [seed for attempt in range(3) for seed in refilled(tasks, rollout, attempt)]
    orders = {tuple(refilled(tasks, rollout, 0)) for rollout in range(args.num_rollouts)}
    assert len(orders) > 1


def test_one_seed_in_two_environments_is_two_start_states() -> None:
    tasks = Tasks([LAKE, BANDIT], None, config(num_train_seeds=2))
    starts = [(row["env_index"], row["seed"]) for attempt in (0, 1) for row in tasks.refill_rows(0, attempt)]
    assert sorted(starts) == [(0, 10_000), (0, 10_001), (1, 10_000), (1, 10_001)]


# A user's data set of start states


def dataset(num_rows: int = 12, **columns: Any) -> Dataset:
    return Dataset.from_dict({"env": [LAKE] * num_rows, "seed": list(range(20_000, 20_000 + num_rows)), **columns})


def test_a_long_run_repeats_the_rows_in_a_new_order_each_time() -> None:
    def order(seed: int, steps: int = 10) -> list[int]:
        return list(Tasks(None, dataset(5), config(max_steps=steps, seed=seed)).rows["seed"])

    played = order(1)
    passes = [played[first : first + 5] for first in (0, 5, 10, 15)]
    assert passes[0] == list(range(20_000, 20_005))
    assert all(sorted(each) == passes[0] for each in passes)
    assert len({tuple(each) for each in passes}) > 2
    assert order(1) == played != order(2)
    assert order(1, steps=25)[:20] == played  # a longer run begins like a shorter one


def test_rows_of_an_evaluation_mean_the_runs_environments_or_others() -> None:
    tasks = Tasks(EnvSpec(LAKE, {"size": 5}), None, config())
    seeds = {"seed": [1, 2]}
    alone = tasks.evaluation_rows(Dataset.from_dict(seeds))
    named = tasks.evaluation_rows(Dataset.from_dict({**seeds, "env": [LAKE, BANDIT]}))
    own = tasks.evaluation_rows(Dataset.from_dict({**seeds, "env": [LAKE] * 2, "kwargs": ['{"size": 6}', ""]}))
    assert [list(rows["env_index"]) for rows in (alone, named, own)] == [[0, 0], [0, 1], [2, 3]]
    assert [dict(tasks.evaluated[place].kwargs) for place in range(4)] == [{"size": 5}, {}, {"size": 6}, {}]
    trained = Dataset.from_dict({"seed": [tasks.rows[0]["seed"]]})
    with pytest.raises(OptionError, match="row 0 of eval_dataset has seed 10000, on which the run trains"):
        tasks.evaluation_rows(trained)
