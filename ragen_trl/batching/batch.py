"""From trajectories to the tensors that losses read, under TRL's names: a row for each context that was read.

A trajectory in which the model did not read all turns (`rollout/contexts.py`) has several rows (`Trajectory.segments`);
each token is trained in the one context in which it was sampled. StarPO's loss (``"grpo"``) weights a row by its share
of its trajectory's sampled tokens, so a context of k turns changes only what is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from ragen_trl.trajectory import Trajectory

Device: TypeAlias = torch.device | str
# Padded on the left; all other columns of tokens are completions', padded on the right.
_PROMPT_KEYS = ("prompt_ids", "prompt_mask")


def trajectory_batch(trajectories: Sequence[Trajectory], pad_id: int, device: Device = "cpu") -> dict[str, Any]:
    """TRL's tensors of trajectories, one row each; without trajectories they have no row and one column.

    Returns:
        ``prompt_ids`` and ``prompt_mask`` (B, P), padded on the left; ``completion_ids``, ``completion_mask``,
        ``tool_mask`` (1 at sampled tokens) and ``sampling_per_token_logps`` (B, T), padded on the right. If any
        picture was shown also ``pictures``, a list of each row's.
    """
    float32, int64 = torch.float32, torch.int64
    firsts = [len(one.turns[0].prompt_ids) for one in trajectories]
    prompts = [one.token_ids[:first] for one, first in zip(trajectories, firsts, strict=True)]
    after = {  # all after the first prompt; environment tokens have log-probability 0
        name: [getattr(one, name)[first:] for one, first in zip(trajectories, firsts, strict=True)]
        for name in ("token_ids", "action_mask", "logprobs")
    }
    pictures = [one.pictures for one in trajectories]
    columns = {
        "prompt_ids": _padded(prompts, int64, pad_id, "left"),
        "prompt_mask": _padded([[1] * len(row) for row in prompts], int64, 0, "left"),
        "completion_ids": _padded(after["token_ids"], int64, pad_id, "right"),
        "completion_mask": _padded([[1] * len(row) for row in after["token_ids"]], int64, 0, "right"),
        "tool_mask": _padded(after["action_mask"], int64, 1, "right"),
        "sampling_per_token_logps": _padded(after["logprobs"], float32, 0.0, "right"),
    }
    batch: dict[str, Any] = {name: column.to(device) for name, column in columns.items()}
    return batch | ({"pictures": pictures} if any(pictures) else {})


def segment_batch(trajectories: Sequence[Trajectory], pad_id: int, device: Device = "cpu") -> dict[str, Any]:
    """The tensors of ``trajectory_batch`` of all segments, in the order of the trajectories, and (S,) of each row.

    These are ``trajectory``, the index of its trajectory, and ``trajectory_share``, the row's part of the tokens that
    were sampled in all of it.
    """
    owned = [(segment, owner) for owner, whole in enumerate(trajectories) for segment in whole.segments]
    shares = [segment.num_reply_tokens / max(1, trajectories[owner].num_reply_tokens) for segment, owner in owned]
    return {
        **trajectory_batch([segment for segment, _ in owned], pad_id, device),
        "trajectory": torch.tensor([owner for _, owner in owned], device=device),
        "trajectory_share": torch.tensor(shares, device=device),
    }


def segment_rows(
    trajectories: Sequence[Trajectory],
    advantages: torch.Tensor,
    history_mask: torch.Tensor,
    pad_id: int,
    lessons: Sequence[Trajectory] = (),
) -> dict[str, Any]:
    """The tensors of ``segment_batch`` and ``advantages``, (S,) or (S, T'): a row for each segment of L trajectories.

    ``advantages`` are given as (L,), or (L, T) in the columns of whole trajectories' completions, as ``history_mask``
    is (1 at sampled tokens). ``lessons`` are replies of an oracle (`teacher.corrections`): their rows come last, with
    ``is_oracle`` true, (S,) bool. None of their tokens was sampled, and they have no share and no advantage.
    """
    batch = segment_batch([*trajectories, *lessons], pad_id, advantages.device)
    batch["is_oracle"] = batch["trajectory"] >= len(trajectories)
    batch["trajectory_share"] = batch["trajectory_share"].masked_fill(batch["is_oracle"], 0.0)
    if advantages.ndim == 1:
        batch["advantages"] = torch.cat([advantages, advantages.new_zeros(len(lessons))])[batch["trajectory"]]
    else:
        batch["advantages"] = moved(advantages, history_mask.bool(), sampled_mask(batch))
    return batch


def moved(values: torch.Tensor, theirs: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """The values at tokens of one mask of the same sampled ones, at the tokens of another; 0 elsewhere.

    Both masks, such as of whole trajectories and of segments, visit the tokens in the order of sampling.
    """
    found = values.new_zeros(ours.shape)
    found[ours] = values[theirs]
    return found


def _padded(rows: Sequence[Sequence[Any]], dtype: torch.dtype, filler: float, side: str) -> torch.Tensor:
    if not rows:
        return torch.full((0, 1), filler, dtype=dtype)
    tensors = [torch.tensor(row, dtype=dtype) for row in rows]  # an empty list alone would be of floats
    return torch.nn.utils.rnn.pad_sequence(tensors, True, filler, padding_side=side)


def sampled_mask(batch: Mapping[str, Any]) -> torch.Tensor:
    """(B, T) bool: the completion tokens that the policy sampled; filler has none, nor has a reply of an oracle."""
    scored = scored_mask(batch)
    return scored & ~batch["is_oracle"][:, None] if "is_oracle" in batch else scored


def scored_mask(batch: Mapping[str, Any]) -> torch.Tensor:
    """(B, T) bool: the completion tokens that a loss may read; the tokens of an oracle's replies too."""
    return (batch["completion_mask"] * batch["tool_mask"]).bool()


def oracle_mask(batch: Mapping[str, Any]) -> torch.Tensor:
    """(B, T) bool: the tokens of an oracle's replies."""
    return scored_mask(batch) & ~sampled_mask(batch)


def whole_rows(batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask of prompts with their completions, (B, P + T) each."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    return ids, torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)


def select_rows(batch: Mapping[str, Any], rows: Sequence[int], size: int) -> dict[str, Any]:
    """Reduce a batch to some of its rows, cut it to the longest of them, and fill it up to ``size`` rows.

    Filler repeats the first kept row with ``completion_mask`` 0. It reaches no loss, no gradient and no metric that
    uses masks; it only makes the numbers of rows equal, also on a process that keeps none.
    """
    filled = torch.tensor([*rows, *[rows[0] if len(rows) else 0] * (size - len(rows))])
    selected = {key: chosen_rows(value, filled) for key, value in batch.items()}
    for key in ("completion_mask", "trajectory_share"):
        if key in selected:
            selected[key][len(rows) :] = 0
    return cut_to_longest(selected)


def chosen_rows(value: Any, rows: torch.Tensor) -> Any:
    """These rows of a batch's value: of a tensor, or of the list of ``pictures``."""
    return [value[row] for row in rows.tolist()] if isinstance(value, list) else value[rows.to(value.device)]


def cut_to_longest(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the columns in which no row has a token: on the left of prompts, on the right of completions.

    Filler rows keep no column. At least one column of each stays, so every row can be computed.
    """
    cut = dict(batch)
    completions = batch["completion_mask"].sum(dim=1)
    prompt = max(1, int((batch["prompt_mask"].sum(dim=1) * (completions > 0)).max()))
    completion = max(1, int(completions.max()))
    for key, value in batch.items():
        if key in _PROMPT_KEYS:
            cut[key] = value[:, value.shape[1] - prompt :]
        elif isinstance(value, torch.Tensor) and value.ndim == 2:  # the others are numbers of rows, and pictures
            cut[key] = value[:, :completion]
    return cut


def turn_columns(trajectories: Sequence[Trajectory]) -> torch.Tensor:
    """(L, T) the turn of each sampled token, in the columns of ``trajectory_batch``'s completions; -1 elsewhere."""
    turns = [one.turn_ids[len(one.turns[0].prompt_ids) :] for one in trajectories]
    return _padded(turns, torch.int64, -1, "right")
