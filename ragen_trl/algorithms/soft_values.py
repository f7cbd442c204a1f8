r"""Soft values of start states: A\*-PO's V*, and how certain it is.

Everything is computed in float64, because with a small β the exponents differ by hundreds. V* is the value of
*trajectories*: where outcomes are random, it treats a lucky outcome like a good choice and lies above the soft value of
the decisions (for the Bandit at β = 0.5: 0.340 instead of 0.202). As a baseline for the policy in training this does no
harm; for other samples take a larger β.
"""

import math

import torch

from ragen_trl.system.float64 import in_float64


def soft_value(returns: torch.Tensor, beta: float) -> torch.Tensor:
    r"""V* estimated from returns of the reference policy (Brantley et al. 2025, stage 1).

    .. math:: V^* = \beta \log \frac{1}{N} \sum_{i=1}^N e^{R_i / \beta}

    ``returns`` are (..., N) raw ones from one start state, ``beta`` is β₁ in units of the return, above 0, and V* is
    (...) float64. It lies between the returns' mean (β → ∞; mean + variance / 2β for a large β) and maximum (β → 0).

    Example:
        >>> soft_value(torch.tensor([0.0, 0.0, 0.0, 1.0]), beta=0.5)
        tensor(0.4772, dtype=torch.float64)
    """
    returns = in_float64(returns)
    most = returns.amax(dim=-1)
    # log1p and expm1 keep the digits that log and exp would lose to the 1 when β is large.
    return most + beta * torch.log1p(torch.expm1((returns - most.unsqueeze(-1)) / beta).mean(dim=-1))


def soft_value_std_error(returns: torch.Tensor, beta: float, pooled: torch.Tensor) -> torch.Tensor:
    r"""Standard error of ``soft_value``, by the delta method on the weights :math:`w_i = e^{R_i / \beta}`.

    Eight failures out of eight have no spread, but that does not prove that V* is their mean. So mean and variance of
    the weights are those of a mixture: N shares of the sample, and one of ``pooled``, the returns of all start states.

    .. math:: \mathrm{SE} = \frac{\beta}{\sqrt N} \frac{s}{\bar w}, \quad
       \bar w = \frac{N\,\mathrm E[w] + \mathrm E_p[w]}{N + 1}, \quad
       s^2 = \frac{N\,\mathrm E[w^2] + \mathrm E_p[w^2]}{N + 1} - \bar w^2

    ``returns`` are (..., N) raw ones from one start state, ``beta`` is β₁ in units of the return, above 0, ``pooled``
    is (M,). The error is (...) float64, in units of the return; 0 only if neither the sample nor the pool has any
    spread.
    """
    returns, count = in_float64(returns), returns.shape[-1]
    pool = in_float64(pooled).expand(*returns.shape[:-1], -1)
    most = torch.maximum(returns.amax(dim=-1, keepdim=True), pool.amax(dim=-1, keepdim=True))
    weights, of_pool = ((values - most).div(beta).exp() for values in (returns, pool))
    mean = (count * weights.mean(dim=-1) + of_pool.mean(dim=-1)) / (count + 1)
    squares, squares_of_pool = ((each - mean.unsqueeze(-1)).square().mean(dim=-1) for each in (weights, of_pool))
    variance = (count * squares + squares_of_pool) / (count + 1)
    return beta * variance.sqrt() / (mean * math.sqrt(count))


def return_range(returns: torch.Tensor) -> float:
    """Largest minus smallest return. In this unit β₁ and β₂ mean the same in every environment."""
    return (returns.max() - returns.min()).item()
