"""Normalisers of a loss that is added up over micro-batches and processes: a pure function on a rollout's parts.

A mean of means is wrong as soon as micro-batches hold different numbers of tokens or trajectories, and after filtering
they always do. Every micro-batch is therefore told the totals of its *window*: the micro-batches, on all processes,
that make one optimiser step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def add_window_totals(
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
        window_tokens: Sampled tokens, a process's share.
        window_trajectories: Trajectories without filler, a process's share.
        fill: Rows per trajectory, by which a mean over rows has to be multiplied.
        empty: No process has a token in this micro-batch; means over its tokens say nothing.
        skip: The window has nothing to train on. Only where it is a whole step: otherwise it counts as zeros.

    Args:
        micro_batches: What one rollout was split into, all of one size; ``completion_mask`` is 0 in filler rows.
        accumulation_steps: Micro-batches per optimiser step; divides their number, or is a multiple of it.
        processes: Number of processes.
        total: Adds a tensor up over all processes.
    """
    windows = max(1, len(micro_batches) // accumulation_steps)
    repeats = max(1, accumulation_steps // len(micro_batches))
    size = len(micro_batches) // windows
    masks = [batch["completion_mask"] for batch in micro_batches]
    tokens_of = [(batch["completion_mask"] * batch["tool_mask"]).sum() for batch in micro_batches]
    local = [[tokens, mask.any(dim=1).sum()] for tokens, mask in zip(tokens_of, masks, strict=True)]
    counts = total(torch.tensor(local, dtype=torch.float64, device=masks[0].device)).float()  # (micro-batches, 2)
    rows = torch.tensor(float(size * processes * len(masks[0])), device=masks[0].device)
    for index, batch in enumerate(micro_batches):
        first = index // size * size
        tokens, trajectories = counts[first : first + size].sum(dim=0)
        share = repeats / processes
        batch["num_items_in_batch"] = tokens * windows
        batch["window_tokens"] = tokens.clamp(min=1) * share
        batch["window_trajectories"] = trajectories.clamp(min=1) * share
        batch["fill"] = rows / trajectories.clamp(min=1)
        batch["empty"] = counts[index, 0] == 0
        batch["skip"] = (trajectories == 0) & torch.tensor(repeats == 1)
