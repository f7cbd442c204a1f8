"""Selection: the filter of a configuration, for one environment, for several, with refills, and its filler rows."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import StarPOConfig
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.credit.selection import uncertain_groups
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import logged, lottery, made_up, rollout_of, small_trainer


def config(groups: int, **options: Any) -> StarPOConfig:
    """A rollout of so many groups of 2."""
    size = {"per_device_train_batch_size": 2 * groups, "gradient_accumulation_steps": 1, "num_generations": 2}
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none"}
    return StarPOConfig(output_dir="unused", **{**size, **quiet, **options})


def groups_of(spreads: list[float], envs: str = "") -> RolloutBatch:
    """Groups of two whose returns differ by so much, in environments named by letters."""
    played = [made_up((1, 1, reward)) for spread in spreads for reward in (0.0, spread)]
    names = [name for name in envs for _ in range(2)] or None
    return rollout_of(played, 2, envs=names)


def test_the_most_uncertain_groups_by_hand() -> None:
    rollout = groups_of([1.0, 0.0, 3.0, 2.0])
    assert uncertain_groups(rollout, config(4, filter_ratio=0.5)) == [2, 3]
    assert uncertain_groups(rollout, config(4, filter_ratio=0.25)) == [2]
    assert uncertain_groups(rollout, config(4)) == [0, 1, 2, 3]


def test_groups_of_one_are_all_kept() -> None:
    alone = rollout_of([made_up((1, 1, reward)) for reward in (0.0, 1.0, 0.0)], 1)
    assert uncertain_groups(alone, config(3, num_generations=1, advantage="gae")) == [0, 1, 2]


def test_the_share_of_the_spread_by_hand() -> None:
    """3 + 2 of 6 are more than 0.8 of the spread; its half is reached by 3 alone."""
    rollout = groups_of([1.0, 0.0, 3.0, 2.0])
    assert uncertain_groups(rollout, config(4, filter_strategy="top_p", filter_ratio=0.8)) == [2, 3]
    assert uncertain_groups(rollout, config(4, filter_strategy="top_p", filter_ratio=0.5)) == [2]


def test_the_share_of_the_variance_by_hand() -> None:
    """4 of 6 is 0.67 of the spread, 16 of 18 is 0.89 of the variance: the same share takes fewer groups."""
    rollout = groups_of([1.0, 4.0, 0.0, 1.0])
    assert uncertain_groups(rollout, config(4, filter_strategy="top_p", filter_ratio=0.8)) == [0, 1]
    assert uncertain_groups(rollout, config(4, filter_strategy="top_p_variance", filter_ratio=0.8)) == [1]
    assert uncertain_groups(rollout, config(4, filter_strategy="top_p_variance", filter_ratio=0.93)) == [0, 1]


def test_environments_are_filtered_apart() -> None:
    """What pays a hundred times as much would otherwise be all that is trained on."""
    rollout = groups_of([1.0, 300.0, 2.0, 100.0, 3.0, 200.0], "abaaab")
    assert rollout.group_tasks == [0, 1, 0, 0, 0, 1]
    kept = uncertain_groups(rollout, config(6, filter_ratio=0.5))
    assert kept == [1, 3, 4]  # of four the best two, of two the best one


def test_every_environment_keeps_a_group() -> None:
    rollout = groups_of([1.0, 2.0, 3.0, 0.5], "aaab")
    assert uncertain_groups(rollout, config(4, filter_ratio=0.25)) == [2, 3]


def test_no_more_groups_are_kept_than_a_rollout_has() -> None:
    """Two rollouts of two groups, three environments: the best of the first two that were played."""
    rollout = groups_of([1.0, 0.5, 200.0, 300.0], "abcc")
    assert uncertain_groups(rollout, config(2, filter_ratio=0.5, max_refills=1)) == [0, 1]
    assert uncertain_groups(rollout, config(3, max_refills=1)) == [0, 1, 3]


def test_an_environment_without_spread_keeps_none() -> None:
    rollout = groups_of([1.0, 0.0, 2.0, 0.0], "abab")
    assert uncertain_groups(rollout, config(4, filter_ratio=0.5)) == [2]


def test_an_environment_with_one_group_keeps_it_only_for_its_spread() -> None:
    args = config(4, filter_ratio=0.25)
    assert uncertain_groups(groups_of([0.0, 0.0, 0.0, 0.0], "abcd"), args) == []
    assert uncertain_groups(groups_of([0.0, 2.0, 0.0, 0.0], "abcd"), args) == [1]


def test_the_share_of_the_spread_is_taken_in_every_environment() -> None:
    rollout = groups_of([1.0, 300.0, 9.0, 100.0], "abab")
    assert uncertain_groups(rollout, config(4, filter_strategy="top_p", filter_ratio=0.7)) == [1, 2]


def test_groups_of_refills_compete_for_the_places_of_one_rollout() -> None:
    """4 groups a rollout, half of which are trained on; 12 were sampled."""
    spreads = [1.0, 0.0, 0.0, 0.0, 0.5, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0]
    args = config(4, filter_ratio=0.5, max_refills=2)
    assert uncertain_groups(groups_of(spreads[:4]), args) == [0]
    assert uncertain_groups(groups_of(spreads[:8]), args) == [0, 5]
    assert uncertain_groups(groups_of(spreads), args) == [5, 10]


def test_refills_with_a_ratio_of_one_drop_groups_without_spread() -> None:
    """DAPO's dynamic sampling: as many groups as a rollout has, all of which have something to teach."""
    args = config(4, max_refills=1)
    assert uncertain_groups(groups_of([1.0, 0.0, 2.0, 0.0]), args) == [0, 2]
    assert uncertain_groups(groups_of([1.0, 0.0, 2.0, 0.0, 0.0, 0.5, 0.0, 0.0]), args) == [0, 2, 5]
    assert uncertain_groups(groups_of([1.0, 0.0, 2.0, 0.0, 3.0, 0.5, 4.0, 5.0]), args) == [2, 4, 6, 7]
    assert uncertain_groups(groups_of([0.0] * 8), args) == []


@pytest.mark.parametrize("ratio", [0.25, 0.4, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("envs", ["aaaaaaaa", "aaaabbbb", "aaaaaabb", "aaabbbcc"])
def test_where_every_group_has_spread_a_rollout_needs_no_refill(envs: str, ratio: float) -> None:
    """Regression: shares were rounded down in every environment, so that their sum never reached what was wanted."""
    args = config(8, filter_ratio=ratio, max_refills=1)
    kept = uncertain_groups(groups_of([1.0 + place for place in range(8)], envs), args)
    assert len(kept) >= args.groups_per_update


@pytest.mark.parametrize("make", [small_trainer, astar])
def test_a_micro_batch_of_filler_is_not_in_the_logged_entropy(tmp_path: Path, make: Any) -> None:
    """One of three groups is kept: with three micro-batches the last holds filler alone, whose entropy would be 0.

    Replies of one token, so that the mean over micro-batches is the mean over tokens.
    """
    options = {"filter_ratio": 1 / 3, "max_reply_length": 1, "num_generations": 4, "max_steps": 1}
    entropies = []
    for size, count in ((12, 1), (4, 3)):
        batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": count}
        trainer = make(tmp_path / str(count), lottery(), **options, **batches)
        trainer.train()
        assert logged(trainer, "filter/trajectories_used") == [4]
        entropies += logged(trainer, "entropy")
    assert entropies[1] == pytest.approx(entropies[0], rel=1e-5)
    assert entropies[0] > 1
