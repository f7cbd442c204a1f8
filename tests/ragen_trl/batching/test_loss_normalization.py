"""Totals of an optimizer step: however a rollout is split, the parts of a loss add up to the mean over the step."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ragen_trl.batching.loss_normalization import add_step_totals

SIZE, LENGTH = 3, 5


def rollout(seed: int, num_batches: int, filler: float = 0.3) -> list[dict[str, Any]]:
    """Micro-batches of 3 rows of random lengths, some of them filler, with a loss for every token."""
    rng = random.Random(seed)
    batches = []
    for _ in range(num_batches):
        lengths = [0 if rng.random() < filler else rng.randint(1, LENGTH) for _ in range(SIZE)]
        mask = torch.tensor([[1] * length + [0] * (LENGTH - length) for length in lengths])
        tools = torch.tensor([[1] + [rng.randint(0, 1) for _ in range(LENGTH - 1)] for _ in range(SIZE)])
        losses = torch.tensor([[rng.uniform(-1, 1) for _ in range(LENGTH)] for _ in range(SIZE)])
        batches.append({"completion_mask": mask, "tool_mask": tools, "losses": losses})
    return batches


def with_totals(processes: list[list[dict[str, Any]]], accumulation_steps: int) -> list[list[dict[str, Any]]]:
    """What every process's micro-batches look like after ``add_step_totals``, as if they ran side by side."""
    shares: list[torch.Tensor] = []

    def asked(local: torch.Tensor) -> torch.Tensor:
        shares.append(local.clone())
        return local

    for batches in processes:
        add_step_totals(batches, accumulation_steps, len(processes), asked)
    whole = torch.stack(shares).sum(dim=0)
    for batches in processes:
        add_step_totals(batches, accumulation_steps, len(processes), lambda _: whole)
    return processes


def accumulated(
    processes: list[list[dict[str, Any]]], steps: int, loss: Callable[[dict[str, Any]], torch.Tensor]
) -> list[float]:
    """Each step's loss as a training loop adds it up: over micro-batches, and averaged over processes."""
    size = len(processes[0]) // steps
    return [
        sum(loss(batch).item() for batches in processes for batch in batches[step * size : (step + 1) * size])
        / len(processes)
        for step in range(steps)
    ]


def rows_of(processes: list[list[dict[str, Any]]], steps: int) -> list[list[list[float]]]:
    """The losses of each step's trajectories, filler left out: a list of tokens for each trajectory."""
    size = len(processes[0]) // steps
    return [
        [
            row[used.bool()].tolist()
            for batches in processes
            for batch in batches[step * size : (step + 1) * size]
            for row, used, whole in zip(
                batch["losses"], batch["completion_mask"] * batch["tool_mask"], batch["completion_mask"], strict=True
            )
            if whole.any()
        ]
        for step in range(steps)
    ]


def sampled(batch: dict[str, Any]) -> torch.Tensor:
    return batch["completion_mask"] * batch["tool_mask"]


SHAPES = [(1, 1, 1), (6, 6, 1), (6, 3, 2), (6, 1, 6), (8, 4, 2)]  # micro-batches, of them a step's, steps


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("num_batches", "accumulation", "steps"), SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_token_sums_add_up_to_the_mean_over_a_steps_tokens(
    num_batches: int, accumulation: int, steps: int, processes: int, seed: int
) -> None:
    parts = with_totals([rollout(seed * 10 + p, num_batches) for p in range(processes)], accumulation)

    def ours(batch: dict[str, Any]) -> torch.Tensor:
        return (batch["losses"] * sampled(batch)).sum() / batch["step_tokens"]

    def as_trl(batch: dict[str, Any]) -> torch.Tensor:
        """Its loss_type 'dapo' of one micro-batch."""
        divisor = batch["num_items_in_batch"].clamp(min=1.0) / processes * accumulation / num_batches
        return (batch["losses"] * sampled(batch)).sum() / divisor

    for step, rows in enumerate(rows_of(parts, steps)):
        tokens = [value for row in rows for value in row]
        expected = sum(tokens) / max(1, len(tokens))
        for loss in (ours, as_trl):
            assert accumulated(parts, steps, loss)[step] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("num_batches", "accumulation", "steps"), SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_row_means_add_up_to_the_mean_over_a_steps_trajectories(
    num_batches: int, accumulation: int, steps: int, processes: int, seed: int
) -> None:
    parts = with_totals([rollout(seed * 10 + p, num_batches) for p in range(processes)], accumulation)

    def means(batch: dict[str, Any]) -> torch.Tensor:
        mask = sampled(batch)
        return (batch["losses"] * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)

    def ours(batch: dict[str, Any]) -> torch.Tensor:
        return means(batch).sum() / batch["step_trajectories"]

    def as_trl(batch: dict[str, Any]) -> torch.Tensor:
        """Its loss_type 'grpo': a mean over rows, filler included, over the micro-batches of a step."""
        return means(batch).mean() / accumulation * batch["fill"]

    for step, rows in enumerate(rows_of(parts, steps)):
        expected = sum(sum(row) / len(row) for row in rows) / max(1, len(rows))
        for loss in (ours, as_trl):
            assert accumulated(parts, steps, loss)[step] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("processes", [1, 2])
def test_several_rollouts_a_step_weigh_the_same(processes: int) -> None:
    """Three rollouts of 2 micro-batches make a step of 6: the mean of the three means, whatever their tokens."""
    rollouts = [
        with_totals([rollout(10 * number + p, 2) for p in range(processes)], accumulation_steps=6)
        for number in range(3)
    ]
    for normaliser in ("step_tokens", "trl"):
        total, expected = 0.0, 0.0
        for parts in rollouts:
            (rows,) = rows_of(parts, 1)
            tokens = [value for row in rows for value in row]
            expected += sum(tokens) / len(tokens) / 3
            for batch in (batch for batches in parts for batch in batches):
                trl = batch["num_items_in_batch"] / processes * 6 / 2
                divisor = trl if normaliser == "trl" else batch["step_tokens"]
                total += ((batch["losses"] * sampled(batch)).sum() / divisor).item() / processes
        assert total == pytest.approx(expected, abs=1e-6)
    for parts in rollouts:
        assert not any(batch["skip"] for batches in parts for batch in batches)


def test_counts_by_hand() -> None:
    """Two steps of 2 micro-batches of 2 rows: 3 trajectories with 1 + 2 + 2 sampled tokens, then only filler."""
    masks = [[[1, 1], [1, 1]], [[0, 0], [1, 1]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]]
    tools = [[[1, 0], [1, 1]], [[1, 1], [1, 1]], [[1, 1], [1, 1]], [[1, 1], [1, 1]]]
    batches: list[dict[str, Any]] = [
        {"completion_mask": torch.tensor(mask), "tool_mask": torch.tensor(tool)}
        for mask, tool in zip(masks, tools, strict=True)
    ]
    add_step_totals(batches, accumulation_steps=2, processes=1, total=lambda local: local)
    for batch in batches[:2]:
        assert batch["num_items_in_batch"].item() == 5 * 2  # TRL divides by the number of steps again
        assert (batch["step_tokens"].item(), batch["step_trajectories"].item()) == (5, 3)
        assert batch["fill"].item() == pytest.approx(4 / 3)
        trajectories = int(batch["completion_mask"].any(dim=1).sum())
        assert batch["trajectory_weight"].item() == pytest.approx(2 * trajectories / 3)
        assert not batch["skip"]
    for batch in batches[2:]:
        assert batch["skip"]
        assert (batch["step_tokens"].item(), batch["step_trajectories"].item()) == (1, 1)  # nothing divides by 0


def test_a_process_without_trajectories_does_not_skip_a_step_of_others() -> None:
    empty, full = rollout(0, 2, filler=1.0), rollout(1, 2, filler=0.0)
    with_totals([empty, full], accumulation_steps=2)
    assert not any(batch["skip"] for batch in [*empty, *full])
    assert {batch["step_trajectories"].item() for batch in [*empty, *full]} == {3.0}  # 6 on 2 processes


@pytest.mark.parametrize("begun", [False, True])
def test_a_step_of_several_rollouts_counts_an_empty_one_as_zeros(begun: bool) -> None:
    """It is skipped unless an earlier rollout of the step has something to train on."""
    batches = rollout(0, 2, filler=1.0)
    add_step_totals(batches, accumulation_steps=4, processes=1, total=lambda local: local, begun=begun)
    assert [bool(batch["skip"]) for batch in batches] == [not begun] * 2
    assert all(batch["step_tokens"].item() == 2 for batch in batches)


def test_processes_add_their_counts_up_in_float64() -> None:
    """A large run has more than 2²⁴ tokens in a step, which float32 cannot count."""
    (batch,) = batches = rollout(0, 1, filler=0.0)
    asked: list[torch.Tensor] = []

    def total(local: torch.Tensor) -> torch.Tensor:
        asked.append(local)
        return local

    add_step_totals(batches, 1, 1, total)
    (counts,) = asked
    assert counts.dtype == torch.float64
    assert counts[0, :2].tolist() == [int(sampled(batch).sum()), SIZE]


def test_a_micro_batch_is_empty_only_where_every_process_has_filler_there() -> None:
    """What it logs is then left out, on all processes alike."""
    empty, half = rollout(0, 2, filler=1.0), [*rollout(1, 1, filler=1.0), *rollout(2, 1, filler=0.0)]
    with_totals([empty, half], accumulation_steps=2)
    assert [bool(batch["empty"]) for batch in empty] == [bool(batch["empty"]) for batch in half] == [True, False]
