"""Totals of an optimizer step: however a rollout is split, the parts of a loss add up to the mean over the step."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ragen_trl.batching.micro_batches import add_step_totals

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
        shares = mask.any(dim=1).float()
        batches.append({"completion_mask": mask, "tool_mask": tools, "losses": losses, "trajectory_share": shares})
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
def test_parts_add_up_to_means_over_a_steps_tokens_and_over_its_trajectories(
    num_batches: int, accumulation: int, steps: int, processes: int, seed: int
) -> None:
    parts = with_totals([rollout(seed * 10 + p, num_batches) for p in range(processes)], accumulation)

    def total(batch: dict[str, Any]) -> torch.Tensor:
        return (batch["losses"] * sampled(batch)).sum()

    def means(batch: dict[str, Any]) -> torch.Tensor:
        return (batch["losses"] * sampled(batch)).sum(dim=1) / sampled(batch).sum(dim=1).clamp(min=1)

    def of_its_own(batch: dict[str, Any]) -> torch.Tensor:
        """A mean over a micro-batch's tokens, on all processes, as a router's loss is weighed."""
        return total(batch) / sampled(batch).sum().clamp(min=1) * batch["token_share"]

    def of_tokens(batch: dict[str, Any]) -> torch.Tensor:
        return total(batch) / batch["step_tokens"]

    def of_rows(batch: dict[str, Any]) -> torch.Tensor:
        return means(batch).sum() / batch["step_trajectories"]

    for step, rows in enumerate(rows_of(parts, steps)):
        tokens = [value for row in rows for value in row]
        expected = sum(tokens) / max(1, len(tokens)), sum(sum(row) / len(row) for row in rows) / max(1, len(rows))
        for mean, loss in zip(expected, (of_tokens, of_rows), strict=True):
            assert accumulated(parts, steps, loss)[step] == pytest.approx(mean, abs=1e-6)
        if processes == 1:
            assert accumulated(parts, steps, of_its_own)[step] == pytest.approx(expected[0], abs=1e-6)


def test_a_micro_batch_is_empty_only_where_every_process_has_filler_there() -> None:
    """What it logs is then left out, on all processes alike."""
    empty, half = rollout(0, 2, filler=1.0), [*rollout(1, 1, filler=1.0), *rollout(2, 1, filler=0.0)]
    with_totals([empty, half], accumulation_steps=2)
    assert [bool(batch["empty"]) for batch in empty] == [bool(batch["empty"]) for batch in half] == [True, False]
