r"""Training rows of episodes that were played with a sliding window (`rollout/sliding_window.py`) of k turns.

While an episode has at most k turns, its context only grows. After that every turn is answered in a rebuilt context: an
opening message (the instruction and the first kept turn's observation), then the *token ids* of the kept replies and of
the messages between them. Nothing is decoded and tokenised again. So a trajectory becomes several token sequences
(`Trajectory.segments`). Each is a row of the batch with its trajectory's advantage, and only the tokens that were
sampled in this very context are trained. Every sampled token is trained once, exactly as it was sampled.

How rows are weighted. A mean over tokens (``loss_type="dapo"``) does not depend on rows. A sum over the tokens of a
trajectory, divided by a constant (``"dr_grpo"``), needs only the true number of trajectories. StarPO's mean over
trajectories of the mean over tokens (``"grpo"``) stays that: the weight of a row is its share of its trajectory's
sampled tokens,

.. math:: \frac1N \sum_i \frac1{n_i} \sum_{t \in i} \ell_t
   = \frac1N \sum_{\text{rows } r} \frac{n_r}{n_{i(r)}} \Bigl(\frac1{n_r} \sum_{t \in r} \ell_t\Bigr)

so that k changes only what is read. If k is at least the number of turns, the gradient is the same as without a window.
VAGEN's weight 1 / rows is equal only if all rows have equally many sampled tokens.

Left out: a critic and A\*-PO, which need a trajectory in one row; ratios of whole sequences; and summaries of the turns
that were dropped.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ragen_trl.algorithms.losses import clipped_surrogate, kl_penalty
from ragen_trl.batching.batch import trajectory_batch
from ragen_trl.trajectory import Trajectory

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig


def segment_batch(trajectories: Sequence[Trajectory], pad_id: int) -> dict[str, torch.Tensor]:
    """TRL's tensors of all segments, one row each, in the order of the trajectories.

    Returns:
        The tensors of ``trajectory_batch``, and ``trajectory_share`` (S,): the row's share of its trajectory's sampled
        tokens.
    """
    segments = [(segment, whole) for whole in trajectories for segment in whole.segments]
    shares = [segment.num_reply_tokens / max(1, whole.num_reply_tokens) for segment, whole in segments]
    return {
        **trajectory_batch([segment for segment, _ in segments], pad_id),
        "trajectory_share": torch.tensor(shares),
    }


def segment_rows(
    trajectories: Sequence[Trajectory], advantages: torch.Tensor, history_mask: torch.Tensor, pad_id: int
) -> dict[str, Any]:
    """The batch with a row for each segment instead of each trajectory.

    Args:
        trajectories: L trajectories.
        advantages: (L,), or (L, T) in the columns of whole trajectories' completions.
        history_mask: (L, T), 1 at sampled tokens in those columns.
        pad_id: Pads token ids.

    Returns:
        The tensors of ``segment_batch``, and ``advantages``, (S,) or (S, T'), those of a segment's own tokens.
    """
    device = advantages.device
    batch: dict[str, Any] = {key: value.to(device) for key, value in segment_batch(trajectories, pad_id).items()}
    if advantages.ndim == 1:
        counts = torch.tensor([len(trajectory.segments) for trajectory in trajectories], device=device)
        batch["advantages"] = advantages.repeat_interleave(counts)
    else:  # both masks visit the sampled tokens in the order of sampling
        mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
        batch["advantages"] = advantages.new_zeros(mask.shape)
        batch["advantages"][mask] = advantages[history_mask.bool()]
    return batch


def segment_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    batch: dict[str, Any],
    args: "StarPOConfig",
) -> torch.Tensor:
    """StarPO's loss (``"grpo"``) of rows that are parts of trajectories; summed over micro-batches, it is the step's.

    Args:
        logprobs: (B, T) log-probabilities under the trained policy, nats.
        old_logprobs: (B, T) the same under the policy that sampled.
        ref_logprobs: (B, T) the same under the reference, if ``args.beta`` is not 0.
        batch: Masks, advantages, shares, and the totals of ``add_step_totals``.
        args: Clip ranges and β.
    """
    mask = batch["completion_mask"] * batch["tool_mask"]
    # Masked before any exponential: at environment tokens two policies may differ so much that it overflows.
    off = ~mask.bool()
    logprobs, old_logprobs = logprobs.masked_fill(off, 0.0), old_logprobs.masked_fill(off, 0.0)
    advantages = batch["advantages"] if batch["advantages"].ndim == 2 else batch["advantages"][:, None]
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    per_token = clipped_surrogate(logprobs, old_logprobs, advantages, args.epsilon, high, args.delta)
    if ref_logprobs is not None:
        kl = kl_penalty(logprobs, ref_logprobs.masked_fill(off, 0.0), "k3")
        if args.use_bias_correction_kl:  # as in TRL: its gradient is that of KL(π ‖ π_ref)
            kl = kl * (logprobs - old_logprobs).exp()
        per_token = per_token + args.beta * kl
    means = per_token.masked_fill(off, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # (B,)
    loss: torch.Tensor = (means * batch["trajectory_share"]).sum() / batch["step_trajectories"]
    return loss
