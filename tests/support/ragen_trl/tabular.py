"""Bandits small enough to be enumerated: exact expectations, and the policy that A*-PO's regression fits."""

from typing import Any

import torch

from ragen_trl.algorithms.losses import regression_loss


def double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def under(probs: torch.Tensor, returns: torch.Tensor, beta: float) -> torch.Tensor:
    """Returns whose log-mean-exp over K equal parts is that of `returns` under the probabilities `probs`, (K,)."""
    return returns + beta * (len(probs) * probs).log()


def arm_losses(
    logits: torch.Tensor, pi0: torch.Tensor, rewards: torch.Tensor, value: torch.Tensor, beta: float
) -> torch.Tensor:
    """A*-PO's loss, on the paper's scale, of pulling each of K arms: trajectories of one token; (K,)."""
    logp = logits.log_softmax(dim=0)
    one = torch.ones(1, 1)
    return torch.stack(
        [
            regression_loss(new.reshape(1, 1), old.reshape(1, 1), one, (reward - value).reshape(1), beta, "paper")[0]
            for new, old, reward in zip(logp, pi0.log(), rewards, strict=True)
        ]
    )


def fitted_policy(
    pi0: torch.Tensor, rewards: torch.Tensor, value: torch.Tensor, beta: float, sampling: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The policy of least expected loss over arms drawn from `sampling`, (K,), and that loss, by Newton's method."""

    def expected_loss(logits: torch.Tensor) -> torch.Tensor:
        return (sampling * arm_losses(logits, pi0, rewards, value, beta)).sum()

    logits = pi0.log().requires_grad_()
    for _ in range(20):
        (slope,) = torch.autograd.grad(expected_loss(logits), logits)
        # A shift of all logits changes no policy, so the curvature is singular in that direction.
        curvature = torch.autograd.functional.hessian(expected_loss, logits)
        logits = (logits - torch.linalg.pinv(curvature, hermitian=True, rtol=1e-9) @ slope).detach().requires_grad_()
    return logits.detach().softmax(dim=0), expected_loss(logits).detach()
