"""Whole algorithms on tasks small enough to be solved exactly: where they end, and which way they step.

Policies are tables of logits in float64. A*-PO is checked in exact expectation, by full enumeration; PPO and GRPO learn
from episodes that are sampled with a seeded generator. None of this says anything about language models.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.gae import token_gae
from ragen_trl.algorithms.losses import aggregate, clipped_surrogate, regression_loss, value_loss
from ragen_trl.algorithms.soft_values import soft_value
from tests.support.ragen_trl.tabular import (
    ACTION_MASK,
    ENV_LOGPROB,
    FIRST_REWARDS,
    SECOND_REWARDS,
    arm_losses,
    bandit_update,
    double,
    episode_logprobs,
    episode_rewards,
    fitted_policy,
    sampled_episodes,
    under,
)

ARMS_REF, ARMS_REWARDS, ARMS_BETA = double([0.5, 0.3, 0.2]), double([0.0, 1.0, 0.5]), 0.5
ARMS_VALUE = soft_value(under(ARMS_REF, ARMS_REWARDS, ARMS_BETA), ARMS_BETA)
ARMS_OPTIMUM = double([0.153357, 0.679897, 0.166747])  # vector as8: ref · exp((r - V*) / β)
ALL_FIRST, ALL_SECOND = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
REFERENCE = double([[0.4, -0.4], [0.0, 0.3], [0.5, -0.2]])  # logits of a two-turn reference that is not uniform


def descend(loss: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, steps: int, rate: float) -> torch.Tensor:
    """Plain gradient descent, one update per batch."""
    logits = start.clone().requires_grad_()
    for _ in range(steps):
        (slope,) = torch.autograd.grad(loss(logits), logits)
        logits = (logits - rate * slope).detach().requires_grad_()
    return logits.detach()


def bandit_loss(value: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Expected A*-PO loss under the policy's own pulls, whose choice is not differentiated."""

    def loss(logits: torch.Tensor) -> torch.Tensor:
        pulls = logits.detach().softmax(dim=0)
        return (pulls * arm_losses(logits, ARMS_REF, ARMS_REWARDS, value, ARMS_BETA)).sum()

    return loss


def test_the_soft_value_and_the_optimum_of_three_arms_are_those_worked_by_hand() -> None:
    assert ARMS_VALUE.item() == pytest.approx(0.590921, abs=1e-6)
    optimum = ARMS_REF * ((ARMS_REWARDS - ARMS_VALUE) / ARMS_BETA).exp()
    torch.testing.assert_close(optimum, ARMS_OPTIMUM, atol=1e-6, rtol=0)


@pytest.mark.parametrize("error", [0.0, 0.7, -0.5])
def test_on_its_own_pulls_the_policy_reaches_the_optimum_of_three_arms_whatever_v_is(error: float) -> None:
    found = descend(bandit_loss(ARMS_VALUE + error), ARMS_REF.log(), steps=400, rate=0.5).softmax(dim=0)
    torch.testing.assert_close(found, ARMS_OPTIMUM, atol=1e-3, rtol=0)


@pytest.mark.parametrize("error", [0.7, -0.5])
def test_on_its_own_pulls_the_gradient_does_not_depend_on_v(error: float) -> None:
    logits = double([0.3, -0.2, 0.1]).requires_grad_()
    exact, wrong = (torch.autograd.grad(bandit_loss(ARMS_VALUE + offset)(logits), logits)[0] for offset in (0.0, error))
    torch.testing.assert_close(wrong, exact, atol=1e-12, rtol=0)
    assert exact.abs().max() > 0.1


@pytest.mark.parametrize("sampling", [[0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
def test_on_other_pulls_the_exact_v_gives_the_optimum_and_a_wrong_one_another_policy(sampling: list[float]) -> None:
    fitted, loss = fitted_policy(ARMS_REF, ARMS_REWARDS, ARMS_VALUE, ARMS_BETA, double(sampling))
    torch.testing.assert_close(fitted, ARMS_OPTIMUM, atol=1e-3, rtol=0)
    assert loss < 1e-12
    biased, biased_loss = fitted_policy(ARMS_REF, ARMS_REWARDS, ARMS_VALUE + 0.3, ARMS_BETA, double(sampling))
    assert (biased - ARMS_OPTIMUM).abs().max() > 0.05
    assert biased_loss > 0.01


def soft_optimal_episodes(beta: float) -> torch.Tensor:
    """(4,) probability of each way through the two turns, by soft Bellman backups from the end."""
    ref = REFERENCE.softmax(dim=1)
    second_values = [soft_value(under(ref[1 + a], SECOND_REWARDS[a], beta), beta) for a in (0, 1)]
    second = torch.stack([ref[1 + a] * ((SECOND_REWARDS[a] - second_values[a]) / beta).exp() for a in (0, 1)])
    first_returns = FIRST_REWARDS + torch.stack(second_values)
    value = soft_value(under(ref[0], first_returns, beta), beta)
    first = ref[0] * ((first_returns - value) / beta).exp()
    return (first[:, None] * second).flatten()


@pytest.mark.parametrize("beta", [0.2, 0.5])
@pytest.mark.parametrize("own_episodes", [True, False])
def test_two_turns_end_at_the_exact_soft_optimal_policy(own_episodes: bool, beta: float) -> None:
    """All four episodes, weighted by the policy's own probabilities or evenly."""
    returns = episode_rewards(ALL_FIRST, ALL_SECOND).sum(dim=1)
    ref_logprobs = episode_logprobs(REFERENCE, ALL_FIRST, ALL_SECOND)
    ref_logprobs[:, 1] = 5.0  # another mask than this would give the environment's token a log-ratio of -12
    ref_probs = (ref_logprobs * ACTION_MASK).sum(dim=1).exp()
    value = soft_value(under(ref_probs, returns, beta), beta)

    def loss(logits: torch.Tensor) -> torch.Tensor:
        logprobs = episode_logprobs(logits, ALL_FIRST, ALL_SECOND)
        weights = (logprobs.detach() * ACTION_MASK).sum(dim=1).exp() if own_episodes else double([0.25] * 4)
        each = zip(logprobs, ref_logprobs, returns, weights, strict=True)
        return sum(
            weight * regression_loss(p[None], q[None], ACTION_MASK, r[None], value[None], beta)[0]
            for p, q, r, weight in each
        )

    logits = descend(loss, REFERENCE, steps=400, rate=3.0)
    logprobs = episode_logprobs(logits, ALL_FIRST, ALL_SECOND)
    found = (logprobs * ACTION_MASK).sum(dim=1).exp()
    torch.testing.assert_close(found, soft_optimal_episodes(beta), atol=1e-3, rtol=0)
    assert (found - ref_probs).abs().max() > 0.1
    assert logprobs[0, 1] == ENV_LOGPROB


def ppo_advantages(first: torch.Tensor, second: torch.Tensor, values: torch.Tensor) -> Any:
    mask = ACTION_MASK.expand(len(first), -1)
    return token_gae(episode_rewards(first, second), values, mask, gamma=1.0, lam=0.95)


def state_values(critic: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """(B, 3) values of the states before each token; nonsense before the environment's."""
    return torch.stack([critic[0].expand(first.shape), double(-99.0).expand(first.shape), critic[1 + first]], dim=1)


def best_way(logits: torch.Tensor) -> torch.Tensor:
    """(2,) probabilities of the best first action and of the best second one after it."""
    probs = logits.detach().softmax(dim=1)
    return torch.stack([probs[0, 1], probs[2, 1]])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_with_a_tabular_critic_solves_two_turns(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, critic = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True), torch.zeros(3, dtype=torch.float64)
    critic.requires_grad_()
    optimizer = torch.optim.Adam([logits, critic], lr=0.1)
    mask = ACTION_MASK.expand(64, -1)
    for _ in range(100):
        first, second = sampled_episodes(logits, 64, generator)
        old_logprobs = episode_logprobs(logits, first, second).detach()
        old_values = state_values(critic, first).detach()
        advantages, returns = ppo_advantages(first, second, old_values)
        for _ in range(2):
            policy = clipped_surrogate(
                episode_logprobs(logits, first, second), old_logprobs, whiten(advantages, mask), 0.2, 0.28, 3.0
            )
            error, _ = value_loss(state_values(critic, first), old_values, returns, mask, clip=0.5)
            optimizer.zero_grad()
            (aggregate(policy, mask, "token_mean") + error).backward()
            optimizer.step()
    assert best_way(logits).min() > 0.99
    assert critic[2].item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_grpo_solves_two_turns(seed: int, scale: Any) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(100):
        first, second = sampled_episodes(logits, 64, generator)
        returns = episode_rewards(first, second).sum(dim=1)
        advantages = group_advantages(returns, 8, scale=scale)[:, None]  # (64, 1)
        old_logprobs = episode_logprobs(logits, first, second).detach()
        for _ in range(2):
            losses = clipped_surrogate(episode_logprobs(logits, first, second), old_logprobs, advantages, 0.2, 0.28)
            optimizer.zero_grad()
            aggregate(losses, ACTION_MASK.expand(64, -1), "seq_mean_token_mean").backward()
            optimizer.step()
    assert best_way(logits).min() > 0.99


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("p_high", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("group_size", [2, 4, 16, 32])
def test_differences_from_the_mean_step_towards_the_better_arm(group_size: int, p_high: float, shared: bool) -> None:
    """By p (1 - p) times what the arms differ by, 0.1, less the episode's own share of the baseline."""
    expected = p_high * (1 - p_high) * 0.1 * (group_size - 1) / group_size
    assert bandit_update(group_size, "none", p_high, shared) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("group_size", [2, 3, 4, 8, 16, 32])
def test_divided_by_the_deviation_shared_luck_steps_away_from_the_better_arm(group_size: int) -> None:
    """Regression: RAGEN's groups share the outcomes. Who wins is what counts then: 3 times in 4 the low arm."""
    assert bandit_update(group_size, "group", shared=True) < -0.08


@pytest.mark.parametrize(
    ("group_size", "update"), [(2, -0.0884), (4, -0.1253), (8, -0.0624), (16, 0.0194), (32, 0.0613)]
)
def test_divided_by_the_deviation_own_luck_needs_a_large_group(group_size: int, update: float) -> None:
    """With their own outcome seeds, groups of 16 step towards the better arm, groups up to 8 still away from it."""
    assert bandit_update(group_size, "group") == pytest.approx(update, abs=1e-4)
