r"""Training rows of episodes in which the model did not read all turns (`rollout/contexts.py`): k of them, for example.

A trajectory becomes several token sequences (`Trajectory.segments`). Each is a row of the batch with its trajectory's
advantage, and only the tokens that were sampled in this very context are trained: every one once. A mean over tokens
(``"dapo"``) does not depend on rows, and a sum (``"dr_grpo"``) needs only the true number of trajectories. StarPO's
(``"grpo"``) weights a row by its share of its trajectory's sampled tokens, so k changes only what is read:

.. math:: \frac1N \sum_i \frac1{n_i} \sum_{t \in i} \ell_t
   = \frac1N \sum_{\text{rows } r} \frac{n_r}{n_{i(r)}} \Bigl(\frac1{n_r} \sum_{t \in r} \ell_t\Bigr)
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ragen_trl.algorithms.losses import clipped_surrogate, kl_penalty, sequence_log_ratios
from ragen_trl.batching.batch import sampled_mask, trajectory_batch
from ragen_trl.trajectory import Trajectory

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig


class SegmentLayout:
    """Where the tokens of whole trajectories lie in the rows that the model read, in `batch.collate`'s columns.

    The context of a row that was rebuilt lies in no column of its trajectory.

    Attributes:
        rows: The segments of the L trajectories in order, S of them.
        owners: Index of each row's trajectory, length S.
    """

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.rows: list[Trajectory] = []
        self.owners: list[int] = []
        self._places: list[tuple[int, int, int]] = []  # of each row: first column in the trajectory, in the row; tokens
        for owner, whole in enumerate(trajectories):
            contexts = [len(turn.context_ids or ()) for turn in whole.turns if turn.context_ids is not None]
            first = 0
            for segment, context in zip(whole.segments, [0, *contexts], strict=True):
                count = len(segment.token_ids) - context
                self.rows.append(segment)
                self.owners.append(owner)
                self._places.append((first, context, count))
                first += count
        self._lengths = [len(whole.token_ids) for whole in trajectories]

    def join(self, values: torch.Tensor) -> torch.Tensor:
        """(L, T) values of trajectories' tokens from (S, T') values of rows' tokens; 0 at padding."""
        joined = values.new_zeros((len(self._lengths), max(self._lengths, default=0)))
        for row, (owner, (first, context, count)) in enumerate(zip(self.owners, self._places, strict=True)):
            joined[owner, first : first + count] = values[row, context : context + count]
        return joined

    def split(self, values: torch.Tensor) -> torch.Tensor:
        """(S, T') values of rows' tokens from (L, T) values of trajectories' tokens; 0 at padding and contexts."""
        width = max((len(row.token_ids) for row in self.rows), default=0)
        parts = values.new_zeros((len(self.rows), width))
        for row, (owner, (first, context, count)) in enumerate(zip(self.owners, self._places, strict=True)):
            parts[row, context : context + count] = values[owner, first : first + count]
        return parts


def segment_batch(trajectories: Sequence[Trajectory], pad_id: int) -> dict[str, torch.Tensor]:
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
    batch: dict[str, Any] = {key: value.to(device) for key, value in segment_batch(trajectories, pad_id).items()}
    if advantages.ndim == 1:
        counts = torch.tensor([len(trajectory.segments) for trajectory in trajectories], device=device)
        batch["advantages"] = advantages.repeat_interleave(counts)
    else:  # both masks visit the sampled tokens in the order of sampling
        mask = sampled_mask(batch)
        batch["advantages"] = advantages.new_zeros(mask.shape)
        batch["advantages"][mask] = advantages[history_mask.bool()]
    return batch


def others_of(batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """For `sequence_log_ratios`: what the other rows of each row's trajectory add, and all its tokens; (B,) each."""
    if "others_log_ratio" not in batch:
        return None
    return batch["others_log_ratio"], batch["trajectory_tokens"]


def segment_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    batch: dict[str, Any],
    args: "StarPOConfig",
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """StarPO's loss (``"grpo"``) of rows that are parts of trajectories; summed over micro-batches, it is the step's.

    Args:
        logprobs: (B, T) log-probabilities under the trained policy, nats.
        old_logprobs: (B, T) the same under the policy that sampled.
        ref_logprobs: (B, T) the same under the reference; not read where ``args.beta`` is 0.
        batch: Masks, advantages, shares, the totals of ``add_step_totals``, and vLLM's importance ratios, if any.
        args: Clip ranges, the level of ratios, and β.

    Returns:
        The loss; and (B, T) what TRL logs means of: the KL term, and whether the ratio is beyond a clip range that its
        advantage minds.
    """
    mask = sampled_mask(batch)
    # Masked before any exponential: at environment tokens two policies may differ so much that it overflows.
    off = ~mask
    logprobs, old_logprobs = logprobs.masked_fill(off, 0.0), old_logprobs.masked_fill(off, 0.0)
    advantages = batch["advantages"] if batch["advantages"].ndim == 2 else batch["advantages"][:, None]
    if args.importance_sampling_level == "sequence":
        old_logprobs = (logprobs - sequence_log_ratios(logprobs, old_logprobs, mask, others_of(batch))).detach()
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    per_token = clipped_surrogate(logprobs, old_logprobs, advantages, args.epsilon, high, args.delta)
    if "importance_sampling_ratio" in batch:
        per_token = per_token * batch["importance_sampling_ratio"]
    ratio = (logprobs - old_logprobs).exp()
    low_clipped, high_clipped = (ratio < 1 - args.epsilon) & (advantages < 0), (ratio > 1 + high) & (advantages > 0)
    clipped = {"low_mean": low_clipped, "high_mean": high_clipped, "region_mean": low_clipped | high_clipped}
    columns = {f"clip_ratio/{name}": where.float() for name, where in clipped.items()}
    if ref_logprobs is not None and args.beta:
        kl = kl_penalty(logprobs, ref_logprobs.masked_fill(off, 0.0), "k3")
        if args.use_bias_correction_kl:  # as in TRL: its gradient is that of KL(π ‖ π_ref)
            kl = kl * ratio
        per_token = per_token + args.beta * kl
        columns["kl"] = kl.detach()
    means = per_token.masked_fill(off, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # (B,)
    return (means * batch["trajectory_share"]).sum() / batch["step_trajectories"], columns
