"""Metrics of a rollout, by hand: means over all processes, what the filter did, and the advantages that are shown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.trainers.metrics import (
    filter_metrics,
    mean_difficulties,
    rollout_means,
    rollout_sums,
    sampler_metrics,
    shown_advantages,
)
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import LAKE, logged, made_up, rollout_of, small_trainer

CPU = torch.device("cpu")


def played(reward: float, turns: int = 1, tokens: int = 2, success: bool = False, **fields: Any) -> Trajectory:
    """Equal turns of one action each; the first one could not be read."""
    made = made_up(*[(1, tokens, reward / turns)] * turns, **fields)
    readable = [place > 0 for place in range(turns)]
    infos = [
        {"success": success, "format_is_valid": valid, "action_is_valid": valid, "num_actions": int(valid)}
        for valid in readable
    ]
    return replace(made, turns=tuple(replace(turn, info=info) for turn, info in zip(made.turns, infos, strict=True)))


def alone(local: torch.Tensor) -> torch.Tensor:
    return local


def rollout_metrics(rows: list[Trajectory], names: list[str], envs: list[str], total: Any = alone) -> dict[str, float]:
    return rollout_means(rollout_sums(rows, names, envs, total, CPU, len(rows)))


def test_means_by_hand() -> None:
    rows = [played(1.0, turns=2, success=True), played(-0.5, turns=4, tokens=3, terminated=False, truncated=True)]
    metrics = rollout_metrics(rows, ["lake", "lake"], ["lake"])
    assert metrics == pytest.approx(
        {
            "success": 0.5,
            "return": 0.25,
            "format_valid": (1 / 2 + 3 / 4) / 2,
            "action_valid": (1 / 2 + 3 / 4) / 2,
            "turns": 3.0,
            "actions": 2.0,
            "reply_tokens": 8.0,
            "truncated": 0.5,
            "rollout/env_failures": 0.0,
        }
    )


def test_failures_of_environments_are_counted_over_all_processes() -> None:
    """Limits and the policy's own faults are none."""
    limits = ["crash", "turns", "timeout", "error", "context", "crash"]
    rows = [played(0.0, terminated=False, truncated=True, limit=limit) for limit in limits]
    assert rollout_metrics(rows, ["lake"] * 6, ["lake"])["rollout/env_failures"] == 3
    twice = rollout_metrics(rows, ["lake"] * 6, ["lake"], lambda local: local * 2)
    assert (twice["rollout/env_failures"], twice["truncated"]) == (6, 1.0)


def test_several_environments_are_also_told_apart() -> None:
    """An environment of which nothing was played has no mean; one that two specs share is one."""
    rows = [played(1.0, success=True), played(0.0), played(5.0, success=True)]
    metrics = rollout_metrics(rows, ["lake", "shop", "lake"], ["lake", "shop", "lake", "rooms"])
    assert metrics["return"] == 2.0
    assert (metrics["lake/return"], metrics["lake/success"]) == (3.0, 1.0)
    assert (metrics["shop/return"], metrics["shop/success"]) == (0.0, 0.0)
    assert not any(key.startswith("rooms/") for key in metrics)
    assert sum(key.startswith("lake/") for key in metrics) == 8


def test_sums_and_counts_stand_in_the_order_of_the_run_s_environments() -> None:
    """So that processes that played different ones may add them up; rows that fill up a batch do not count."""
    rows = [played(1.0, success=True), played(0.5), played(5.0, limit="crash", terminated=False, truncated=True)]
    for names, counted in ((["lake", "shop", "lake"], 2), (["shop", "shop", "shop"], 3), (["lake"] * 3, 0)):
        sums = rollout_sums(rows, names, ["shop", "lake", "shop"], alone, CPU, counted)
        assert [key for key in sums if key.endswith("episodes")] == ["/episodes", "shop/episodes", "lake/episodes"]
        assert sums["/episodes"] == counted == sums["shop/episodes"] + sums["lake/episodes"]
        assert sums["/return"] == sum((1.0, 0.5, 5.0)[:counted])
        assert sums["rollout/env_failures"] == (counted == 3)
    assert rollout_means(sums) == {"rollout/env_failures": 0.0}


def test_an_environment_may_be_called_all() -> None:
    """Regression: its sums were written over those of the whole rollout."""
    metrics = rollout_metrics([played(1.0), played(0.0)], ["all", "lake"], ["all", "lake"])
    assert (metrics["return"], metrics["all/return"], metrics["lake/return"]) == (0.5, 1.0, 0.0)


def test_processes_of_unequal_luck_report_the_same_means() -> None:
    names = ["lake", "shop", "lake", "lake"]
    rows = [played(1.0, success=True), played(2.0), played(0.0), played(6.0, turns=3)]
    local: list[torch.Tensor] = []
    for half in (slice(0, 2), slice(2, 4)):
        rollout_metrics(rows[half], names[half], ["lake", "shop"], lambda sums: local.append(sums) or sums)
    both = sum(local)
    whole = rollout_metrics(rows, names, ["lake", "shop"])
    for half in (slice(0, 2), slice(2, 4)):
        metrics = rollout_metrics(rows[half], names[half], ["lake", "shop"], lambda _: both)
        assert metrics == pytest.approx(whole)
    assert whole["lake/return"] == pytest.approx(7 / 3)


def groups_of(*returns: float, size: int = 2) -> RolloutBatch:
    return rollout_of([made_up((1, 1, reward)) for reward in returns], size)


def test_what_the_filter_did_by_hand() -> None:
    """Standard deviations √2, 0, 2√2, of which the third is kept; variances 2, 0, 8: mean 10/3, deviation √(104/9)."""
    metrics = filter_metrics(groups_of(0.0, 2.0, 1.0, 1.0, 4.0, 0.0), [2])
    assert metrics == pytest.approx(
        {
            "filter/kept_groups": 1,
            "filter/trajectories_sampled": 6,
            "filter/trajectories_used": 2,
            "filter/skipped": 0,
            "filter/in_group_std": 2**0.5,
            "filter/kept_in_group_std": 2 * 2**0.5,
            "filter/dispersion": (104 / 9) ** 0.5 / (10 / 3),
        }
    )


def test_a_filter_that_keeps_nothing_says_so() -> None:
    metrics = filter_metrics(groups_of(1.0, 1.0, 3.0, 3.0), [])
    assert (metrics["filter/skipped"], metrics["filter/trajectories_used"]) == (1, 0)
    assert metrics["filter/kept_in_group_std"] == metrics["filter/in_group_std"] == metrics["filter/dispersion"] == 0


def test_groups_of_one_have_no_spread_to_report() -> None:
    metrics = filter_metrics(groups_of(1.0, 2.0, size=1), [0, 1])
    assert metrics["filter/trajectories_used"] == 2
    assert not any("std" in key or "dispersion" in key for key in metrics)


def test_refills_count_as_sampled() -> None:
    joined = RolloutBatch.joined([groups_of(1.0, 2.0), groups_of(3.0, 5.0)])
    metrics = filter_metrics(joined, [1])
    assert (metrics["filter/trajectories_sampled"], metrics["filter/trajectories_used"]) == (4, 2)


def same(local: list[float]) -> list[float]:
    """Gathers of one process."""
    return local


def of_all(rollout: RolloutBatch, advantages: torch.Tensor, gather: Any = same) -> list[float]:
    """What is shown where every group was kept."""
    return shown_advantages(rollout, range(rollout.num_groups), rollout, advantages, gather)


def test_advantages_of_trajectories_are_shown_as_they_are() -> None:
    assert of_all(groups_of(1.0, 2.0), torch.tensor([-0.5, 0.5])) == [-0.5, 0.5]


def test_a_trajectory_that_was_dropped_is_shown_with_no_advantage() -> None:
    rollout = groups_of(1.0, 2.0, 3.0, 5.0)
    chosen = rollout.select([1])
    assert shown_advantages(rollout, [1], chosen, torch.tensor([-0.5, 0.5]), same) == [0.0, 0.0, -0.5, 0.5]
    assert shown_advantages(rollout, [], rollout.select([]), None, same) == [0.0] * 4


def test_advantages_of_tokens_are_shown_as_the_mean_over_the_sampled_ones() -> None:
    """Completion columns a e a and a: (1 + 3) / 2, and 5; what stands at environment tokens and padding is not seen."""
    rollout = rollout_of([made_up((2, 1, 0.0), (1, 1, 1.0)), made_up((1, 1, 0.0))], 2)
    advantages = torch.tensor([[1.0, 99.0, 3.0], [5.0, 99.0, 99.0]])
    assert of_all(rollout, advantages) == [2.0, 5.0]


def test_means_of_processes_and_refills_come_back_in_the_order_of_the_rows() -> None:
    """Two rollouts of 4 on two processes. Each process reports its own rows, and they are gathered by process."""
    parts = [[made_up((1, 1, 0.0), seed=first + row) for row in range(4)] for first in (0, 4)]
    joined = [RolloutBatch.joined([rollout_of(part, 2, 2, process) for part in parts]) for process in (0, 1)]
    local = [[float(trajectory.seed) for trajectory in one.trajectories] for one in joined]
    assert local == [[0, 1, 4, 5], [2, 3, 6, 7]]
    for one, seeds in zip(joined, local, strict=True):
        asked: list[list[float]] = []

        def gather(means: list[float], asked: list[list[float]] = asked) -> list[float]:
            asked.append(means)
            return local[0] + local[1]

        shown = of_all(one, torch.tensor(seeds)[:, None], gather)
        assert asked == [seeds]
        assert shown == [0, 1, 2, 3, 4, 5, 6, 7]


def test_metrics_of_the_sampler_by_hand_over_two_processes() -> None:
    """Gaps of 0.5 and 0.1, ratios of 2 and 0.5 here; 0.3 and 4 there, which was 7 before it was cut off.

    A token that was not scored has no gap.
    """
    here = (torch.tensor([[0.5, -0.1, 9.0, float("nan")]]), torch.tensor([[2.0, 0.5, 9.0, 1.0]]))
    there = (torch.tensor([[0.3, 9.0, 9.0, 9.0]]), torch.tensor([[4.0, 9.0, 9.0, 9.0]]))
    masks = (torch.tensor([[1, 1, 0, 1]]), torch.tensor([[1, 0, 0, 0]]))
    sent: list[torch.Tensor] = []

    def asked(local: torch.Tensor) -> torch.Tensor:
        sent.append(local)
        return local

    sampler_metrics(*there, torch.tensor([[7.0, 8.0, 8.0, 8.0]]), masks[1], asked)
    raw = torch.tensor([[2.0, 0.5, 8.0, 1.0]])
    found = sampler_metrics(*here, raw, masks[0], lambda local: torch.cat([local, sent.pop(0)]))
    assert found == pytest.approx(
        {
            "sampling/sampling_logp_difference/mean": 0.3,
            "sampling/sampling_logp_difference/max": 0.5,
            "sampling/importance_sampling_ratio/min": 0.5,
            "sampling/importance_sampling_ratio/mean": 7.5 / 4,
            "sampling/importance_sampling_ratio/max": 4.0,
            "sampling/ratio_cut_share": 0.25,
        }
    )
    rows = sampler_metrics(here[0], torch.tensor([[3.0]]), torch.tensor([[5.0]]), masks[0], lambda local: local)
    assert (rows["sampling/importance_sampling_ratio/max"], rows["sampling/ratio_cut_share"]) == (3.0, 1.0)


def test_difficulties_are_averaged_for_each_environment() -> None:
    rows = [made_up((1, 1, 0.0), seed=seed) for seed in (1, 2, 5)]

    def doubled(task: int, seed: int) -> float:
        return 2.0 * seed + 100 * task

    alike = rollout_of(rows, 1, envs=["lake"] * 3).summaries
    assert mean_difficulties(alike, ["lake"], doubled) == {"difficulty": pytest.approx(16 / 3)}
    mixed = rollout_of(rows, 1, envs=["lake", "room", "lake"]).summaries
    assert mean_difficulties(mixed, ["lake", "room"], doubled) == {"lake/difficulty": 6.0, "room/difficulty": 104.0}


def test_a_curriculum_logs_the_difficulty_that_it_plays_while_it_lasts(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, max_steps=4, curriculum_rollouts=3, max_turns=1)
    trainer.train()
    seeds, hard = list(trainer._tasks.rows["seed"]), trainer._tasks.difficulty
    means = [(hard(0, seeds[2 * rollout]) + hard(0, seeds[2 * rollout + 1])) / 2 for rollout in range(4)]
    assert logged(trainer, "difficulty") == means[:3] and len(set(means)) > 1
    plain = small_trainer(tmp_path, LAKE, max_steps=1, max_turns=1)
    plain.train()
    assert not logged(plain, "difficulty")
