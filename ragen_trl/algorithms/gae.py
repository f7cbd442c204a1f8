"""Generalised advantage estimation over a whole episode: per action token, per turn, and on both levels.

The token-level recursion skips environment tokens: the policy did not choose them, so the next value and the running
advantage are carried across. Turns are told apart by their ids. (RAGEN's released code ends a turn at a reward other
than 0, which joins a turn that earned nothing with the next one.)
"""

import torch


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    gamma: float,
    lam: float,
    bootstrap: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Advantage of each action: a sampled token, or a whole turn (Turn-PPO, arXiv 2512.17008).

    .. math:: \delta_t = r_t + \gamma V_{t'} - V_t, \qquad A_t = \delta_t + \gamma \lambda A_{t'}

    with :math:`t'` the next action, and ``bootstrap`` for :math:`V_{t'}` after the last one (Schulman et al., arXiv
    1506.02438, equation 16). λ = γ = 1 gives the Monte-Carlo return minus the value, λ = 0 the one-step error.

    Args:
        rewards: (B, T) rewards of T tokens or turns; of tokens, a turn's reward is on its last sampled one.
        values: (B, T), V of the state before each; any value, also NaN, where the mask is 0.
        mask: (B, T), 1 at sampled tokens, or at turns that were played.
        gamma: Discount per action.
        lam: λ, per action.
        bootstrap: (B,) value of the state after a truncated episode, 0 after a terminated one; ``None``: all 0.

    Returns:
        (B, T) advantages and (B, T) returns (advantage + value, what the critic learns), both 0 where the mask is 0.

    Raises:
        ValueError: If there is a reward where the mask is 0, because it would be lost.

    Example:
        >>> rewards, values = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 99.0, 0.75]])
        >>> gae(rewards, values, torch.tensor([[1, 0, 1]]), gamma=1.0, lam=1.0)
        (tensor([[0.5000, 0.0000, 0.2500]]), tensor([[1., 0., 1.]]))
    """
    mask = mask.bool()
    lost = (rewards != 0) & ~mask
    if bool(lost.any()):
        row, column = lost.nonzero()[0].tolist()
        raise ValueError(
            f"reward {rewards[row, column]:g} at row {row}, column {column} is masked out; put it on the last action "
            "token of its turn, or on a turn that was played"
        )
    advantages = torch.zeros_like(values)
    advantage = values.new_zeros(values.shape[0])  # (B,)
    next_value = advantage if bootstrap is None else bootstrap
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = torch.where(mask[:, t], delta + gamma * lam * advantage, advantage)
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        advantages[:, t] = torch.where(mask[:, t], advantage, 0.0)
    return advantages, torch.where(mask, advantages + values, 0.0)


def bi_level_gae(
    turn_rewards: torch.Tensor,
    values: torch.Tensor,
    turn_ids: torch.Tensor,
    turn_gamma: float,
    token_gamma: float,
    lam: float,
    bootstrap: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Advantage of each action token, discounted between turns and within them (VAGEN, arXiv 2510.16907).

    The first recursion runs over turns, with the value at each turn's last token :math:`e_k`. The second runs backwards
    within each turn and starts from that result:

    .. math::
        A_{e_k} &= r_k + \gamma_{turn} V_{e_{k+1}} - V_{e_k} + \gamma_{turn} \lambda A_{e_{k+1}} \\
        A_t &= \gamma_{token} V_{t'} - V_t + \gamma_{token} \lambda A_{t'}

    It equals ``gae`` with each reward on its turn's last token if both discounts and λ are 1, if every turn has
    one token, and in an episode of one turn that was not truncated. Otherwise they differ: after a turn's last token,
    this function looks at the last token of the next turn, ``gae`` at its first.

    Args:
        turn_rewards: (B, K) reward of each turn; 0 is a reward like any other.
        values: (B, T), V of the state before each token; any value, also NaN, where ``turn_ids`` is -1.
        turn_ids: (B, T) turn of each action token, not decreasing along a row; -1 at environment tokens and padding.
        turn_gamma: Discount per turn.
        token_gamma: Discount per action token within a turn.
        lam: λ of both levels.
        bootstrap: (B,) as in ``gae``; discounted by ``turn_gamma``.

    Returns:
        (B, T) advantages and (B, T) returns (advantage + value), both 0 where ``turn_ids`` is -1.

    Raises:
        ValueError: If a turn without tokens has a reward.
    """
    mask = turn_ids >= 0
    positions = torch.arange(turn_ids.shape[1], device=turn_ids.device).expand_as(turn_ids)
    none = torch.full_like(turn_rewards, -1, dtype=torch.long)  # for a turn without tokens
    ends = none.scatter_reduce(1, turn_ids.clamp(min=0).long(), torch.where(mask, positions, -1), "amax")  # (B, K)
    turn_values = values.gather(1, ends.clamp(min=0))  # (B, K)
    of_turn, _ = gae(turn_rewards, turn_values, ends >= 0, turn_gamma, lam, bootstrap)
    from_turn = spread_over_turns(of_turn, turn_ids)  # (B, T)
    at_end = mask & (ends.gather(1, turn_ids.clamp(min=0)) == positions)  # (B, T)
    advantages = torch.zeros_like(values)
    advantage = next_value = values.new_zeros(values.shape[0])  # (B,); each turn's last token overwrites them
    for t in reversed(range(values.shape[1])):
        within = token_gamma * next_value - values[:, t] + token_gamma * lam * advantage
        advantage = torch.where(mask[:, t], torch.where(at_end[:, t], from_turn[:, t], within), advantage)
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        advantages[:, t] = torch.where(mask[:, t], advantage, 0.0)
    return advantages, torch.where(mask, advantages + values, 0.0)


def spread_over_turns(turn_values: torch.Tensor, turn_ids: torch.Tensor) -> torch.Tensor:
    """(B, T): each action token gets its turn's number of (B, K) ``turn_values``; 0 where (B, T) ``turn_ids`` is -1.

    Example:
        >>> spread_over_turns(torch.tensor([[0.5, -1.0]]), torch.tensor([[-1, 0, 0, -1, 1]]))
        tensor([[ 0.0000,  0.5000,  0.5000,  0.0000, -1.0000]])
    """
    return torch.where(turn_ids >= 0, turn_values.gather(1, turn_ids.clamp(min=0)), 0.0)
