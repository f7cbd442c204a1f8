"""Losses beyond the vectors: by hand, identities, and what must make no difference."""

import math
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.losses import (
    clipped_surrogate,
    kl_penalty,
    regression_loss,
    sampler_ratio,
    value_loss,
)
from tests.support.ragen_trl.trainers import double

MASK = torch.tensor([[1, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0]])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, of)[0]


def test_the_value_loss_by_hand() -> None:
    """Errors 1 and 4 without a clip; with ±0.5 around the old values the first one grows to 2.25, from V = 0.5."""
    values, old, returns = double([[1.0, 2.0, 9.0]]), double([[0.0, 2.0, 9.0]]), double([[2.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0]])
    loss, fraction = value_loss(values, old, returns, mask)
    assert (loss.item(), fraction.item()) == (0.5 * (1.0 + 4.0) / 2, 0.0)
    loss, fraction = value_loss(values, old, returns, mask, clip=0.5)
    assert (loss.item(), fraction.item()) == (0.5 * (2.25 + 4.0) / 2, 0.5)
    assert value_loss(values, old, returns, mask, clip=0.5, normaliser=10)[0].item() == 0.5 * 6.25 / 10
    assert value_loss(values, old + 1, returns, mask, clip=0.5)[0].item() == 0.5 * (1.0 + 6.25) / 2  # from V = 2.5


def test_values_at_environment_tokens_reach_neither_value_loss_nor_gradient() -> None:
    values, mask = double([[1.0, math.inf]]).requires_grad_(), torch.tensor([[1, 0]])
    nonsense = double([[0.5, math.nan]])
    loss, fraction = value_loss(values, nonsense, nonsense, mask, clip=0.2)
    assert (loss.item(), fraction.item()) == (0.125, 0.0)
    assert gradient(loss, values).tolist() == [[0.5, 0.0]]


def test_k3_keeps_its_digits_near_the_reference() -> None:
    """Regression: exp(-d) - 1 + d loses all digits to rounding where d²/2 is below the precision of 1."""
    near = torch.tensor(1e-4, dtype=torch.float32)
    assert kl_penalty(near, torch.zeros(()), "k3").item() == pytest.approx(5e-9, rel=0.5)


@pytest.mark.parametrize("shape", [(3,), (1, 3, 1), (3, 3, 4), (1, 4)])
def test_advantages_that_broadcast_further_are_refused(shape: tuple[int, ...]) -> None:
    """Regression: (B, T)[:, None] became (B, B, T), and a loss eleven times as large."""
    with pytest.raises(ValueError, match="advantages has shape .* and logprobs \\(3, 4\\); give one"):
        clipped_surrogate(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(shape), 0.2, 0.28)


# A*-PO's regression

BETA = 0.3


def batch(seed: int = 0) -> dict[str, Any]:
    """Arguments for four trajectories of up to 6 tokens."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"logprobs": (4, 6), "ref_logprobs": (4, 6), "advantages": (4,)}
    drawn = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    return {**drawn, "action_mask": MASK, "beta2": BETA}


def loss_and_gradient(arguments: dict[str, Any], **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs = arguments["logprobs"].clone().requires_grad_()
    loss, _, _ = regression_loss(**{**arguments, "logprobs": logprobs}, **options)
    return loss.detach(), torch.autograd.grad(loss, logprobs)[0]


@pytest.mark.parametrize("nonsense", [-50.0, math.inf, math.nan])
def test_log_probabilities_of_environment_tokens_make_no_difference(nonsense: float) -> None:
    """Regression: with them in the sum, one long observation outweighs every reward."""
    arguments = batch()
    loss, slope = loss_and_gradient(arguments)
    assert loss_and_gradient(arguments, scale="paper")[0].item() == pytest.approx(2 * BETA * loss.item(), rel=1e-12)
    other = {**arguments, "logprobs": arguments["logprobs"].masked_fill(MASK == 0, nonsense)}
    other_loss, other_slope = loss_and_gradient(other)
    assert torch.equal(other_loss, loss)
    assert torch.equal(other_slope, slope)


# Importance ratios for what the sampler computes otherwise

# Ratios of 2, 1/2 and 8 | an environment token, then one of 3 and one that the sampler could not score.
DIFFERENCES = torch.tensor([[2.0, 0.5, 8.0], [99.0, 3.0, math.nan]]).log()
SAMPLED = torch.tensor([[1, 1, 1], [0, 1, 1]])
CASES = [
    ("token_truncate", None, 4.0, [[2.0, 0.5, 4.0], [1.0, 3.0, 1.0]]),
    ("token_truncate", 1.0, 2.5, [[2.0, 1.0, 2.5], [1.0, 2.5, 1.0]]),
    ("token_mask", 1.0, 2.5, [[2.0, 0.0, 0.0], [1.0, 0.0, 1.0]]),
    ("token_mask", None, None, [[2.0, 0.5, 8.0], [1.0, 3.0, 1.0]]),
]


@pytest.mark.parametrize(("mode", "low", "high", "expected"), CASES)
def test_ratios_by_hand(mode: str, low: float | None, high: float | None, expected: list[list[float]]) -> None:
    sampled = torch.full((2, 3), -1.5)
    found, beyond = sampler_ratio(sampled + DIFFERENCES, sampled, SAMPLED, mode, low, high)
    torch.testing.assert_close(found, torch.tensor(expected))
    unbounded, _ = sampler_ratio(sampled + DIFFERENCES, sampled, SAMPLED, mode)
    assert torch.equal(beyond, found != unbounded)
