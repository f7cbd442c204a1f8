"""Advantages of whole trajectories, compared within a group, and whitening over a batch."""

from collections.abc import Callable
from typing import Literal

import torch

from ragen_trl.algorithms.filtering import ZERO_STD, std_of_known
from ragen_trl.system.float64 import float64_tensor, in_float64


def group_advantages(
    returns: torch.Tensor,
    group_size: int,
    baseline: Literal["mean", "leave_one_out"] = "mean",
    scale: Literal["group", "batch", "none"] = "group",
    eps: float = 1e-6,
) -> torch.Tensor:
    r"""Advantage of each trajectory over its group, the same for all its tokens.

    .. math:: A_i = (R_i - b_i) / (\sigma + \epsilon)

    with :math:`b_i` the group's mean (GRPO, StarPO equation 4; Dr. GRPO with ``scale="none"``) or the mean of the
    *other* members (RLOO with ``scale="none"``), and :math:`\sigma` the standard deviation (ddof 1) of the group, of
    the whole batch, or 1 without the ε.

    Args:
        returns: (P · G,) raw returns, groups contiguous; NaN for an episode without an outcome, with which nothing is
            compared.
        group_size: G, at least 2.
        baseline: What is subtracted from each return.
        scale: What the difference is divided by.
        eps: Added to the standard deviation (verl 1e-6, TRL 1e-4).

    Returns:
        (P · G,) advantages; exactly 0 for a group whose returns are equal up to rounding, and for NaN.

    Example:
        >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), 4, "leave_one_out", "none")
        tensor([ 1.0000, -0.3333, -0.3333, -0.3333])
    """
    groups = returns.reshape(-1, group_size)
    known = ~groups.isnan()
    count, largest = known.sum(dim=1, keepdim=True), groups.nan_to_num(nan=0.0).abs().amax(dim=1, keepdim=True)
    centred = (groups - groups.nanmean(dim=1, keepdim=True)).masked_fill(~known, 0.0)
    flat = centred.abs().amax(dim=1, keepdim=True) <= ZERO_STD * largest.clamp(min=1.0)
    if baseline == "leave_one_out":
        centred = centred * count / (count - 1).clamp(min=1)
    if scale == "group":
        centred = centred / (std_of_known(groups, 1) + eps)
    elif scale == "batch":
        centred = centred / (std_of_known(groups) + eps)
    return centred.masked_fill(flat, 0.0).reshape(-1)


def whiten(
    values: torch.Tensor, mask: torch.Tensor, total: Callable[[torch.Tensor], torch.Tensor] = lambda local: local
) -> torch.Tensor:
    r"""Shift and scale to mean 0 and variance 1 of the numbers of all processes where ``mask`` is 1.

    .. math:: (x - \mu) / \sqrt{\sigma^2 + 10^{-8}}

    with the sample variance (ddof 1), as verl does for PPO. A variance far below 1e-8 is not scaled up. ``values`` and
    ``mask``, of one shape, are this process's share; ``total`` adds a tensor up over all processes.

    Returns:
        Shape and dtype of ``values``; 0 where the mask is 0, and everywhere if fewer than two numbers count.

    Example:
        >>> whiten(torch.tensor([1.0, 2.0, 3.0, 99.0]), torch.tensor([1, 1, 1, 0]))
        tensor([-1.,  0.,  1.,  0.])
    """
    counted = in_float64(values[mask.bool()])
    number = float64_tensor(counted.numel(), counted.device)
    count, summed, squares = in_float64(total(torch.stack([number, counted.sum(), counted.square().sum()]))).unbind()
    if count < 2:
        return torch.zeros_like(values)
    mean = summed / count
    variance = ((squares - summed * mean) / (count - 1)).clamp(min=0.0)
    whitened = (in_float64(values) - mean) / (variance + 1e-8).sqrt()
    return torch.where(mask.bool(), whitened.to(values.dtype).to(values.device), 0.0)
