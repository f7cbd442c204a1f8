"""From a rollout's rows to the micro-batches of its updates, and what their losses are divided by.

TRL splits a rollout into micro-batches as wide as its longest trajectory; after a filter they hold a row or two each.
Here the rows of each update are sorted by length (or, as prefix trees, by how they begin) and fill micro-batches that
are cut to their longest row; the others are empty and not computed. A loss that is a sum over the update, divided by
the update's totals, does not change.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ragen_trl.batching.batch import chosen_rows, cut_to_longest, sampled_mask, select_rows, whole_rows
from ragen_trl.batching.shared_prefixes import prefix_order
from ragen_trl.system.float64 import float64_tensor

Scorer = Callable[[torch.Tensor, slice, int], tuple[torch.Tensor, torch.Tensor | None]]


def micro_batches(
    batch: Mapping[str, Any],
    count: int,
    accumulation_steps: int,
    batch_size: int,
    rank: int = 0,
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda local: local,
    shares_prefixes: bool = False,
) -> list[dict[str, Any]]:
    """Divide a rollout's rows into ``count`` micro-batches; each update has as few as its rows fill, after empty ones.

    The shortest rows come first, or filler before rows in the order of their tokens. So the last micro-batch of an
    update, after which gradients are reduced over processes, has something to train on if any of the update has. Rows
    of one trajectory are in one update, and updates have equally many trajectories, up to one. The i-th micro-batch has
    as many rows on every process; at most ``batch_size``, unless the update has more rows than its micro-batches can
    hold.

    Args:
        batch: This process's rows (`segments.segment_rows`), at least one; ``completion_mask`` is 0 in filler.
        count: Micro-batches of the rollout.
        accumulation_steps: Micro-batches of an update; divides ``count``, or is a multiple of it.
        batch_size: Rows of a micro-batch.
        rank: Index of this process.
        gather: Joins tensors of one length from all processes.
        shares_prefixes: Whether rows are stored as prefix trees.
    """
    size = min(count, accumulation_steps)  # micro-batches of an update, from this rollout
    used = batch["completion_mask"].any(dim=1).nonzero().flatten()
    of_updates, most_rows = _dealt_out(used, batch["trajectory"], count // size, rank, gather)
    parts: list[dict[str, Any]] = []
    for rows, most in zip(of_updates, most_rows, strict=True):
        filled = min(size, -(-most // batch_size))
        parts += [select_rows(batch, [], 1)] * (size - filled)
        if filled:
            of_update = select_rows(batch, rows, most)
            order = _by_prefix(of_update) if shares_prefixes else torch.argsort(row_lengths(of_update), stable=True)
            for chosen in order.tensor_split(filled):
                parts.append(cut_to_longest({key: chosen_rows(value, chosen) for key, value in of_update.items()}))
    return [dict(part) for part in parts]


def _dealt_out(
    used: torch.Tensor,
    trajectories: torch.Tensor,
    updates: int,
    rank: int,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[list[list[int]], list[int]]:
    """This process's rows of each update, and the most rows that a process has in each."""
    rows: dict[int, list[int]] = {}
    for row, trajectory in zip(used.tolist(), trajectories[used].tolist(), strict=True):
        rows.setdefault(trajectory, []).append(row)
    units, dealt = list(rows.values()), []
    for count in _shares(gather(used.new_tensor([len(units)])).tolist(), updates)[rank]:
        dealt.append([row for unit in units[:count] for row in unit])
        units = units[count:]
    everywhere = gather(used.new_tensor([len(rows_of_update) for rows_of_update in dealt])).reshape(-1, updates)
    return dealt, everywhere.amax(dim=0).tolist()


def _shares(counts: Sequence[int], updates: int) -> list[list[int]]:
    """How many of its trajectories each process gives to each update: equally many, on each process and on all."""
    shares, first = [], 0
    for count in counts:
        more = count % updates
        shares.append([count // updates + ((update - first) % updates < more) for update in range(updates)])
        first += more
    return shares


def _by_prefix(batch: Mapping[str, Any]) -> torch.Tensor:
    used = batch["completion_mask"].any(dim=1, keepdim=True)
    return prefix_order(*whole_rows({**batch, "prompt_mask": batch["prompt_mask"] * used}))


def add_step_totals(
    batches: Sequence[dict[str, Any]],
    accumulation_steps: int,
    processes: int,
    total: Callable[[torch.Tensor], torch.Tensor],
    begun: bool = False,
) -> None:
    """Write the totals of each update into its micro-batches.

    Some totals are "a process's share": the total divided by the number of processes. A sum over the update's
    micro-batches, divided by such a share and averaged over processes (as DDP does with gradients), is the mean over
    the update. If an update takes several rollouts, each of them is normalised alone and has the same weight.

    | key | what |
    |---|---|
    | ``step_tokens`` | sampled tokens, a process's share |
    | ``step_trajectories`` | trajectories without filler, a process's share; a segment counts with its part |
    | ``token_share`` | this micro-batch's part of the sampled tokens, on all processes |
    | ``empty`` | no process has a token in this micro-batch, so means over its tokens say nothing |
    | ``skip`` | the update has nothing to train on, as far as is known: it may take further rollouts |

    Args:
        batches: The micro-batches of one rollout. The i-th has as many rows on every process.
        accumulation_steps: Micro-batches of an update; divides their number, or is a multiple of it.
        processes: Number of processes.
        total: Adds a tensor up over all processes.
        begun: Whether an earlier rollout of the same update has something to train on.
    """
    size, device = min(len(batches), accumulation_steps), batches[0]["completion_mask"].device
    share = max(1, accumulation_steps // len(batches)) / processes
    local = [[sampled_mask(batch).sum(), batch["trajectory_share"].sum()] for batch in batches]
    counts = total(float64_tensor(local, device)).to(device, torch.float32)  # (micro-batches, 2)
    for index, batch in enumerate(batches):
        tokens, trajectories = counts[index // size * size :][:size].sum(dim=0)
        batch["step_tokens"] = tokens.clamp(min=1) * share
        batch["step_trajectories"] = torch.where(trajectories > 0, trajectories, 1.0) * share
        batch["token_share"] = counts[index, 0] / tokens.clamp(min=1) / (share * processes)
        batch["empty"] = counts[index, 0] == 0
        batch["skip"] = (trajectories == 0) & (not begun)


def row_lengths(batch: Mapping[str, Any]) -> torch.Tensor:
    """(B,) tokens of each row, prompt included; 0 for filler."""
    completion = batch["completion_mask"].sum(dim=1)
    return (batch["prompt_mask"].sum(dim=1) + completion) * (completion > 0)


def score_in_passes(
    score: Scorer, attention: torch.Tensor, width: int, passes: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Score many rows in several passes, none wider than its longest row.

    Args:
        score: Scores the completions of some rows in some columns, of which the last n are completions: called with
            the rows' indices (b,), the columns, and n. Returns (b, n) log-probabilities and, optionally, entropies.
        attention: (B, P + T), 0 at padding, which prompts have on the left and completions on the right.
        width: T.
        passes: The rows of each pass.

    Returns:
        The results of ``score`` for all rows in the given order, (B, T) each and 0 at padding.
    """
    start = attention.shape[1] - width  # P
    prompts, completions = attention[:, :start].sum(dim=1), attention[:, start:].sum(dim=1)
    logprobs: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    for rows in passes:
        longest = max(1, int(completions[rows].max()))
        found, spread = score(rows, slice(start - max(1, int(prompts[rows].max())), start + longest), longest)
        if logprobs is None:
            logprobs = found.new_zeros(len(attention), width)
            entropies = None if spread is None else spread.new_zeros(len(attention), width)
        logprobs[rows, :longest] = found
        if entropies is not None and spread is not None:
            entropies[rows, :longest] = spread
    assert logprobs is not None
    return logprobs, entropies
