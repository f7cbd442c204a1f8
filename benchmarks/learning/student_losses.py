"""The losses and the credit of the two student reports (see ``student_reports.py``): pure functions.

They are not in ``ragen_trl``, because nobody should train with them. Left out: scoring a token by the logits of the
next one, which made the first report's k1 a number about other tokens.
"""

import torch

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.algorithms.losses import aggregate, kl_penalty


def imitation_weights(advantages: torch.Tensor, temperature: float) -> torch.Tensor:
    r"""First report: (B,) :math:`w_i = e^{A_i / \beta} / \tfrac1B \sum_j e^{A_j / \beta}`, mean 1 and never negative.

    Args:
        advantages: (B,) return minus V*.
        temperature: β, in units of the return, above 0.

    Example:
        >>> imitation_weights(torch.tensor([-5.0]), temperature=0.3)
        tensor([1.])
    """
    return len(advantages) * (advantages / temperature).softmax(dim=0)


def imitation_loss(
    logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor,
    action_mask: torch.Tensor,
    weights: torch.Tensor,
    kl_coef: float,
    normaliser: torch.Tensor | float | None = None,
) -> torch.Tensor:
    r"""First report: :math:`\frac1n \sum_i w_i (\mathrm{CE}_i + c\, \mathrm{k1}_i)`, both means over sampled tokens.

    Args:
        logprobs: (B, T) under the trained policy, nats.
        ref_logprobs: (B, T) the same under the reference, without gradient.
        action_mask: (B, T) 1 at sampled tokens.
        weights: (B,) see ``imitation_weights``.
        kl_coef: c.
        normaliser: n, trajectories of the whole batch; the default is those in ``action_mask``.
    """
    losses = weights[:, None] * (kl_coef * kl_penalty(logprobs, ref_logprobs, "k1") - logprobs)
    return aggregate(losses, action_mask, "seq_mean_token_mean", normaliser)


def sum_of_scores(rewards: torch.Tensor, weights: torch.Tensor, group_size: int) -> torch.Tensor:
    r"""Second report: (B,) :math:`A_i = \sum_f w_f\, z_f(i)`, every reward normalised within its group, then summed.

    Args:
        rewards: (B, F), groups contiguous; NaN counts as 0.
        weights: (F,) of the rewards.
        group_size: G, at least 2.

    Example:
        A hundredth of the second reward decides as soon as the first one is equal:

        >>> rewards = torch.tensor([[0.0, 0.05], [0.0, 0.06], [0.0, 0.05], [0.0, 0.04]])
        >>> sum_of_scores(rewards, torch.tensor([1.0, 0.4]), group_size=4).mul(100).round()
        tensor([  0.,  49.,   0., -49.])
    """
    columns = rewards.nan_to_num(nan=0.0).T
    scores = torch.stack([group_advantages(column.contiguous(), group_size) for column in columns], dim=1)  # (B, F)
    return (scores * weights).sum(dim=1)


def scaled_likelihood_loss(
    logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor,
    action_mask: torch.Tensor,
    advantages: torch.Tensor,
    advantage_scale: float,
    kl_coef: float,
    normaliser: torch.Tensor | float | None = None,
) -> torch.Tensor:
    r"""Second report: mean over sampled tokens of :math:`-T A \log \pi + c\, (\log \pi - \log \pi_{ref})`.

    Unbounded below wherever :math:`T A < c`: neither a ratio, nor a clip, nor k1 holds a token back on its way to
    probability 0.

    Args:
        logprobs: (B, T) under the trained policy, nats.
        ref_logprobs: (B, T) the same under the reference, without gradient.
        action_mask: (B, T) 1 at sampled tokens.
        advantages: (B,) see ``sum_of_scores``.
        advantage_scale: T.
        kl_coef: c.
        normaliser: Sampled tokens of the whole batch; the default is the count in ``action_mask``.
    """
    losses = kl_coef * kl_penalty(logprobs, ref_logprobs, "k1") - advantage_scale * advantages[:, None] * logprobs
    return aggregate(losses, action_mask, "token_mean", normaliser)
