"""Bandits small enough to be enumerated: exact expectations, and the policy that A*-PO's regression fits."""

import math
from typing import Any

import torch

from ragen_trl.algorithms.advantages import group_advantages
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
            regression_loss(
                new.reshape(1, 1), old.reshape(1, 1), one, reward.reshape(1), value.reshape(1), beta, "paper"
            )[0]
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


# A deterministic task of two turns with two actions each: state 0, then state 1 or 2 after action 0 or 1. Action 0
# earns at once and is the better one for a player who then plays at random; the best way is action 1 twice.
FIRST_REWARDS = double([0.5, 0.0])
SECOND_REWARDS = double([[0.0, 0.1], [0.0, 1.0]])  # (first action, second action)
ACTION_MASK = torch.tensor([[1, 0, 1]])  # between the actions stands what the environment says
ENV_LOGPROB = -7.0  # of a token that was never sampled; it has to go nowhere


def episode_logprobs(logits: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of episodes of three tokens.

    Args:
        logits: (3, 2) logits of the actions in each state.
        first: (B,) first actions.
        second: (B,) second actions.

    Returns:
        (B, 3): first action, environment, second action.
    """
    logp = logits.log_softmax(dim=1)
    said = torch.full(first.shape, ENV_LOGPROB, dtype=logits.dtype)
    return torch.stack([logp[0, first], said, logp[1 + first, second]], dim=1)


def episode_rewards(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """(B, 3) rewards, each at its action."""
    return torch.stack([FIRST_REWARDS[first], double(0.0).expand(first.shape), SECOND_REWARDS[first, second]], dim=1)


def sampled_episodes(logits: torch.Tensor, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """First and second actions, (count,) each, of episodes played by the policy."""
    probs = logits.detach().softmax(dim=1)
    first = torch.multinomial(probs[0], count, replacement=True, generator=generator)
    second = torch.multinomial(probs[1 + first], 1, generator=generator)[:, 0]
    return first, second


def bandit_update(group_size: int, scale: Any, p_high: float = 0.5, shared: bool = False) -> float:
    """Expected step of group advantages on the logit of the Bandit's better arm, over all outcomes of a group.

    The low arm always pays 0.15, the high arm 1 in one of four pulls, 0.25 on average.

    Args:
        group_size: G.
        scale: As of `group_advantages`.
        p_high: Probability with which the policy pulls the high arm.
        shared: Whether all pulls of the high arm in a group pay alike, instead of each by its own outcome.
    """
    probs, returns, high = [], [], []
    for lows in range(group_size + 1):
        pulls = group_size - lows
        arms = math.comb(group_size, lows) * (1 - p_high) ** lows * p_high**pulls
        for wins in (0, pulls) if shared else range(pulls + 1):
            luck = math.comb(pulls, wins) * 0.25**wins * 0.75 ** (pulls - wins)
            if shared:
                luck = 0.25 if wins else 0.75
            probs.append(arms * luck)
            returns.append([0.15] * lows + [1.0] * wins + [0.0] * (pulls - wins))
            high.append([0.0] * lows + [1.0] * pulls)
    advantages = group_advantages(double(returns).flatten(), group_size, scale=scale).reshape(-1, group_size)
    gradients = double(high) - p_high  # of log π(arm) with respect to the logit of the high arm
    return float((double(probs) * (advantages * gradients).mean(dim=1)).sum())
