"""What a loss is divided by if it is added up over micro-batches and processes.

A mean of means is wrong as soon as micro-batches hold different numbers of tokens or trajectories, as they always do
after filtering. So every micro-batch gets the totals of its optimizer step: of all micro-batches, on all processes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ragen_trl.batching.batch import sampled_mask
from ragen_trl.system.float64 import float64_tensor

ROW_MEAN_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")
"""TRL's losses that are means over rows, which filler rows would dilute; the others are means over tokens."""


def add_step_totals(
    micro_batches: Sequence[dict[str, Any]],
    accumulation_steps: int,
    processes: int,
    total: Callable[[torch.Tensor], torch.Tensor],
    begun: bool = False,
) -> None:
    """Write the totals of each optimizer step into its micro-batches.

    Some totals are "a process's share": the total divided by the number of processes. A sum over the step's
    micro-batches, divided by such a share and averaged over processes (as DDP does with gradients), is the mean over
    the step. If a step takes several rollouts, each of them is normalised alone and has the same weight.

    | key | what |
    |---|---|
    | ``num_items_in_batch`` | the divisor of TRL's token-normalised losses, so they divide by the step's tokens |
    | ``step_tokens`` | sampled tokens, a process's share |
    | ``step_trajectories`` | trajectories without filler, a process's share; of rows that are parts, the sum of parts |
    | ``fill`` | factor for a mean over this micro-batch's rows, so the step's mean is the one over its trajectories |
    | ``token_share`` | the same for a mean over this micro-batch's tokens, over micro-batches that are not empty |
    | ``trajectory_weight`` | the same for a mean over this micro-batch's trajectories |
    | ``empty`` | no process has a token in this micro-batch, so means over its tokens say nothing |
    | ``skip`` | the step has nothing to train on, as far as is known: it may take further rollouts |

    Args:
        micro_batches: What one rollout was split into. The i-th has as many rows on every process; ``completion_mask``
            is 0 in filler rows. ``trajectory_share``, if there is one, says which part of a trajectory a row is.
        accumulation_steps: Micro-batches per optimizer step; divides their number, or is a multiple of it.
        processes: Number of processes.
        total: Adds a tensor up over all processes.
        begun: Whether an earlier rollout of the same step has something to train on.
    """
    size = micro_batches_per_step(len(micro_batches), accumulation_steps)
    share = max(1, accumulation_steps // len(micro_batches)) / processes
    masks = [batch["completion_mask"] for batch in micro_batches]
    counts = total(float64_tensor(_local_counts(micro_batches), masks[0].device)).to(masks[0].device, torch.float32)
    for index, batch in enumerate(micro_batches):
        of_step = counts[index // size * size :][:size]  # (micro-batches of the step, 2)
        (tokens, trajectories), filled = of_step.sum(dim=0), (of_step[:, 0] > 0).sum()
        batch["num_items_in_batch"] = tokens * (len(micro_batches) // size)
        batch["step_tokens"] = tokens.clamp(min=1) * share
        divisor = torch.where(trajectories > 0, trajectories, 1.0)  # parts of trajectories may be less than one
        batch["step_trajectories"] = divisor * share
        batch["fill"] = size * processes * len(masks[index]) / divisor
        batch["empty"] = counts[index, 0] == 0
        batch["token_share"] = counts[index, 0] * filled / tokens.clamp(min=1)
        batch["trajectory_weight"] = counts[index, 1] * filled / divisor
        batch["skip"] = (trajectories == 0) & (not begun)


def _local_counts(micro_batches: Sequence[dict[str, Any]]) -> list[list[torch.Tensor]]:
    """Sampled tokens and trajectories of each micro-batch on this process, (micro-batches, 2)."""
    counts = []
    for batch in micro_batches:
        share = batch.get("trajectory_share", batch["completion_mask"].any(dim=1))
        counts.append([sampled_mask(batch).sum(), share.sum()])
    return counts


def micro_batches_per_step(micro_batches: int, accumulation_steps: int) -> int:
    """How many of a rollout's micro-batches make one optimizer step; all of them if a step takes several rollouts."""
    return min(micro_batches, accumulation_steps)
