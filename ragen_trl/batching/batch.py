"""From trajectories to the batch that TRL's loss reads, padded as TRL pads it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ragen_trl.trajectory import Picture, Trajectory

# Keys of TRL's generation batch that are padded along time: prompts on the left, completions on the right.
_PROMPT_KEYS = ("prompt_ids", "prompt_mask")
_COMPLETION_KEYS = (
    "advantages",
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
    "importance_sampling_ratio",
)


def trajectory_batch(trajectories: Sequence[Trajectory], pad_id: int) -> dict[str, Any]:
    """TRL's tensors of trajectories, one row each; without trajectories they have no row and one column.

    Returns:
        ``prompt_ids`` and ``prompt_mask`` (B, P), padded on the left; ``completion_ids``, ``completion_mask``,
        ``tool_mask`` (1 at sampled tokens) and ``sampling_per_token_logps`` (B, T), padded on the right. With pictures
        also `pictures_of`.
    """
    float32, int64 = torch.float32, torch.int64
    firsts = [len(one.turns[0].prompt_ids) for one in trajectories]
    prompts = [one.token_ids[:first] for one, first in zip(trajectories, firsts, strict=True)]
    after = {  # all after the first prompt; environment tokens have log-probability 0
        name: [getattr(one, name)[first:] for one, first in zip(trajectories, firsts, strict=True)]
        for name in ("token_ids", "action_mask", "logprobs")
    }
    return {
        "prompt_ids": _padded(prompts, int64, pad_id, "left"),
        "prompt_mask": _padded([[1] * len(row) for row in prompts], int64, 0, "left"),
        "completion_ids": _padded(after["token_ids"], int64, pad_id, "right"),
        "completion_mask": _padded([[1] * len(row) for row in after["token_ids"]], int64, 0, "right"),
        "tool_mask": _padded(after["action_mask"], int64, 1, "right"),
        "sampling_per_token_logps": _padded(after["logprobs"], float32, 0.0, "right"),
        **pictures_of(trajectories),
    }


def pictures_of(trajectories: Sequence[Trajectory]) -> dict[str, list[tuple[Picture, ...]]]:
    """The column ``pictures``, a list for each trajectory; no column if nobody was shown any."""
    shown = [trajectory.pictures for trajectory in trajectories]
    return {"pictures": shown} if any(shown) else {}


def _padded(rows: Sequence[Sequence[Any]], dtype: torch.dtype, filler: float, side: str) -> torch.Tensor:
    if not rows:
        return torch.full((0, 1), filler, dtype=dtype)
    tensors = [torch.tensor(row, dtype=dtype) for row in rows]  # an empty list alone would be of floats
    return torch.nn.utils.rnn.pad_sequence(tensors, True, filler, padding_side=side)


def sampled_mask(batch: Mapping[str, Any]) -> torch.Tensor:
    """(B, T) bool: the completion tokens that the policy sampled; filler has none."""
    return (batch["completion_mask"] * batch["tool_mask"]).bool()


def whole_rows(batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask of prompts with their completions, (B, P + T) each."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    return ids, torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)


def select_rows(batch: Mapping[str, Any], rows: Sequence[int], size: int) -> dict[str, Any]:
    """Reduce a generation batch to some rows, cut it to the longest of them, and fill it up to ``size`` rows.

    Filler rows repeat the first kept row with ``completion_mask`` 0. They reach no loss, no gradient and no metric that
    uses masks; they only make the numbers of rows equal.

    Args:
        batch: TRL's generation batch, with at least one row; 0-dim tensors are passed on.
        rows: Indices of the rows to keep. A process that keeps none has only filler.
        size: Number of rows of the result, at least ``len(rows)``.
    """
    filled = torch.tensor([*rows, *[rows[0] if len(rows) else 0] * (size - len(rows))])
    selected: dict[str, Any] = {}
    for key, value in batch.items():
        selected[key] = chosen_rows(value, filled)
    for key in ("completion_mask", "trajectory_share"):
        if key in selected:
            selected[key][len(rows) :] = 0
    return cut_to_longest(selected)


def is_rows(value: Any) -> bool:
    """Whether a value of a generation batch has an entry for each row: a tensor, or the list of ``pictures``."""
    return isinstance(value, list) or (isinstance(value, torch.Tensor) and value.ndim > 0)


def chosen_rows(value: Any, rows: torch.Tensor) -> Any:
    """These rows of a value of a generation batch; the value itself if it has none."""
    if isinstance(value, list):
        return [value[row] for row in rows.tolist()]
    return value[rows.to(value.device)] if is_rows(value) else value


def cut_to_longest(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the columns in which no row has a token: on the left of prompts, on the right of completions.

    Filler rows keep no column. At least one column of each stays, so every row can be computed.
    """
    cut = dict(batch)
    completions = batch["completion_mask"].sum(dim=1)
    prompt = max(1, int((batch["prompt_mask"].sum(dim=1) * (completions > 0)).max()))
    completion = max(1, int(completions.max()))
    for key in _PROMPT_KEYS:
        cut[key] = batch[key][:, batch[key].shape[1] - prompt :]
    for key in _COMPLETION_KEYS:
        if key in batch and batch[key].ndim == 2 and batch[key].shape[1] > 1:  # (B,), (B, 1): whole sequences
            cut[key] = batch[key][:, :completion]
    return cut


def completion_columns(values: torch.Tensor, trajectories: Sequence[Trajectory], length: int) -> torch.Tensor:
    """(L, T): (L, S) values of whole trajectories' tokens, moved to TRL's columns, which begin after the first prompt.

    ``length`` is T, the width of TRL's completions; 0 after a trajectory's end.
    """
    columns = values.new_zeros((len(trajectories), length))
    for row, trajectory in enumerate(trajectories):
        first, count = len(trajectory.turns[0].prompt_ids), len(trajectory.token_ids)
        columns[row, : count - first] = values[row, first:count]
    return columns


def collate(trajectories: Sequence[Trajectory], pad_id: int) -> dict[str, torch.Tensor]:
    """Pad whole trajectories on the right.

    Returns:
        ``input_ids``, ``attention_mask``, ``action_mask`` (1 at sampled tokens), ``turn_ids`` (-1 at environment
        tokens and padding) and ``logprobs`` (0 where nothing was sampled), each (B, T); (0, 0) without trajectories.
    """
    rows = [trajectory.token_ids for trajectory in trajectories]
    columns = {
        "input_ids": _padded(rows, torch.int64, pad_id, "right"),
        "attention_mask": _padded([[1] * len(row) for row in rows], torch.int64, 0, "right"),
        "action_mask": _padded([trajectory.action_mask for trajectory in trajectories], torch.int64, 0, "right"),
        "turn_ids": _padded([trajectory.turn_ids for trajectory in trajectories], torch.int64, -1, "right"),
        "logprobs": _padded([trajectory.logprobs for trajectory in trajectories], torch.float32, 0.0, "right"),
    }
    return columns if rows else {key: column[:, :0] for key, column in columns.items()}
