"""Less padding: rows of similar length are computed together, in whatever order they were played.

TRL pads a rollout to its longest trajectory and splits it into micro-batches of that width. Here the rows of an
optimizer step, over all its micro-batches, are sorted by length and split again, and every micro-batch is cut to its
longest row. No row moves to another step: which trajectories make an update stays random. A loss that is a sum over the
step, divided by the step's totals (`loss_normalization`), does not change. A loss that is a mean of each micro-batch
would change, so it keeps TRL's micro-batches. Each process sorts its own rows.

Left out: packing several trajectories into one row, because that needs attention kernels that keep them apart.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ragen_trl.batching.batch import cut_to_longest
from ragen_trl.batching.loss_normalization import micro_batches_per_step
from ragen_trl.system.float64 import float64_tensor, in_float64

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

Scorer = Callable[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor | None]]


def depends_on_split(args: "StarPOConfig", with_router_loss: bool) -> bool:
    """Whether the loss has a part that is a mean or a quantile of each micro-batch.

    Args:
        args: The configuration.
        with_router_loss: Whether a mixture of experts adds its load-balancing loss.
    """
    return (
        args.loss_type == "bnpo" or args.use_adaptive_entropy or args.top_entropy_quantile < 1.0 or with_router_loss
    )


def regroup(
    micro_batches: Sequence[dict[str, Any]], accumulation_steps: int, by_length: bool = True
) -> list[dict[str, Any]]:
    """The same number of micro-batches of the same size, each cut to its longest row.

    With ``by_length``, filler comes first, then the shortest rows. So the last micro-batch of a step, after which
    gradients are reduced over processes, has something to train on if any micro-batch of the step has.

    Args:
        micro_batches: What one rollout was split into, all of one width.
        accumulation_steps: Micro-batches per optimizer step; divides their number, or is a multiple of it.
        by_length: Whether rows may move to another micro-batch of the same step.
    """
    size = micro_batches_per_step(len(micro_batches), accumulation_steps)
    regrouped: list[dict[str, Any]] = []
    for first in range(0, len(micro_batches), size):
        of_step = micro_batches[first : first + size]
        regrouped += [cut_to_longest(part) for part in (_sorted(of_step) if by_length else of_step)]
    return regrouped


def _sorted(of_step: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one optimizer step, the shortest first, in the same number of micro-batches."""
    joined = {
        key: torch.cat([part[key] for part in of_step]) if _is_rows(value) else value
        for key, value in of_step[0].items()
    }
    order = torch.argsort(row_lengths(joined), stable=True)
    parts = order.tensor_split(len(of_step))
    return [{key: value[rows] if _is_rows(value) else value for key, value in joined.items()} for rows in parts]


def _is_rows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def row_lengths(batch: dict[str, Any]) -> torch.Tensor:
    """(B,) tokens of each row, prompt included; 0 for filler."""
    completion = batch["completion_mask"].sum(dim=1)
    return (batch["prompt_mask"].sum(dim=1) + completion) * (completion > 0)


def count_positions(micro_batches: Sequence[dict[str, Any]]) -> torch.Tensor:
    """(2,) float64, on this process: tokens, and the positions that the model computes for them.

    The other positions are padding and filler. Micro-batches that are filler on all processes (``empty``) are neither
    computed nor counted.
    """
    counts = float64_tensor([0.0, 0.0], micro_batches[0]["completion_mask"].device)
    for batch in micro_batches:
        width = batch["prompt_mask"].shape[1] + batch["completion_mask"].shape[1]
        tokens = row_lengths(batch).sum()
        positions = torch.full_like(tokens, len(batch["completion_mask"]) * width)
        counts += in_float64(torch.stack([tokens, positions]) * ~batch["empty"])
    return counts


def padding_metric(counts: torch.Tensor) -> dict[str, float]:
    """The logged share of padding, from ``count_positions`` summed over processes; empty if nothing is computed."""
    tokens, positions = counts.tolist()
    return {"rollout/padding": 1 - tokens / positions} if positions else {}


def score_by_length(
    score: Scorer, ids: torch.Tensor, attention: torch.Tensor, width: int, batch_size: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Score many rows in passes of similar lengths, none wider than its longest row.

    Args:
        score: Scores the completions, the last ``width`` columns, of (b, P + ``width``) ids and their attention mask.
            Returns (b, ``width``) log-probabilities and, optionally, entropies.
        ids: (B, P + T) token ids, prompts padded on the left and completions on the right.
        attention: (B, P + T), 0 at padding.
        width: T.
        batch_size: Number of rows in one pass.

    Returns:
        The results of ``score`` for all rows in the given order, (B, T) each and 0 at padding.
    """
    start = ids.shape[1] - width  # P
    prompts, completions = attention[:, :start].sum(dim=1), attention[:, start:].sum(dim=1)
    logprobs: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    for rows in torch.argsort(prompts + completions, stable=True).split(batch_size):
        longest = max(1, int(completions[rows].max()))
        columns = slice(start - max(1, int(prompts[rows].max())), start + longest)
        found, spread = score(ids[rows, columns], attention[rows, columns], longest)
        if logprobs is None:
            logprobs = found.new_zeros(len(ids), width)
            entropies = None if spread is None else spread.new_zeros(len(ids), width)
        logprobs[rows, :longest] = found
        if entropies is not None and spread is not None:
            entropies[rows, :longest] = spread
    assert logprobs is not None
    return logprobs, entropies
