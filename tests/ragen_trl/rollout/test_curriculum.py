"""Curricula: which start states come when, and that nothing else changes."""

import statistics
from collections import Counter
from typing import Any

import pytest

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.rollout.curriculum import DRAWN, difficulty_of, new_seeds, seeds_of_a_set
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.seeds import REFILL
from ragen_trl.rollout.start_states import StartStateError
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


def test_difficulty_rises_over_the_curriculum_and_then_stays() -> None:
    args = config(max_steps=30, per_device_train_batch_size=32)
    tasks = Tasks(LAKE, None, args)
    hardness = difficulty_of(tasks.specs[0], args)
    each = [hardness(seed) for seed in tasks.rows["seed"]]
    size = args.groups_per_generation
    means = [statistics.fmean(each[first : first + 5 * size]) for first in range(0, len(each), 5 * size)]
    assert means[0] < means[1] - 0.3 and abs(means[3] - means[4]) < 0.8 and means[0] < min(means[2:]) - 0.5
    assert list(tasks.rows["seed"]) == sorted(set(tasks.rows["seed"]))  # ascending, none twice


def test_rows_are_the_same_in_every_process_and_without_a_curriculum_as_before() -> None:
    assert list(Tasks(LAKE, None, config()).rows["seed"]) == list(Tasks(LAKE, None, config()).rows["seed"])
    assert list(Tasks(LAKE, None, config(seed=1)).rows["seed"]) != list(Tasks(LAKE, None, config()).rows["seed"])
    plain = Tasks(LAKE, None, config(curriculum_rollouts=0)).rows["seed"]
    assert list(plain) == list(range(10_000, 10_080))


def test_a_fixed_set_is_played_from_its_easy_end() -> None:
    args = config(num_train_seeds=16, max_steps=12, curriculum_rollouts=4)
    hardness = lambda seed: seed % 16  # noqa: E731
    seeds = seeds_of_a_set(args, [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4, range(160, 176), hardness, [3])
    for rollout in range(4):
        chosen = seeds[4 * rollout : 4 * rollout + 4]
        assert len(set(chosen)) == 4 and max(chosen) < 160 + 4 * (rollout + 1)
    rows = list(Tasks(LAKE, None, args).rows["seed"])
    assert len(rows) == 48 and set(rows) <= set(range(10_000, 10_016))
    assert not args.shuffle_dataset


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


def test_a_refill_from_a_fixed_set_stays_at_its_easy_end() -> None:
    args = config(num_train_seeds=32, max_steps=12, curriculum_rollouts=8, max_refills=3)
    tasks, size = Tasks(LAKE, None, args), args.groups_per_generation
    ranked = sorted(range(10_000, 10_032), key=lambda seed: (tasks.difficulty(0, seed), seed))
    own = list(tasks.rows["seed"])
    for rollout in range(8):
        mine, easy = own[rollout * size : (rollout + 1) * size], set(ranked[: 4 * (rollout + 1)])
        extra = [row["seed"] for attempt in range(3) for row in tasks.refill_rows(rollout, attempt)]
        others = (easy & set(own)) - set(mine)
        assert set(extra) <= easy and set(extra[: len(others)]) == others & set(extra)  # first those not played yet
        assert len(set(extra[:size])) == size
    later = {row["seed"] for attempt in range(8) for row in tasks.refill_rows(8, attempt)}
    assert later == set(own)  # after the curriculum any of the run


def test_refills_of_several_environments_are_eased_in_each() -> None:
    specs = [EnvSpec(LAKE, {"size": 4}), EnvSpec(LAKE, {"size": 8})]
    tasks = Tasks(specs, None, config(max_refills=2, per_device_train_batch_size=64, env_weights=[3, 1]))
    rows = [row for attempt in range(2) for row in tasks.refill_rows(0, attempt)]
    assert [row["env_index"] for row in rows[:32]] == list(tasks.rows["env_index"][:32])
    for env in (0, 1):
        mine = [tasks.difficulty(env, row["seed"]) for row in rows if row["env_index"] == env]
        assert statistics.fmean(mine) + 0.5 < statistics.fmean(tasks.difficulty(env, seed) for seed in range(400))


def test_several_environments_have_a_curriculum_each() -> None:
    args = config(max_steps=8)
    easy, hard = EnvSpec(LAKE, {"size": 4}), EnvSpec(LAKE, {"size": 8})
    tasks = Tasks([easy, hard], None, args)
    for index, spec in enumerate((easy, hard)):
        alone = Tasks(spec, None, config(max_steps=8))
        mine = [seed for seed, env in zip(tasks.rows["seed"], tasks.rows["env_index"], strict=True) if env == index]
        hardness = difficulty_of(spec, args)
        early = statistics.fmean(map(hardness, mine[:4]))
        late = statistics.fmean(hardness(seed) for seed in range(10_000, 10_200))
        assert early < late and alone.rows["seed"][0] >= 10_000


def test_what_has_no_difficulty_or_no_order_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="curriculum_rollouts is 10, but ragen/Bandit-v0 does not say how hard"):
        Tasks("ragen/Bandit-v0", None, config())
    with pytest.raises(ValueError, match="curriculum_rollouts is 10, but in passes over start states each comes once"):
        config(max_steps=None, num_train_epochs=1, num_train_seeds=64)
    with pytest.raises(ValueError, match="curriculum_rollouts is -1; it cannot be negative"):
        config(curriculum_rollouts=-1)
    from datasets import Dataset

    rows = Dataset.from_list([{"env": LAKE, "seed": 10_000 + row} for row in range(4)])
    with pytest.raises(StartStateError, match="curriculum_rollouts is 10, but the rows of train_dataset decide that"):
        Tasks(None, rows, config())
