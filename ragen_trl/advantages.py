"""Advantage estimators: pure functions of raw returns.

Group-relative estimators only; those with a critic (GAE at token, turn and both levels) need per-token values and
are not here yet.
"""

from typing import Literal

import torch

from ragen_trl.filtering import ZERO_STD, as_groups


def group_advantages(
    returns: torch.Tensor,
    group_size: int,
    baseline: Literal["mean", "leave_one_out"] = "mean",
    scale: Literal["group", "batch", "none"] = "group",
    ddof: int = 1,
    eps: float = 1e-6,
) -> torch.Tensor:
    r"""Advantage of each trajectory over its group, the same for all its tokens.

    .. math:: A_i = (R_i - b_i) / (\sigma + \epsilon)

    with :math:`b_i` the group's mean (GRPO, StarPO equation 4; Dr. GRPO with ``scale="none"``) or the mean of the
    *other* members (RLOO with ``scale="none"``), and :math:`\sigma` the standard deviation of the group, of the whole
    batch, or 1 without the ε.

    Args:
        returns: (P · G,) raw returns, groups contiguous.
        group_size: G, at least 2.
        baseline: What is subtracted.
        scale: What divides.
        ddof: Delta degrees of freedom of the standard deviation: 1 as in TRL and verl, 0 as in NumPy.
        eps: Added to the standard deviation (verl 1e-6, TRL 1e-4).

    Returns:
        (P · G,) advantages; exactly 0 for a group whose returns are equal up to rounding, which a division by a
        tiny standard deviation would blow up to ±1.

    Raises:
        ValueError: If ``group_size`` is under 2 or does not divide, or an option is unknown.

    Example:
        >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), 4, "leave_one_out", "none")
        tensor([ 1.0000, -0.3333, -0.3333, -0.3333])
    """
    groups = as_groups(returns, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    flat = centred.abs().amax(dim=1, keepdim=True) <= ZERO_STD * groups.abs().amax(dim=1, keepdim=True).clamp(min=1.0)
    if baseline == "leave_one_out":
        centred = centred * group_size / (group_size - 1)
    elif baseline != "mean":
        raise ValueError(f"baseline is {baseline!r}; choose 'mean' or 'leave_one_out'")
    if scale == "group":
        centred = centred / (groups.std(dim=1, correction=ddof, keepdim=True) + eps)
    elif scale == "batch":
        centred = centred / (groups.std(correction=ddof) + eps)
    elif scale != "none":
        raise ValueError(f"scale is {scale!r}; choose 'group', 'batch' or 'none'")
    return centred.masked_fill(flat, 0.0).reshape(-1)
