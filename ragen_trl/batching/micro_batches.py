"""From a rollout's rows to the micro-batches of its updates, and what their losses are divided by.

After a filter few rows are left. Those of each update are sorted by length (or, as prefix trees, by how they begin) and
fill micro-batches that are cut to their longest row; the others are empty and not computed. A loss that is a sum over
the update, divided by the update's totals, does not change.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ragen_trl.batching.batch import chosen_rows, cut_to_longest, oracle_mask, sampled_mask, select_rows, whole_rows
from ragen_trl.batching.shared_prefixes import pass_order
from ragen_trl.system.float64 import float64_tensor


def micro_batches(
    batch: Mapping[str, Any],
    count: int,
    accumulation_steps: int,
    batch_size: int,
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda local: local,
    shares_prefixes: bool = False,
) -> list[dict[str, Any]]:
    """Divide a rollout's rows into ``count`` micro-batches; each update has as few as its rows fill, after empty ones.

    The shortest rows come first, or filler before rows in the order of their tokens. So the last micro-batch of an
    update, after which gradients are reduced over processes, has something to train on if any of the update has. Rows
    of one trajectory are in one update, and the updates of a process have equally many trajectories, up to one. The
    i-th micro-batch has as many rows on every process; at most ``batch_size``, unless the update has more rows than its
    micro-batches can hold.

    ``batch`` has this process's rows (`batch.segment_rows`), at least one; ``completion_mask`` is 0 in filler. An
    update has ``accumulation_steps`` micro-batches, which divides ``count``. ``gather`` joins tensors of one length
    from all processes.
    """
    updates = count // accumulation_steps
    rows_of: dict[int, list[int]] = {}  # of each trajectory
    for row in batch["completion_mask"].any(dim=1).nonzero().flatten().tolist():
        rows_of.setdefault(int(batch["trajectory"][row]), []).append(row)
    trajectories = list(rows_of.values())
    of_updates = [
        [row for place in places.tolist() for row in trajectories[place]]
        for places in torch.arange(len(trajectories)).tensor_split(updates)
    ]
    counts = torch.tensor([len(rows) for rows in of_updates], device=batch["completion_mask"].device)
    most_rows = gather(counts).reshape(-1, updates).amax(dim=0).tolist()  # that a process has in each update
    parts: list[dict[str, Any]] = []
    for rows, most in zip(of_updates, most_rows, strict=True):
        filled = min(accumulation_steps, -(-most // batch_size))
        parts += [select_rows(batch, [], 1)] * (accumulation_steps - filled)
        if filled:
            of_update = select_rows(batch, rows, most)
            lengths = of_update["completion_mask"].sum(dim=1)
            prompts = of_update["prompt_mask"] * (lengths > 0)[:, None]  # filler has no token
            order = pass_order(*whole_rows({**of_update, "prompt_mask": prompts}), shares_prefixes)
            for chosen in order.tensor_split(filled):
                parts.append(cut_to_longest({key: chosen_rows(value, chosen) for key, value in of_update.items()}))
    return [dict(part) for part in parts]


def add_step_totals(
    batches: Sequence[dict[str, Any]],
    accumulation_steps: int,
    processes: int,
    total: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write the totals of each update into its micro-batches.

    Some totals are "a process's share": the total divided by the number of processes. A sum over the update's
    micro-batches, divided by such a share and averaged over processes (as DDP does with gradients), is the mean over
    the update.

    | key | what |
    |---|---|
    | ``step_tokens`` | sampled tokens, a process's share |
    | ``step_trajectories`` | trajectories without filler, a process's share; a segment counts with its part |
    | ``step_oracle_tokens`` | tokens of the oracle's replies, a process's share |
    | ``token_share`` | this micro-batch's part of the sampled tokens, on all processes |
    | ``empty`` | no process has a token in this micro-batch, so means over its tokens say nothing |
    | ``skip`` | the update has nothing to train on |

    ``batches`` are the micro-batches of one rollout; ``total`` adds a tensor up over all ``processes``.
    """
    size, device = accumulation_steps, batches[0]["completion_mask"].device
    local = [[sampled_mask(one).sum(), one["trajectory_share"].sum(), oracle_mask(one).sum()] for one in batches]
    counts = total(float64_tensor(local, device)).to(device, torch.float32)  # (micro-batches, 3)
    for index, batch in enumerate(batches):
        tokens, trajectories, oracle = counts[index // size * size :][:size].sum(dim=0)
        batch["step_tokens"] = tokens.clamp(min=1) / processes
        batch["step_trajectories"] = torch.where(trajectories > 0, trajectories, 1.0) / processes
        batch["step_oracle_tokens"] = oracle.clamp(min=1) / processes
        batch["token_share"] = counts[index, 0] / tokens.clamp(min=1)
        batch["empty"] = counts[index, 0] + counts[index, 2] == 0
        batch["skip"] = trajectories + oracle == 0
