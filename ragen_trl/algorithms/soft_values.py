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


def soft_value_std_error(
    returns: torch.Tensor, beta: float, pooled: torch.Tensor | None = None, prior_count: float = 1.0
) -> torch.Tensor:
    r"""Standard error of ``soft_value``, by the delta method on the weights :math:`w_i = e^{R_i / \beta}`.

    .. math:: \mathrm{SE} = \frac{\beta}{\sqrt N} \frac{s}{\bar w}

    Eight failures out of eight have no spread, but that does not prove that V* is their mean. So mean and variance of
    the weights may be those of a mixture: N shares of the sample and ``prior_count`` (:math:`n_0`) shares of
    ``pooled``, the returns of all start states:

    .. math:: \bar w = \frac{N\,\mathrm E[w] + n_0 \mathrm E_p[w]}{N + n_0}, \quad
       s^2 = \frac{N\,\mathrm E[w^2] + n_0 \mathrm E_p[w^2]}{N + n_0} - \bar w^2

    Without a pool s² is the variance with divisor N, which for returns of 0 and 1 gives
    :math:`\beta c \sqrt{p(1-p)} / ((1 + pc) \sqrt N)` with :math:`c = e^{1/\beta} - 1`.

    Args:
        returns: (..., N) raw returns from one start state.
        beta: β₁, in units of the return, above 0.
        pooled: (M,) returns of all start states together; ``None`` for the sample alone.
        prior_count: n₀, at least 0.

    Returns:
        (...) float64, in units of the return. 0 only if neither the sample nor the pool has any spread.
    """
    returns = in_float64(returns)
    num_samples = returns.shape[-1]
    pool, shares = returns, 0.0
    if pooled is not None:
        pool = in_float64(pooled).expand(*returns.shape[:-1], -1)
        shares = prior_count
    most = torch.maximum(returns.amax(dim=-1, keepdim=True), pool.amax(dim=-1, keepdim=True))
    weights, pool_weights = ((values - most).div(beta).exp() for values in (returns, pool))
    sample_share, pool_share = num_samples / (num_samples + shares), shares / (num_samples + shares)
    mean = sample_share * weights.mean(dim=-1) + pool_share * pool_weights.mean(dim=-1)
    variance = sample_share * (weights - mean.unsqueeze(-1)).square().mean(dim=-1)
    variance = variance + pool_share * (pool_weights - mean.unsqueeze(-1)).square().mean(dim=-1)
    return beta * variance.sqrt() / (mean * math.sqrt(num_samples))


def return_range(returns: torch.Tensor) -> float:
    """Largest minus smallest return. In this unit β₁ and β₂ mean the same in every environment."""
    return (returns.max() - returns.min()).item()
