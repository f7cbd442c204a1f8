r"""Soft values of start states: A\*-PO's V*, how certain it is, and when it is out of date. Pure functions.

The cache keeps raw returns, not V*: then another β₁ needs no new episodes, and more samples simply join the old ones.
Everything is in float64: with a small β the exponents differ by hundreds.

V* is the value of *trajectories*. Where outcomes are random, the log-mean-exp also takes good luck for a choice and
lies above the soft value of the decisions (for the Bandit at β = 0.5: 0.340 instead of 0.202). With samples of the
policy that is being trained it is a baseline and does no harm; for other samples take a larger β. Left out therefore:
soft values of later states, which would separate the two.
"""

import math

import torch

from ragen_trl.algorithms.filtering import ZERO_STD


def soft_value(returns: torch.Tensor, beta: float) -> torch.Tensor:
    r"""V* estimated from returns of the reference policy (Brantley et al. 2025, stage 1).

    .. math:: V^* = \beta \log \frac{1}{N} \sum_{i=1}^N e^{R_i / \beta}

    It lies between the mean (β → ∞; mean + variance / 2β for a large β) and the maximum (β → 0) of the returns.

    Args:
        returns: (..., N) raw returns from one start state.
        beta: β₁, in units of the return, above 0.

    Returns:
        (...) float64. Ragged samples: one call each.

    Raises:
        ValueError: If β is not positive, or there is no return, or one is not finite.

    Example:
        >>> soft_value(torch.tensor([0.0, 0.0, 0.0, 1.0]), beta=0.5)
        tensor(0.4772, dtype=torch.float64)
    """
    returns = _checked(returns, beta)
    most = returns.amax(dim=-1)
    # log1p and expm1 keep the digits that log and exp would lose to the 1 when β is large.
    return most + beta * torch.log1p(torch.expm1((returns - most.unsqueeze(-1)) / beta).mean(dim=-1))


def reweighted_soft_value(returns: torch.Tensor, log_ratios: torch.Tensor, beta: float) -> torch.Tensor:
    r"""V* of the reference from episodes of another policy π.

    .. math:: V^* = \beta \log \frac{1}{N} \sum_i \exp(R_i / \beta - \Delta_i), \quad
       \Delta_i = \log \pi(\tau_i) - \log \pi_{ref}(\tau_i)

    Unbiased before the logarithm, and without variance at the optimal policy. Far from the reference a few samples
    carry all the weight: of use while :math:`|\Delta|` is a few nats.

    Args:
        returns: (..., N) returns of episodes played by π.
        log_ratios: (..., N) Δ, summed over sampled tokens, nats.
        beta: β₁, in units of the return, above 0.

    Raises:
        ValueError: As ``soft_value``.
    """
    return soft_value(returns.double() - beta * log_ratios.double(), beta)


def merge_soft_values(value1: float, count1: int, value2: float, count2: int, beta: float) -> float:
    """V* of two samples taken together, exactly, from the V* of each.

    Args:
        value1: V* of the first sample.
        count1: Its number of returns, at least 1.
        value2: V* of the second sample.
        count2: Its number of returns, at least 1.
        beta: The β₁ of both.

    Raises:
        ValueError: If β or a count is not positive, or a value is not finite.
    """
    if min(count1, count2) < 1:
        raise ValueError(f"counts are {count1} and {count2}; merge samples of at least one return each")
    value1, value2 = _checked(torch.tensor([value1, value2], dtype=torch.float64), beta).tolist()
    most = max(value1, value2)
    weight1, weight2 = (
        count / (count1 + count2) * math.exp((value - most) / beta)
        for value, count in ((value1, count1), (value2, count2))
    )
    return most + beta * math.log(weight1 + weight2)


def soft_value_std_error(
    returns: torch.Tensor, beta: float, pooled: torch.Tensor | None = None, prior_count: float = 1.0
) -> torch.Tensor:
    r"""Standard error of ``soft_value``, by the delta method on the weights :math:`w_i = e^{R_i / \beta}`.

    .. math:: \mathrm{SE} = \frac{\beta}{\sqrt N} \frac{s}{\bar w}

    Eight failures out of eight have no spread, and yet V* is not known to be their mean. With ``pooled``, returns of
    all start states, mean and variance of the weights are those of the mixture of N shares of the sample and
    ``prior_count`` (:math:`n_0`) shares of the pool:

    .. math:: \bar w = \frac{N\,\mathrm E[w] + n_0 \mathrm E_p[w]}{N + n_0}, \quad
       s^2 = \frac{N\,\mathrm E[w^2] + n_0 \mathrm E_p[w^2]}{N + n_0} - \bar w^2

    The mean is mixed in as well as the variance, because for a small β the mean weight of failures alone is almost 0.
    Without a pool s² is the variance with divisor N, which for returns of 0 and 1 gives
    :math:`\beta c \sqrt{p(1-p)} / ((1 + pc) \sqrt N)` with :math:`c = e^{1/\beta} - 1`.

    Args:
        returns: (..., N) raw returns from one start state.
        beta: β₁, in units of the return, above 0.
        pooled: (M,) returns of all start states together; ``None`` for the sample alone.
        prior_count: n₀, at least 0.

    Returns:
        (...) float64, in units of the return. 0 only where the sample has no spread and no pool tells of any.

    Raises:
        ValueError: As ``soft_value``, for either set of returns; or if ``prior_count`` is negative.
    """
    if prior_count < 0:
        raise ValueError(f"prior_count is {prior_count}; it is a number of returns, so at least 0")
    returns = _checked(returns, beta)
    num_samples = returns.shape[-1]
    pool, shares = returns, 0.0
    if pooled is not None:
        pool = _checked(pooled, beta).expand(*returns.shape[:-1], -1)
        shares = prior_count
    most = torch.maximum(returns.amax(dim=-1, keepdim=True), pool.amax(dim=-1, keepdim=True))
    weights, pool_weights = ((values - most).div(beta).exp() for values in (returns, pool))
    sample_share, pool_share = num_samples / (num_samples + shares), shares / (num_samples + shares)
    mean = sample_share * weights.mean(dim=-1) + pool_share * pool_weights.mean(dim=-1)
    variance = sample_share * (weights - mean.unsqueeze(-1)).square().mean(dim=-1)
    variance = variance + pool_share * (pool_weights - mean.unsqueeze(-1)).square().mean(dim=-1)
    return beta * variance.sqrt() / (mean * math.sqrt(num_samples))


def return_range(returns: torch.Tensor) -> float:
    """Largest minus smallest return: the unit in which β₁ and β₂ are given.

    V* of scaled returns at a scaled β is scaled alike, so that a β in this unit means the same in every environment.

    Returns:
        The range; 0 if all returns are equal, and then there is no scale to be measured.

    Raises:
        ValueError: If there is no return or one is not finite.
    """
    returns = _checked(returns, beta=1.0)
    return (returns.max() - returns.min()).item()


def is_stale(
    returns: torch.Tensor,
    soft_values: torch.Tensor,
    std_errors: torch.Tensor,
    starts: torch.Tensor,
    threshold: float = 3.0,
) -> bool:
    r"""Whether the policy has outgrown its V*: its returns lie above V* by more than chance allows.

    True if :math:`\overline{R - V^*} > k \cdot \mathrm{SE}` with
    :math:`\mathrm{SE}^2 = \mathrm{Var}(R - V^*)/n + \sum_s (n_s \mathrm{SE}_s)^2 / n^2`: the chance in the returns, and
    the error of V*, which the :math:`n_s` trajectories from one start state share.

    One-sided by design. V* is at least the mean return of the reference, so a policy that has just left it lies *below*
    V*, rightly. Once it earns more than V* on average, nearly every trajectory is reinforced, good or not.

    Args:
        returns: (n,) returns of the policy over a window of training.
        soft_values: (n,) the V* that each was compared with.
        std_errors: (n,) their standard errors, see ``soft_value_std_error``.
        starts: (n,) integers, equal for trajectories that share a start state and thus a V*.
        threshold: k, standard errors.

    Returns:
        ``False`` for fewer than 2 trajectories, which tell nothing of chance.

    Raises:
        ValueError: If the shapes differ.
    """
    if not returns.shape == soft_values.shape == std_errors.shape == starts.shape:
        shapes = [tuple(tensor.shape) for tensor in (returns, soft_values, std_errors, starts)]
        raise ValueError(f"returns, soft_values, std_errors and starts have shapes {shapes}; all must be (n,)")
    count = returns.numel()
    if count < 2:
        return False
    gaps = returns.double() - soft_values.double()
    _, index = starts.unique(return_inverse=True)
    shared = gaps.new_zeros(count).index_add(0, index, std_errors.double())  # Σ over a start is n_s · SE_s
    error = (gaps.var(correction=1) / count + shared.square().sum() / count**2).sqrt()
    rounding = ZERO_STD * returns.abs().max().clamp(min=1.0)
    return bool(gaps.mean() > torch.maximum(threshold * error, rounding))


def _checked(returns: torch.Tensor, beta: float) -> torch.Tensor:
    """The returns in float64, if there are any and all make sense."""
    if not beta > 0:
        raise ValueError(f"beta is {beta}; choose a positive one, such as half the range of the returns")
    if returns.numel() == 0:
        raise ValueError("a soft value needs at least one return; play an episode from this start state first")
    if not bool(torch.isfinite(returns).all()):
        raise ValueError(f"returns are {returns.tolist()}; a reward was NaN or infinite")
    return returns.double()
