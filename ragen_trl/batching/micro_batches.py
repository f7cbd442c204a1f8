"""Fewer passes and less padding: full micro-batches of rows of similar length, in whatever order they were played.

TRL splits a rollout into micro-batches as wide as its longest trajectory; after a filter they hold a row or two each.
Here the rows of each step are sorted by length (or, as prefix trees, by how they begin) and fill micro-batches cut to
their longest row; the others are not computed. A loss that is a sum over the step, divided by its totals, does not
change; one that is a mean of each micro-batch would, and keeps TRL's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ragen_trl.batching.batch import chosen_rows, cut_to_longest, is_rows, select_rows, whole_rows
from ragen_trl.batching.loss_normalization import micro_batches_per_step
from ragen_trl.batching.shared_prefixes import PackedRows, prefix_order
from ragen_trl.system.float64 import float64_tensor, in_float64

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

Scorer = Callable[[torch.Tensor, slice, int], tuple[torch.Tensor, torch.Tensor | None]]


def depends_on_split(args: "StarPOConfig", with_router_loss: bool) -> bool:
    """Whether the loss has a part that is a mean or a quantile of each micro-batch, such as a mixture's router loss."""
    return args.loss_type == "bnpo" or args.use_adaptive_entropy or args.top_entropy_quantile < 1.0 or with_router_loss


def packed(
    micro_batches: Sequence[dict[str, Any]],
    accumulation_steps: int,
    batch_size: int,
    rank: int = 0,
    gather: Callable[[torch.Tensor], torch.Tensor] = lambda local: local,
    shares_prefixes: bool = False,
) -> list[dict[str, Any]]:
    """The same number of micro-batches; each step has as few as its rows fill, and before them empty ones.

    The shortest rows come first, or filler before rows in the order of their tokens. So the last micro-batch of a step,
    after which gradients are reduced over processes, has something to train on if any of the step has. The i-th
    micro-batch has as many rows on every process, since losses gather over rows; at most ``batch_size``, unless
    the step has more rows than its micro-batches can hold. ``gather`` joins tensors of one length from all processes.
    """
    size = micro_batches_per_step(len(micro_batches), accumulation_steps)
    rollout = {
        key: _joined([part[key] for part in micro_batches]) if is_rows(value) else value
        for key, value in micro_batches[0].items()
    }
    used = rollout["completion_mask"].any(dim=1).nonzero().flatten()
    of_steps, most_rows = _dealt_out(used, rollout.get("trajectory"), len(micro_batches) // size, rank, gather)
    parts: list[dict[str, Any]] = []
    for rows, most in zip(of_steps, most_rows, strict=True):
        filled = min(size, -(-most // batch_size))
        parts += [select_rows(rollout, [], 1)] * (size - filled)
        if filled:
            of_step = select_rows(rollout, rows.tolist(), most)
            order = _by_prefix(of_step) if shares_prefixes else torch.argsort(row_lengths(of_step), stable=True)
            parts += [_rows_of(of_step, chosen) for chosen in order.tensor_split(filled)]
    return [dict(part) for part in parts]


def _dealt_out(
    used: torch.Tensor,
    trajectories: torch.Tensor | None,
    steps: int,
    rank: int,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[list[torch.Tensor], list[int]]:
    """This process's rows of each optimizer step, and the most rows that a process has in each.

    Rows that are parts of one trajectory are in one step. A step has as many trajectories as the others, up to one.
    """
    if trajectories is None:
        counts = _shares(gather(used.new_tensor([len(used)])).tolist(), steps)
        return list(used.split(counts[rank])), [max(of_step) for of_step in zip(*counts, strict=True)]
    rows: dict[int, list[int]] = {}
    for row, trajectory in zip(used.tolist(), trajectories[used].tolist(), strict=True):
        rows.setdefault(trajectory, []).append(row)
    counts = _shares(gather(used.new_tensor([len(rows)])).tolist(), steps)
    units, dealt = list(rows.values()), []
    for count in counts[rank]:
        dealt.append(used.new_tensor([row for unit in units[:count] for row in unit]))
        units = units[count:]
    everywhere = gather(used.new_tensor([len(step) for step in dealt])).reshape(-1, steps)
    return dealt, everywhere.amax(dim=0).tolist()


def _shares(counts: Sequence[int], steps: int) -> list[list[int]]:
    """How many of its rows each process gives to each step: equally many, on each process and on all together."""
    shares, first = [], 0
    for count in counts:
        more = count % steps
        shares.append([count // steps + ((step - first) % steps < more) for step in range(steps)])
        first += more
    return shares


def _by_prefix(batch: Mapping[str, Any]) -> torch.Tensor:
    used = batch["completion_mask"].any(dim=1, keepdim=True)
    return prefix_order(*whole_rows({**batch, "prompt_mask": batch["prompt_mask"] * used}))


def _rows_of(batch: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    return cut_to_longest({key: chosen_rows(value, rows) for key, value in batch.items()})


def _joined(values: list[Any]) -> Any:
    return [row for value in values for row in value] if isinstance(values[0], list) else torch.cat(values)


def row_lengths(batch: dict[str, Any]) -> torch.Tensor:
    """(B,) tokens of each row, prompt included; 0 for filler."""
    completion = batch["completion_mask"].sum(dim=1)
    return (batch["prompt_mask"].sum(dim=1) + completion) * (completion > 0)


def count_positions(
    micro_batches: Sequence[dict[str, Any]], pack: Callable[[dict[str, Any]], PackedRows] | None = None
) -> torch.Tensor:
    """(3,) float64, on this process: tokens, different ones of them, and the positions that the model computes.

    Tokens are the same if rows share them as prefix trees (``pack``). Micro-batches that are filler on all processes
    are neither computed nor counted.
    """
    counts = float64_tensor([0.0, 0.0, 0.0], micro_batches[0]["completion_mask"].device)
    for batch in micro_batches:
        if batch["empty"]:
            continue
        if pack is not None:
            rows = pack(batch)
            counts += float64_tensor([rows.tokens, rows.places, rows.ids.numel()], counts.device)
        else:
            width = batch["prompt_mask"].shape[1] + batch["completion_mask"].shape[1]
            tokens = in_float64(row_lengths(batch).sum())
            counts += torch.stack([tokens, tokens, torch.full_like(tokens, len(batch["completion_mask"]) * width)])
    return counts


def position_metrics(counts: torch.Tensor) -> dict[str, float]:
    """``rollout/padding`` and ``rollout/shared``, from ``count_positions`` summed over processes.

    They are the share of positions that are padding, and of tokens that are computed with another row's.
    """
    tokens, different, positions = counts.tolist()
    if not different:
        return {}
    return {"rollout/padding": 1 - different / positions, "rollout/shared": 1 - different / tokens}


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
