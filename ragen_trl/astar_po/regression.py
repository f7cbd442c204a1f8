r"""Stage 2 of A\*-PO as pure functions: advantages in return ranges, and a micro-batch's loss."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ragen_trl.algorithms.losses import aggregate, kl_penalty, regression_loss
from ragen_trl.astar_po.reference_values import ReferenceValues
from ragen_trl.batching.rollout_batch import TrajectorySummary
from ragen_trl.config.starpo import AStarPOConfig


class InReturnRanges(NamedTuple):
    """The B trajectories of a rollout, in units of the return range of their environment; (B,) each.

    Attributes:
        returns: Raw returns.
        values: V* of the start states.
        std_errors: Standard errors of these.
        starts: A number for each start state, different in different environments.
        advantages: Returns minus V*: A* up to the error of V*.
    """

    returns: torch.Tensor
    values: torch.Tensor
    std_errors: torch.Tensor
    starts: torch.Tensor
    advantages: torch.Tensor

    @property
    def columns(self) -> tuple[torch.Tensor, ...]:
        """What `is_stale` reads: returns, V*, its standard errors, start states."""
        return self[:4]


def in_return_ranges(
    summaries: Sequence[TrajectorySummary], returns: torch.Tensor, values: Mapping[int, ReferenceValues]
) -> InReturnRanges:
    """Measure (B,) raw returns, one for each summary, against V* by environment; ``ValueError`` where there is none."""
    known = [values[summary.task] for summary in summaries]
    starts = [of_env.of(summary.seed) for of_env, summary in zip(known, summaries, strict=True)]
    units = returns.new_tensor([of_env.return_range for of_env in known])
    soft_values = returns.new_tensor([start.value for start in starts])
    errors = returns.new_tensor([start.std_error for start in starts])
    return InReturnRanges(
        returns=returns / units,
        values=soft_values / units,
        std_errors=errors / units,
        starts=torch.tensor([summary.task << 40 | summary.seed for summary in summaries]),
        advantages=(returns - soft_values) / units,
    )


class Fit(NamedTuple):
    """One micro-batch of the regression.

    Attributes:
        loss: Its part of the update's loss.
        per_row: (B,) figures of each trajectory, for the log: log-ratio, residual and squared residual.
        kl: (B, T) KL to the reference (k3) of each token; 0 at environment tokens.
    """

    loss: torch.Tensor
    per_row: dict[str, torch.Tensor]
    kl: torch.Tensor


def regress(logprobs: torch.Tensor, mask: torch.Tensor, inputs: Mapping[str, Any], args: AStarPOConfig) -> Fit:
    """The loss of a micro-batch: the regression, and ``kl_coef`` times the KL to the reference.

    ``logprobs`` and ``mask`` (1 at sampled tokens) are (B, T). ``inputs`` has ``ref_per_token_logps`` (B, T),
    ``advantages`` (B,), ``step_trajectories`` and ``step_tokens`` (scalars); for rows that are parts of trajectories
    also ``others_log_ratio`` and ``trajectory_share`` (B,).
    """
    reference, advantages = inputs["ref_per_token_logps"], inputs["advantages"]
    loss, log_ratios, residuals = regression_loss(
        logprobs,
        reference,
        mask,
        returns=advantages,  # V* is subtracted already
        soft_values=torch.zeros_like(advantages),
        beta2=args.beta2,
        scale=args.loss_scale,
        residual_cap=args.residual_cap,
        normaliser=inputs["step_trajectories"],
        parts=(inputs["others_log_ratio"], inputs["trajectory_share"]) if "others_log_ratio" in inputs else None,
    )
    # Masked before the exponential: at environment tokens the policies may differ so much that it overflows.
    off = ~mask.bool()
    kl = kl_penalty(logprobs.masked_fill(off, 0.0), reference.masked_fill(off, 0.0), "k3")
    if args.kl_coef:
        unit = 1.0 if args.loss_scale == "unit" else 2 * args.beta2
        loss = loss + unit * args.kl_coef * aggregate(kl, mask, "token_mean", inputs["step_tokens"])
    return Fit(loss, {"log_ratio": log_ratios, "residual": residuals, "residual_squared": residuals.square()}, kl)
