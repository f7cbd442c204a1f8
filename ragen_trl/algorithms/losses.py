"""StarPO's objective, and the losses and penalties that it and other algorithms are made of.

Whatever averages takes the count over the *whole* optimizer step, all micro-batches and processes, so the losses of the
parts add up to the loss of the step. A mean of micro-batch means would not, as soon as they differ in size.
"""

from typing import Literal

import torch


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    shares: torch.Tensor,
    step_tokens: torch.Tensor | float,
    step_trajectories: torch.Tensor | float,
    kind: str = "grpo",
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    dual_clip: float | None = None,
    ratios_of: Literal["token", "sequence"] = "token",
    sampler_ratio: torch.Tensor | None = None,
    ref_logprobs: torch.Tensor | None = None,
    beta: float = 0.0,
    unbiased_kl: bool = False,
    longest: int | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    r"""StarPO's loss of the segments of a micro-batch.

    .. math:: \ell_{it} = c_{it} \, \max\bigl(-\rho_{it} A_{it},\ -\mathrm{clip}(\rho_{it}) A_{it}\bigr)
       + \beta \, k_3(\pi, \pi_{ref}), \qquad \rho_{it} = \pi(y_{it}) / \pi_{old}(y_{it})

    ============= =========================================================== ==============================
    kind          sum over                                                    divided by
    ============= =========================================================== ==============================
    ``"grpo"``    each trajectory's mean over its sampled tokens (StarPO)     trajectories of the step
    ``"dapo"``    sampled tokens                                              sampled tokens of the step
    ``"dr_grpo"`` sampled tokens                                              trajectories · ``longest``
    ``"cispo"``   sampled tokens, :math:`-\mathrm{sg}[\min(\rho, \epsilon)] A \log \pi`  sampled tokens of the step
    ============= =========================================================== ==============================

    A trajectory that the model read in several contexts is several segments; each counts with its share of the
    trajectory's sampled tokens, so windows change what is read and not what a token weighs.

    Args:
        logprobs: (B, T) log-probabilities under the trained policy, nats.
        old_logprobs: (B, T) the same under the policy before the update, without gradient.
        advantages: (B,), or (B, T) for one for each token.
        mask: (B, T) bool, the sampled tokens.
        shares: (B,) the part of its trajectory's sampled tokens that a segment has; 0 for filler.
        step_tokens: Sampled tokens of the step.
        step_trajectories: Trajectories of the step.
        kind: See the table.
        epsilon_low: Clip below 1.
        epsilon_high: Clip above 1; the bound itself with ``"cispo"``.
        dual_clip: Bound of the ratio where the advantage is negative; ``None``: none.
        ratios_of: ``"sequence"``: every token has the value of its trajectory's ratio, which is one row, and its own
            gradient (GSPO-token, Zheng et al. 2025, arXiv 2507.18071, section 4.3).
        sampler_ratio: (B, T) c, the correction for a sampler that is not the policy.
        ref_logprobs: (B, T) log-probabilities under the reference; not read where ``beta`` is 0.
        beta: Weight of the KL to the reference.
        unbiased_kl: Multiply k3 by the ratio, so its gradient is the gradient of KL(π ‖ π_ref).
        longest: L of ``"dr_grpo"``, tokens.

    Returns:
        The micro-batch's part of the loss of its optimizer step, and (B, T) columns of which the log has the means.

    Raises:
        ValueError: If the kind is unknown.

    Example:
        >>> zeros, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
        >>> policy_loss(zeros, zeros, torch.tensor([2.0]), mask, torch.ones(1), 2, 1)[0]
        tensor(-2.)
    """
    off = ~mask
    # Masked before any exponential: at environment tokens two policies may differ so much that it overflows.
    logprobs, old_logprobs = logprobs.masked_fill(off, 0.0), old_logprobs.masked_fill(off, 0.0)
    if advantages.ndim == 1:
        advantages = advantages[:, None]  # (B, 1)
    if ratios_of == "sequence":
        means = (logprobs - old_logprobs).sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # (B,) log-ratios
        old_logprobs = (logprobs - means[:, None]).detach()
    ratio = (logprobs - old_logprobs).exp()  # (B, T)
    if kind == "cispo":
        per_token = -ratio.clamp(max=epsilon_high).detach() * advantages * logprobs
        columns = {"cispo_clip_ratio": ((ratio > epsilon_high) & (advantages > 0)).float()}
    else:
        per_token = clipped_surrogate(logprobs, old_logprobs, advantages, epsilon_low, epsilon_high, dual_clip)
        low, high = (ratio < 1 - epsilon_low) & (advantages < 0), (ratio > 1 + epsilon_high) & (advantages > 0)
        clipped = {"low_mean": low, "high_mean": high, "region_mean": low | high}
        columns = {f"clip_ratio/{name}": where.float() for name, where in clipped.items()}
    if sampler_ratio is not None:
        per_token = per_token * sampler_ratio
    if beta and ref_logprobs is not None:
        kl = kl_penalty(logprobs, ref_logprobs.masked_fill(off, 0.0), "k3")
        if unbiased_kl:
            kl = kl * ratio
        per_token = per_token + beta * kl
    sums = per_token.masked_fill(off, 0.0).sum(dim=1)  # (B,)
    if kind == "grpo":
        loss = (sums / mask.sum(dim=1).clamp(min=1) * shares).sum() / step_trajectories
    elif kind in ("dapo", "cispo"):
        loss = sums.sum() / step_tokens
    elif kind == "dr_grpo" and longest:
        loss = sums.sum() / (step_trajectories * longest)
    else:
        raise ValueError(f"kind is {kind!r} and longest {longest}; choose 'grpo', 'dapo', 'cispo', or 'dr_grpo'")
    return loss, columns


def clipped_surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    epsilon_low: float,
    epsilon_high: float,
    dual_clip: float | None = None,
) -> torch.Tensor:
    r"""(B, T) PPO's clipped loss of each token, with the asymmetric range of StarPO-S ("clip-higher"); unmasked.

    .. math:: \ell_t = -\min(\rho_t A_t,\ \mathrm{clip}(\rho_t, 1 - \epsilon_{lo}, 1 + \epsilon_{hi}) A_t),
       \quad \rho_t = \pi(y_t) / \pi_{old}(y_t)

    For :math:`A_t < 0` a dual clip c bounds the loss by :math:`-c A_t` (Ye et al. 2020, arXiv 1912.09729). Arguments
    are as in `policy_loss`; advantages are (B, T), or (B, 1) for one for each trajectory. Where nothing was sampled,
    give both policies equal log-probabilities: 89 nats between them make the ratio infinite and its gradient NaN.

    Raises:
        ValueError: If the advantages have another shape, which would broadcast.

    Example:
        >>> ratio = torch.tensor([[1.5, 0.5, 5.0]])
        >>> advantages = torch.tensor([[1.0, 1.0, -1.0]])
        >>> clipped_surrogate(ratio.log(), torch.zeros(1, 3), advantages, 0.2, 0.28, dual_clip=3.0)
        tensor([[-1.2800, -0.5000,  3.0000]])
    """
    if advantages.shape not in (logprobs.shape, (len(logprobs), 1)):
        raise ValueError(
            f"advantages has shape {tuple(advantages.shape)} and logprobs {tuple(logprobs.shape)}; give one advantage "
            "for each token, or (B, 1) for one for each trajectory"
        )
    ratio = (logprobs - old_logprobs).exp()
    loss = torch.maximum(-ratio * advantages, -ratio.clamp(1 - epsilon_low, 1 + epsilon_high) * advantages)
    if dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)


def sampler_ratio(
    trained: torch.Tensor,
    sampled: torch.Tensor,
    mask: torch.Tensor,
    mode: str,
    low: float | None = None,
    high: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""TRL's importance ratio of the policy that is trained to the one that sampled (vLLM), cut off at bounds.

    .. math:: w_t = \pi_{old}(y_t) / \pi_{sampler}(y_t)

    Args:
        trained: (B, T) log-probabilities as the trainer computes them, nats.
        sampled: (B, T) the same as the sampler gave them. NaN, for a token that it could not score, is no correction.
        mask: (B, T), 1 at sampled tokens.
        mode: "token_truncate" or "token_mask": ratios out of bounds are moved to them, or are 0.
        low: Lower bound; ``None``: none.
        high: Upper bound; ``None``: none.

    Returns:
        (B, T) ratios, 1 at environment tokens, and (B, T) bool, where a bound was passed.
    """
    ratio = ((trained - sampled) * mask).nan_to_num(nan=0.0).exp()
    bounded = ratio.clamp(low, high) if (low, high) != (None, None) else ratio
    beyond = ratio != bounded
    return bounded if mode == "token_truncate" else ratio.masked_fill(beyond, 0.0), beyond


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    clip: float | None = None,
    normaliser: torch.Tensor | float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Squared error of the critic at the tokens of ``mask``, with PPO's clip around the values before the update.

    .. math:: \frac{1}{2 n} \sum_t m_t \max\bigl((V_t - R_t)^2,\ (\mathrm{clip}(V_t, V_t^{old} \pm c) - R_t)^2\bigr)

    Args:
        values: (B, T) values being trained.
        old_values: (B, T) values before the update.
        returns: (B, T) targets, without gradient.
        mask: (B, T) 1 where the critic is trained; elsewhere the other arguments may hold any value.
        clip: c, in units of the return; ``None`` for no clip.
        normaliser: n, the count of such tokens in the whole batch; unset: the count in ``mask``.

    Returns:
        The loss, and the share of these tokens whose clipped error is the larger one (they have no gradient).
    """
    used = mask.bool()
    values, old_values, returns = (tensor.masked_fill(~used, 0.0) for tensor in (values, old_values, returns))
    errors = (values - returns).square()
    num_tokens = used.sum().clamp(min=1)
    clip_fraction = errors.new_zeros(())
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        clipped_errors = (near - returns).square()
        clip_fraction = (clipped_errors > errors).sum() / num_tokens
        errors = torch.maximum(errors, clipped_errors)
    return 0.5 * errors.sum() / (num_tokens if normaliser is None else normaliser), clip_fraction


def kl_penalty(
    logprobs: torch.Tensor, ref_logprobs: torch.Tensor, estimator: Literal["k1", "k2", "k3"]
) -> torch.Tensor:
    r"""Estimate of KL(π ‖ π_ref) in nats from each sampled token, with :math:`d = \log \pi - \log \pi_{ref}`.

    k1 = d, k2 = d²/2, k3 = :math:`e^{-d} - 1 + d` (Schulman, "Approximating KL divergence", 2020); k1 and k3 are
    unbiased, so inside a reward any of them will do. As a loss they differ. Over the policy's own samples the expected
    gradient of k2 is the gradient of KL(π ‖ π_ref), k3 gives KL(π_ref ‖ π), and k1 gives zero. The importance ratio
    times k3, TRL's default, gives KL(π ‖ π_ref), also on samples of an older policy.

    Example:
        >>> kl_penalty(torch.tensor(-1.5), torch.tensor(-1.0), "k3")
        tensor(0.1487)
    """
    difference = logprobs - ref_logprobs
    if estimator == "k1":
        return difference
    return difference.square() / 2 if estimator == "k2" else torch.expm1(-difference) + difference


def regression_loss(
    logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor,
    action_mask: torch.Tensor,
    advantages: torch.Tensor,
    beta2: float,
    scale: Literal["unit", "paper"] = "unit",
    normaliser: torch.Tensor | float | None = None,
    parts: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    r"""A\*-PO's least-squares loss over trajectories (Brantley et al. 2025, arXiv 2505.20686); never negative.

    .. math:: \frac{1}{n} \sum_i \bigl(\beta_2 \Delta_i - A_i\bigr)^2, \qquad A_i = R_i - V^*_i, \qquad
       \Delta_i = \sum_{t:\,m_{it} = 1} \log \pi(y_{it}) - \log \pi_{ref}(y_{it})

    The environment's part cancels, so only sampled tokens count. ``"unit"`` divides by :math:`2 \beta_2`. That keeps
    the optimum, and at the reference its gradient is REINFORCE's.

    Args:
        logprobs: (B, T) log-probabilities under the trained policy, nats.
        ref_logprobs: (B, T) the same under the reference, without gradient.
        action_mask: (B, T) 1 at sampled tokens. A row without a 1 is filler: it adds nothing and is not counted.
        advantages: (B,) raw returns minus V* of the start states, see ``soft_values.soft_value``.
        beta2: β₂, in units of the return per nat, above 0.
        scale: ``"unit"``, or ``"paper"`` for the formula above.
        normaliser: n, trajectories of the whole batch; unset: those in ``action_mask``.
        parts: For parts of trajectories: (B,) what other rows add to Δ, (B,) a row's share of the loss.

    Returns:
        The loss, Δ (B,), and the residuals (B,) :math:`\beta_2 \Delta - A`.
    """
    used = action_mask.bool()
    elsewhere, share = parts or (0.0, 1.0)
    wide = torch.promote_types(logprobs.dtype, torch.float32)
    log_ratios = elsewhere + (logprobs.to(wide) - ref_logprobs.to(wide)).masked_fill(~used, 0.0).sum(dim=1)
    residuals = beta2 * log_ratios - advantages
    losses, filler = residuals.square(), ~used.any(dim=1)
    # A row's value is a share of its trajectory's loss, its gradient the whole loss's gradient by the row's own tokens.
    total = (losses - losses.detach() * (1 - share)).masked_fill(filler, 0.0).sum()
    total = total if scale == "paper" else total / (2 * beta2)
    return total / ((~filler).sum().clamp(min=1) if normaliser is None else normaliser), log_ratios, residuals
