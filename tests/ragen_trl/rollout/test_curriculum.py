"""Curricula: which start states come when, and that nothing else changes."""

import statistics
from typing import Any

import numpy as np

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.seeds import DRAWN, EVALUATION_END, REFILL, training_starts
from ragen_trl.rollout.tasks import Tasks

LAKE = "ragen/FrozenLake-v0"


def config(**changes: Any) -> StarPOConfig:
    options = {
        **{"output_dir": "unused", "use_cpu": True, "report_to": "none", "max_steps": 20},
        **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 2},
        "curriculum_rollouts": 10,
    }
    return StarPOConfig(**{**options, **changes})


def test_by_hand_the_first_rollout_plays_the_easiest_eighth_and_the_last_any() -> None:
    """Of new start states a group has eight to itself, of a fixed set all groups have the same."""
    groups = 100
    args = config(curriculum_rollouts=8, per_device_train_batch_size=2 * groups, max_steps=10)
    hardness = lambda seed: float(-seed)  # noqa: E731  the last ones are the easiest
    new = [seed for _, seed in training_starts(args, hardness=[hardness])]
    for rollout in range(8):
        pool = EVALUATION_END + DRAWN * groups * rollout + np.arange(DRAWN * groups)
        played = new[groups * rollout : groups * (rollout + 1)]
        assert len(set(played)) == groups and set(played) <= set(pool[-groups * (rollout + 1) :].tolist())
        assert rollout == 0 or min(played) < pool[-groups * rollout]  # the share grows
    after = EVALUATION_END + DRAWN * groups * 8
    assert new[groups * 8 :] == list(range(after, after + 2 * groups))  # one after the other, nothing drawn
    fixed = config(curriculum_rollouts=8, per_device_train_batch_size=8, num_train_seeds=64)
    played = [seed for _, seed in training_starts(fixed, hardness=[hardness])]
    for rollout in range(8):
        assert min(played[4 * rollout : 4 * rollout + 4]) >= EVALUATION_END + 64 - 8 * (rollout + 1)
    assert played[32 : 32 + 48] == list(range(EVALUATION_END, EVALUATION_END + 48))  # then passes


def test_a_refill_is_drawn_as_the_rollout_that_it_completes() -> None:
    """Extra rollouts had start states of any difficulty: 2.7 on average in the first one, which asked for 1.1."""
    args = config(max_refills=4, per_device_train_batch_size=32)
    tasks, size = Tasks(LAKE, None, args), args.groups_per_generation
    seeds = {(r, k): [row["seed"] for row in tasks.refill_rows(r, k)] for r in (0, 5, 15) for k in range(4)}
    flat = [seed for each in seeds.values() for seed in each]
    assert len(set(flat)) == len(flat) == 12 * size and min(flat) >= REFILL
    own = list(tasks.rows["seed"])
    for rollout, most in ((0, 0.3), (5, 0.8)):
        asked = statistics.fmean(tasks.difficulty(0, seed) for seed in own[rollout * size : (rollout + 1) * size])
        extra = statistics.fmean(tasks.difficulty(0, seed) for k in range(4) for seed in seeds[rollout, k])
        assert abs(extra - asked) < most
    assert seeds[15, 0] == list(range(min(seeds[15, 0]), min(seeds[15, 0]) + size))  # after the curriculum any
    assert tasks.refill_rows(0, 1) == Tasks(LAKE, None, args).refill_rows(0, 1)
