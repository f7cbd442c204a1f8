"""Step-level advantages without a critic: GiGPO and MT-GRPO, which compare turns within a prompt's group.

Both compare whole episodes and then also single turns: GiGPO those that began in the same state, MT-GRPO those with the
same number. The results are one number per turn; ``gae.spread_over_turns`` gives them to tokens.
"""

from collections.abc import Hashable, Sequence
from typing import Literal

import torch

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.algorithms.filtering import ZERO_STD
from ragen_trl.algorithms.gae import gae


def gigpo_advantages(
    turn_rewards: torch.Tensor,
    turn_mask: torch.Tensor,
    anchors: Sequence[Sequence[Hashable]],
    group_size: int,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    scale: Literal["group", "none"] = "group",
    eps: float = 1e-6,
) -> torch.Tensor:
    r"""Advantage of each turn: its episode's, plus how it did compared with other turns from the same state.

    .. math:: A_{ik} = A^E_i + \omega A^S_{ik}, \qquad A^S_{ik} = (R_{ik} - \bar R) / F

    (GiGPO, arXiv 2505.10978, section 4) with :math:`A^E` the group advantage of the undiscounted episode return,
    :math:`R_{ik} = \sum_{j \ge k} \gamma^{j-k} r_{ij}`, and mean and F over all turns of the prompt's group with the
    same anchor, also turns of one episode. For a state that was met once :math:`A^S = 0`; if no state repeats, this
    is ``group_advantages``. Two histories that show the same observation count as one state.

    Args:
        turn_rewards: (P · G, K) reward of each turn, groups contiguous.
        turn_mask: (P · G, K), 1 at turns that were played; a row of 0 is an episode without an outcome.
        anchors: For each row the states in which its played turns began; observations, for example.
        group_size: G, at least 2.
        gamma: Discount per turn of the step returns.
        step_weight: ω.
        scale: F is the standard deviation (ddof 1) plus ε, or 1 (the paper's choice for hard tasks).
        eps: ε, added to both standard deviations.

    Returns:
        (P · G, K) advantages, 0 where the mask is 0, and exactly 0 for returns that are equal up to rounding.

    Example:
        >>> rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2)
        >>> gigpo_advantages(rewards, mask, [["start", "left"], ["start", "right"]], 2, gamma=0.5, scale="none")
        tensor([[ 0.7500,  0.5000],
                [-0.7500, -0.5000]])
    """
    mask, steps = turn_mask.bool(), torch.zeros_like(turn_rewards)
    step_returns, _ = gae(turn_rewards, torch.zeros_like(turn_rewards), turn_mask, gamma, lam=1.0)  # (P · G, K)
    states = _number_states(anchors, mask.sum(dim=1).tolist(), group_size).to(mask.device)
    steps[mask] = _compare(step_returns[mask], states, eps if scale == "group" else None)
    totals = turn_rewards.sum(dim=1).masked_fill(~mask.any(dim=1), torch.nan)  # NaN: an episode without an outcome
    episodes = group_advantages(totals, group_size, scale=scale, eps=eps)  # (P · G,)
    return torch.where(mask, episodes[:, None] + step_weight * steps, 0.0)


def mt_grpo_advantages(
    turn_rewards: torch.Tensor,
    turn_mask: torch.Tensor,
    outcomes: torch.Tensor,
    group_size: int,
    weight: float = 1.0,
    eps: float = 1e-4,
    compared: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""Advantage of each turn: its own reward against the group's turns of that number, plus the outcome's.

    .. math:: A_{ik} = A^{turn}_{ik} + \lambda A^{outcome}_i

    (MT-GRPO, Wei et al., arXiv 2505.11821). Both parts are reduced by their mean and divided by their standard
    deviation (ddof 1) plus ε. A turn is compared with those turns of its number that exist; if no other member has one,
    it keeps only the outcome's part.

    Args:
        turn_rewards: (P · G, K) reward of each turn without the outcome, which would be paid twice; groups contiguous.
        turn_mask: (P · G, K), 1 at turns that were played; other rewards are ignored.
        outcomes: (P · G,) reward for how the episode ended, no part of ``turn_rewards``.
        group_size: G, at least 2.
        weight: λ of the outcome.
        eps: ε, as TRL's.
        compared: (P · G, K), 1 at turns with a reward of their own; unset: ``turn_mask``.

    Returns:
        (P · G, K) advantages, 0 where the mask is 0, and exactly 0 for rewards that are equal up to rounding.
    """
    of_outcome = group_advantages(outcomes, group_size, eps=eps)  # (P · G,)
    rows, columns = turn_rewards.shape
    mask = turn_mask.bool()
    groups = torch.arange(rows, device=mask.device) // group_size
    same_number = groups[:, None] * columns + torch.arange(columns, device=mask.device)  # (P · G, K)
    own = mask if compared is None else mask & compared.bool()
    turns = torch.zeros_like(turn_rewards)
    turns[own] = _compare(turn_rewards[own], same_number[own], eps)
    return torch.where(mask, turns + weight * of_outcome[:, None], 0.0)


def _number_states(anchors: Sequence[Sequence[Hashable]], num_turns: Sequence[int], group_size: int) -> torch.Tensor:
    """(N,) the number of each turn's state, row by row; the same anchor in another group is another state."""
    numbers: dict[tuple[int, Hashable], int] = {}
    states = []
    for row, (row_anchors, count) in enumerate(zip(anchors, num_turns, strict=True)):
        assert len(row_anchors) == count
        states += [numbers.setdefault((row // group_size, anchor), len(numbers)) for anchor in row_anchors]
    return torch.tensor(states, dtype=torch.long)


def _compare(values: torch.Tensor, sets: torch.Tensor, eps: float | None) -> torch.Tensor:
    """Each value minus its set's mean, divided by the set's standard deviation plus ε (``eps=None``: not divided).

    ``values`` and ``sets`` (numbers from 0) are (N,). Exactly 0 in a set of one and where a set is equal up to
    rounding.
    """
    if not values.numel():
        return values
    empty = values.new_zeros(int(sets.max()) + 1)
    counts = empty.index_add(0, sets, torch.ones_like(values))
    means = empty.index_add(0, sets, values) / counts.clamp(min=1)
    centred = values - means[sets]
    spread = empty.scatter_reduce(0, sets, centred.abs(), "amax")
    largest = empty.scatter_reduce(0, sets, values.abs(), "amax")
    flat = spread <= ZERO_STD * largest.clamp(min=1.0)
    if eps is not None:
        variances = empty.index_add(0, sets, centred.square()) / (counts - 1).clamp(min=1)
        centred = centred / (variances.sqrt() + eps)[sets]
    return centred.masked_fill(flat[sets], 0.0)
