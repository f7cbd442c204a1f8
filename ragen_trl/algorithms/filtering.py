"""Which groups of trajectories carry signal: the filters of StarPO-S (a share) and RAGEN-2 (a mass).

A filter looks at raw returns. Returns normalised within their group all have a standard deviation near one, so a filter
after the normalisation selects by noise (the mistake in RAGEN's released code).
"""

import torch

from ragen_trl.system.float64 import in_float64

# A spread below this share of the largest return (or of 1, if that is larger) is rounding, not signal.
ZERO_STD = 1e-6


def group_std(returns: torch.Tensor, group_size: int) -> torch.Tensor:
    """(P,) sample standard deviation (ddof 1) of each group's (P · G,) raw returns, groups contiguous.

    An episode without an outcome (NaN) is left out; exactly 0 where the spread is only rounding, or fewer than two are
    left.
    """
    groups = returns.reshape(-1, group_size)
    std = std_of_known(groups, dim=1).squeeze(1)
    scale = groups.nan_to_num(nan=0.0).abs().amax(dim=1).clamp(min=1.0)
    return torch.where(std <= ZERO_STD * scale, torch.zeros_like(std), std)


def std_of_known(values: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Standard deviation (ddof 1) without NaN, of all values or along ``dim``, which is kept; 0 for fewer than two."""
    known = ~values.isnan()
    axes = list(range(values.ndim)) if dim is None else [dim]
    count = known.sum(dim=axes, keepdim=True)
    zeros = values.nan_to_num(nan=0.0)
    centred = (zeros - zeros.sum(dim=axes, keepdim=True) / count.clamp(min=1)).masked_fill(~known, 0.0)
    variance = centred.square().sum(dim=axes, keepdim=True) / (count - 1).clamp(min=1)
    return torch.where(count > 1, variance, 0.0).sqrt()


def most_uncertain_groups(stds: torch.Tensor, ratio: float) -> list[int]:
    """Indices of the groups to train on, in ascending order, by their (P,) standard deviations of raw returns.

    Keeps the ``max(1, floor(ratio · P))`` groups with the largest standard deviation (StarPO-S, U = Std_τ[R(τ)]); of
    equal ones the lower index wins. A kept group whose returns are all equal teaches nothing and is dropped, so the
    result can be empty. With ``ratio=1`` no group is dropped.

    Example:
        >>> most_uncertain_groups(torch.tensor([0.7, 0.2, 0.7, 0.0]), 0.25)
        [0]
    """
    num_groups = stds.numel()
    if ratio >= 1:
        return list(range(num_groups))
    num_kept = max(1, int(ratio * num_groups + 1e-9))  # 0.29 · 100 is 28.999… in floating point
    order = torch.argsort(stds, descending=True, stable=True)[:num_kept]
    return sorted(index for index in order.tolist() if stds[index] > 0)


def top_mass_groups(scores: torch.Tensor, mass: float, eps: float = 0.01) -> list[int]:
    """Indices of the groups that together hold a given share of the batch's uncertainty, in ascending order.

    Takes the highest score, then the next, until those taken add up to ``mass · sum(scores) - eps`` (RAGEN-2's filter,
    arXiv 2604.06268); of equal ones the lower index first. A group without spread is never taken. If all scores add up
    to no more than about ``eps``, no group is kept.

    Args:
        scores: (P,) uncertainty of each group: standard deviations of the raw returns, as in RAGEN-2's code, or
            variances, as in its paper, which keep fewer groups.
        mass: ρ, the share of the sum that must be reached, in (0, 1].
        eps: Subtracted from the sum that must be reached, in the unit of the scores.

    Example:
        >>> top_mass_groups(torch.tensor([0.5, 0.1, 0.5, 0.0]), 0.9)
        [0, 2]
    """
    scores = in_float64(scores)
    ordered, order = scores.sort(descending=True, stable=True)
    before = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)[:-1]])  # (P,) what all higher scores add up to
    wanted = scores.sum() * (mass - 1e-9) - eps  # 0.07 · 100 is 7.000000000000001 in floating point
    return sorted(order[before < wanted].tolist())  # before a score of 0 lies the whole sum
