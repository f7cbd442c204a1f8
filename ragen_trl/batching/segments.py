r"""Training rows of episodes in which the model did not read all turns (`rollout/contexts.py`): k of them, for example.

A trajectory becomes several token sequences (`Trajectory.segments`). Each is a row of the batch with its trajectory's
advantage, and only the tokens that were sampled in this very context are trained: every one once. A mean over tokens
(``"dapo"``) does not depend on rows, and a sum (``"dr_grpo"``) needs only the true number of trajectories. StarPO's
(``"grpo"``) weights a row by its share of its trajectory's sampled tokens, so k changes only what is read:

.. math:: \frac1N \sum_i \frac1{n_i} \sum_{t \in i} \ell_t
   = \frac1N \sum_{\text{rows } r} \frac{n_r}{n_{i(r)}} \Bigl(\frac1{n_r} \sum_{t \in r} \ell_t\Bigr)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ragen_trl.batching.batch import sampled_mask, trajectory_batch
from ragen_trl.trajectory import Trajectory


def segment_batch(trajectories: Sequence[Trajectory], pad_id: int) -> dict[str, Any]:
    """TRL's tensors of all segments, one row each, in the order of the trajectories.

    Returns:
        The tensors of ``trajectory_batch``, and (S,) of each row: ``trajectory``, the index of its trajectory,
        ``trajectory_tokens``, how many tokens were sampled in all of it, and ``trajectory_share``, the row's part.
    """
    owned = [(segment, owner) for owner, whole in enumerate(trajectories) for segment in whole.segments]
    tokens = [max(1, trajectories[owner].num_reply_tokens) for _, owner in owned]
    shares = [segment.num_reply_tokens / count for (segment, _), count in zip(owned, tokens, strict=True)]
    return {
        **trajectory_batch([segment for segment, _ in owned], pad_id),
        "trajectory": torch.tensor([owner for _, owner in owned]),
        "trajectory_tokens": torch.tensor(tokens),
        "trajectory_share": torch.tensor(shares),
    }


def segment_rows(
    trajectories: Sequence[Trajectory], advantages: torch.Tensor, history_mask: torch.Tensor, pad_id: int
) -> dict[str, Any]:
    """The tensors of ``segment_batch`` and ``advantages``, (S,) or (S, T'): a row for each segment of L trajectories.

    ``advantages`` are given as (L,), or (L, T) in the columns of whole trajectories' completions, as ``history_mask``
    is (1 at sampled tokens).
    """
    device = advantages.device
    batch: dict[str, Any] = {
        key: value if isinstance(value, list) else value.to(device)
        for key, value in segment_batch(trajectories, pad_id).items()
    }
    if advantages.ndim == 1:
        counts = torch.tensor([len(trajectory.segments) for trajectory in trajectories], device=device)
        batch["advantages"] = advantages.repeat_interleave(counts)
    else:  # both masks visit the sampled tokens in the order of sampling
        mask = sampled_mask(batch)
        batch["advantages"] = advantages.new_zeros(mask.shape)
        batch["advantages"][mask] = advantages[history_mask.bool()]
    return batch


def others_of(batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """For `sequence_log_ratios`: what a row's other segments add, and its trajectory's tokens; (B,) each."""
    if "others_log_ratio" not in batch:
        return None
    return batch["others_log_ratio"], batch["trajectory_tokens"]
