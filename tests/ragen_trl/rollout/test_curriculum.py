"""Curricula: which start states come when, and that nothing else changes."""

import statistics
from collections import Counter
from typing import Any

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.curriculum import DRAWN, new_seeds
from ragen_trl.rollout.seeds import REFILL
from ragen_trl.rollout.tasks import Tasks

LAKE = "ragen/FrozenLake-v0"


def config(**changes: Any) -> StarPOConfig:
    options = {
        **{"output_dir": "unused", "use_cpu": True, "report_to": "none", "max_steps": 20},
        **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 2},
        "curriculum_rollouts": 10,
    }
    return StarPOConfig(**{**options, **changes})


def test_by_hand_the_first_rollout_plays_the_easiest_of_eight_and_the_last_any() -> None:
    args = config(curriculum_rollouts=4)
    hardness = lambda seed: -seed  # noqa: E731  the last of eight is the easiest
    groups = 400
    seeds = new_seeds(args, [0] * groups + [1] * groups + [3] * groups + [4] * groups, 1000, hardness, [0])
    places = [(seed - 1000 - DRAWN * group) for group, seed in enumerate(seeds[: 3 * groups])]
    first, second, last = (Counter(places[k * groups : (k + 1) * groups]) for k in range(3))
    assert set(first) == {6, 7} and set(second) == {4, 5, 6, 7}  # the easiest 2 and 4 of 8
    assert set(last) == set(range(8)) and max(last.values()) < 2 * min(last.values())
    after = 1000 + DRAWN * 3 * groups
    assert seeds[3 * groups :] == list(range(after, after + groups))  # one after the other, nothing drawn


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
