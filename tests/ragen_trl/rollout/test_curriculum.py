"""Curricula: which start states come when, and that nothing else changes."""

from typing import Any

import numpy as np

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.seeds import DRAWN, EVALUATION_END, training_starts


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
