"""Micro-batches of similar lengths, by hand; however a rollout is split, the parts of a loss add up to the mean."""

import random
from typing import Any

import pytest
import torch

from ragen_trl.batching.batch import select_rows
from ragen_trl.batching.micro_batches import add_step_totals, micro_batches
from tests.support.ragen_trl.trainers import generation_batch, made_up


def test_a_steps_rows_are_sorted_and_every_part_is_cut_to_its_longest_by_hand() -> None:
    """Prompts of 1 and completions of 5, 2, 9, 3 | 4, 1, 1, 8 tokens: two steps of two micro-batches of two."""
    played = [made_up((1, length, 0.0)) for length in (5, 2, 9, 3, 4, 1, 1, 8)]
    batch = generation_batch(played) | {"advantages": torch.arange(8.0)}
    parts = micro_batches(batch, 4, accumulation_steps=2, batch_size=2)
    assert [part["completion_mask"].sum(dim=1).tolist() for part in parts] == [[2, 3], [5, 9], [1, 1], [4, 8]]
    assert [part["advantages"].tolist() for part in parts] == [[1, 3], [0, 2], [5, 6], [4, 7]]
    for part, width in zip(parts, (3, 9, 1, 8), strict=True):
        for key in ("completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps"):
            assert part[key].shape == (2, width)
        assert part["prompt_ids"].shape == part["prompt_mask"].shape == (2, 1)


def kept_rows(count: int, rows: int) -> dict[str, Any]:
    """A rollout of which rows with completions of 2, 3, … tokens were kept, and filler."""
    played = [made_up((1, 2 + place, 0.0)) for place in range(max(1, count))]
    return select_rows(generation_batch(played), range(count), rows)


def completions(parts: list[dict[str, Any]]) -> list[list[int]]:
    return [part["completion_mask"].sum(dim=1).tolist() for part in parts]


def test_kept_rows_fill_micro_batches_and_the_others_are_empty_by_hand() -> None:
    """A quarter of 32 rows in 8 micro-batches of 4: two full ones instead of eight of one row."""
    parts = micro_batches(kept_rows(8, 8), 8, accumulation_steps=8, batch_size=4)
    assert completions(parts) == [[0]] * 6 + [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert [part["completion_ids"].shape for part in parts] == [(1, 1)] * 6 + [(4, 5), (4, 9)]
    add_step_totals(parts, 8, 1, lambda local: local)
    assert [bool(part["empty"]) for part in parts] == [True] * 6 + [False] * 2


@pytest.mark.parametrize(("counts", "accumulation"), [((7, 8), 6), ((7, 8), 3), ((0, 5), 6), ((3, 3), 3), ((0, 0), 6)])
def test_processes_with_unequal_rows_compute_micro_batches_of_one_size(
    counts: tuple[int, int], accumulation: int
) -> None:
    """Losses gather over rows. The steps of each process get equally many trajectories."""
    updates = 6 // accumulation
    of_updates = torch.tensor([len(part) for count in counts for part in torch.arange(count).tensor_split(updates)])
    both = [micro_batches(kept_rows(count, 12), 6, accumulation, 2, lambda _: of_updates) for count in counts]
    assert [len(part["prompt_ids"]) for part in both[0]] == [len(part["prompt_ids"]) for part in both[1]]
    sizes = []
    for first in range(0, 6, accumulation):
        here = [parts[first : first + accumulation] for parts in both]
        sizes.append([sum(length > 0 for row in completions(parts) for length in row) for parts in here])
        assert all(len(row) <= 2 for parts in here for row in completions(parts))
        filled = [any(map(any, pair)) for pair in zip(*map(completions, here), strict=True)]
        assert filled == sorted(filled)  # the last one, where gradients are exchanged, is empty only if all are
    for count, of_process in zip(counts, zip(*sizes, strict=True), strict=True):
        assert sum(of_process) == count and max(of_process) - min(of_process) <= 1


# Totals of an optimizer step: the parts of a loss add up to the mean over the step


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


def sampled(batch: dict[str, Any]) -> torch.Tensor:
    return batch["completion_mask"] * batch["tool_mask"]


def total(batch: dict[str, Any]) -> torch.Tensor:
    return (batch["losses"] * sampled(batch)).sum()


def means(batch: dict[str, Any]) -> torch.Tensor:
    """(3,) the mean of each trajectory, 0 for filler."""
    return (batch["losses"] * sampled(batch)).sum(dim=1) / sampled(batch).sum(dim=1).clamp(min=1)


SHAPES = [(1, 1), (6, 6), (6, 3), (6, 1), (8, 4)]  # micro-batches, of them a step's


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("num_batches", "accumulation"), SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_parts_add_up_to_means_over_a_steps_tokens_and_over_its_trajectories(
    num_batches: int, accumulation: int, processes: int, seed: int
) -> None:
    """As a training loop adds up losses: over the micro-batches of a step, and averaged over processes."""
    parts = with_totals([rollout(seed * 10 + p, num_batches) for p in range(processes)], accumulation)
    for first in range(0, num_batches, accumulation):
        here = [batch for batches in parts for batch in batches[first : first + accumulation]]
        tokens = sum(int(sampled(batch).sum()) for batch in here)
        rows = sum(int(batch["completion_mask"].any(dim=1).sum()) for batch in here)
        of_tokens = sum(total(batch).item() for batch in here) / max(1, tokens)
        of_rows = sum(means(batch).sum().item() for batch in here) / max(1, rows)
        found = sum((total(batch) / batch["step_tokens"]).item() for batch in here) / processes
        assert found == pytest.approx(of_tokens, abs=1e-6)
        found = sum((means(batch).sum() / batch["step_trajectories"]).item() for batch in here) / processes
        assert found == pytest.approx(of_rows, abs=1e-6)
        if processes == 1:  # a mean over a micro-batch's own tokens, as a router's loss is weighed
            own = [total(batch) / sampled(batch).sum().clamp(min=1) * batch["token_share"] for batch in here]
            assert sum(own).item() == pytest.approx(of_tokens, abs=1e-6)  # type: ignore[union-attr]


def test_a_micro_batch_is_empty_only_where_every_process_has_filler_there() -> None:
    """What it logs is then left out, on all processes alike."""
    empty, half = rollout(0, 2, filler=1.0), [*rollout(1, 1, filler=1.0), *rollout(2, 1, filler=0.0)]
    with_totals([empty, half], accumulation_steps=2)
    assert [bool(batch["empty"]) for batch in empty] == [bool(batch["empty"]) for batch in half] == [True, False]
