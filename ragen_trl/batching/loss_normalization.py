"""Normalisers of a loss that is added up over micro-batches and processes: a pure function on a rollout's parts.

A mean of means is wrong as soon as micro-batches hold different numbers of tokens or trajectories, and after filtering
they always do. Every micro-batch is therefore told the totals of its *window*: the micro-batches, on all processes,
that make one optimiser step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def add_step_totals(
    micro_batches: Sequence[dict[str, Any]],
    accumulation_steps: int,
    processes: int,
    total: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write each window's totals into its micro-batches.

    A sum over a window's micro-batches, divided by one of the numbers called "a process's share" and averaged over
    processes (as DDP does with gradients), is the mean over the window. If a step takes several rollouts, each of them
    is a window of its own and weighs the same.

    Keys added:
        num_items_in_batch: What TRL's token-normalised losses divide by, such that they divide by the window's tokens.
        step_tokens: Sampled tokens, a process's share.
        step_trajectories: Trajectories without filler, a process's share; of rows that are parts of trajectories
            the sum of these parts.
        fill: Rows per trajectory, by which a mean over rows has to be multiplied to be one over trajectories.
        empty: No process has a token in this micro-batch; means over its tokens say nothing.
        token_share: By what a mean over this micro-batch's tokens has to be multiplied, such that the mean of the
            window's non-empty micro-batches is the mean over its tokens.
        skip: The window has nothing to train on. Only where it is a whole step: otherwise it counts as zeros.

    Args:
        micro_batches: What one rollout was split into, all of one size; ``completion_mask`` is 0 in filler rows.
            ``trajectory_share``, if there is one, says which part of a trajectory a row is; otherwise it is all of it.
        accumulation_steps: Micro-batches per optimiser step; divides their number, or is a multiple of it.
        processes: Number of processes.
        total: Adds a tensor up over all processes.
    """
    size = micro_batches_per_step(len(micro_batches), accumulation_steps)
    windows = len(micro_batches) // size
    repeats = max(1, accumulation_steps // len(micro_batches))
    masks = [batch["completion_mask"] for batch in micro_batches]
    tokens_of = [(batch["completion_mask"] * batch["tool_mask"]).sum() for batch in micro_batches]
    whole = [batch.get("trajectory_share", mask.any(dim=1)) for batch, mask in zip(micro_batches, masks, strict=True)]
    local = [[tokens, shares.sum()] for tokens, shares in zip(tokens_of, whole, strict=True)]
    counts = total(torch.tensor(local, dtype=torch.float64, device=masks[0].device)).float()  # (micro-batches, 2)
    rows = torch.tensor(float(size * processes * len(masks[0])), device=masks[0].device)
    for index, batch in enumerate(micro_batches):
        first = index // size * size
        window = counts[first : first + size]
        tokens, trajectories = window.sum(dim=0)
        share = repeats / processes
        batch["num_items_in_batch"] = tokens * windows
        batch["step_tokens"] = tokens.clamp(min=1) * share
        divisor = torch.where(trajectories > 0, trajectories, 1.0)  # parts of trajectories may be less than one
        batch["step_trajectories"] = divisor * share
        batch["fill"] = rows / divisor
        batch["empty"] = counts[index, 0] == 0
        batch["token_share"] = counts[index, 0] * (window[:, 0] > 0).sum() / tokens.clamp(min=1)
        batch["skip"] = (trajectories == 0) & torch.tensor(repeats == 1)


def micro_batches_per_step(micro_batches: int, accumulation_steps: int) -> int:
    """Micro-batches in each window of a rollout: those of an optimiser step, or all where a step takes several."""
    return min(micro_batches, accumulation_steps)
