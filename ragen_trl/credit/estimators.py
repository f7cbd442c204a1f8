"""From a rollout batch to the groups that are trained on, and to advantages, as the configuration names them."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch.nn.functional import pad

from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.filtering import group_std, most_uncertain_groups, top_mass_groups
from ragen_trl.algorithms.gae import bi_level_gae, gae, spread_over_turns
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from ragen_trl.batching.batch import turn_columns
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.credit.critic import Critic
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.seeds import interleave
from ragen_trl.trajectory import Trajectory


def uncertain_groups(rollout: RolloutBatch, args: StarPOConfig) -> list[int]:
    """The groups with the largest standard deviation of raw returns, in ascending order.

    Environments are filtered separately, because their rewards have different scales: each keeps groups in proportion
    to its number of groups, at least one as long as a rollout has so many. With refills, the groups of all rollouts
    compete for the places of one rollout. Groups of one trajectory have no spread; then all groups are kept.
    """
    if rollout.group_size == 1:
        return list(range(rollout.num_groups))
    stds = group_std(rollout.returns, rollout.group_size)
    tasks = rollout.group_tasks
    members = [[group for group, own in enumerate(tasks) if own == task] for task in dict.fromkeys(tasks)]
    places = Counter(interleave([len(groups) for groups in members], args.groups_per_update))
    kept: list[tuple[int, int]] = []  # rank within its environment, group
    for index, groups in enumerate(members):
        chosen = [groups[place] for place in _chosen(stds[groups], max(1, places[index]), args)]
        kept += enumerate(sorted(chosen, key=lambda group: -stds[group].item()))
    # With refills there may be more environments than groups in a rollout: the best of each, as they were played.
    return sorted(group for _, group in sorted(kept)[: args.groups_per_generation])


def _chosen(stds: torch.Tensor, places: int, args: StarPOConfig) -> list[int]:
    if args.filter_strategy != "top_k" and args.filter_ratio < 1:
        by_variance = args.filter_strategy == "top_p_variance"
        return top_mass_groups(stds.square() if by_variance else stds, args.filter_ratio)
    chosen = most_uncertain_groups(stds, min(1.0, places / len(stds)))
    is_filter = args.filter_ratio < 1 or args.max_refills
    return [group for group in chosen if stds[group] > 0] if is_filter else chosen


def advantages_in_groups(rollout: RolloutBatch, args: StarPOConfig) -> torch.Tensor:
    """Advantages without a critic, of the weighted sum of rewards.

    ``"group"`` gives (B,), one for all tokens of a trajectory; GiGPO and MT-GRPO (L, T) of this process's completion
    tokens, the same for all tokens of a turn. MT-GRPO's outcome is the reward of an episode's last turn, extra
    functions included; the turns before it keep their own.
    """
    size = rollout.group_size
    if args.advantage == "group":
        return group_advantages(rollout.returns, size, args.baseline, args.scale_rewards)
    rewards, mask = rollout.turn_rewards()
    if args.advantage == "gigpo":
        anchors = [() if summary.failed else summary.anchors for summary in rollout.summaries]
        scale: Literal["group", "none"] = "none" if args.scale_rewards == "none" else "group"
        turns = gigpo_advantages(rewards, mask, anchors, size, args.turn_gamma, args.step_weight, scale)
    else:
        assert args.advantage == "mt_grpo", args.advantage
        earlier = mask & mask.roll(-1, dims=1)  # turns before the last one, whose reward is the outcome
        earlier[:, -1:] = False
        outcomes = rollout.returns - rewards.masked_fill(~earlier, 0.0).sum(dim=1)
        turns = mt_grpo_advantages(rewards, mask, outcomes, size, args.step_weight, compared=earlier)
    turn_ids = turn_columns(rollout.trajectories).to(turns.device)
    return spread_over_turns(turns[rollout.local_indices], turn_ids)


def critic_credit(
    turn_ids: torch.Tensor,
    turn_rewards: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    args: StarPOConfig,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation in the variant that ``args.advantage`` names.

    Args:
        turn_ids: (L, T) the turn of each sampled token, -1 elsewhere (`batch.turn_columns`).
        turn_rewards: (L, K), 0 after the last turn.
        values: (L, T) the value of the state before each token.
        bootstrap: (L,) values after the last token, 0 if the task is over.
        args: The discounts, and λ.

    Returns:
        (L, T) advantages, the returns that the critic should have predicted, both 0 at other tokens, and where it
        learns: at every sampled token, or at the first one of each turn ("turn_gae").
    """
    sampled, around = turn_ids >= 0, pad(turn_ids, (1, 1), value=-1)
    first, last = sampled & (turn_ids != around[:, :-2]), sampled & (turn_ids != around[:, 2:])
    played = torch.arange(turn_rewards.shape[1], device=values.device) < first.sum(dim=1, keepdim=True)  # (L, K)
    if args.advantage == "gae":
        rewards = torch.zeros_like(values)
        rewards[last] = turn_rewards[played]
        return *gae(rewards, values, sampled, args.gamma, args.gae_lambda, bootstrap), sampled
    if args.advantage == "bi_level_gae":
        discounts = args.turn_gamma, args.gamma, args.gae_lambda
        return *bi_level_gae(turn_rewards, values, turn_ids, *discounts, bootstrap), sampled
    assert args.advantage == "turn_gae", args.advantage
    turn_values = torch.zeros_like(turn_rewards)
    turn_values[played] = values[first]
    by_turn = gae(turn_rewards, turn_values, played, args.turn_gamma, args.turn_lambda, bootstrap)
    advantages, targets = (spread_over_turns(column, turn_ids) for column in by_turn)
    return advantages, targets, first


def critic_advantages(
    critic: Critic, rollout: RolloutBatch, args: StarPOConfig, seed: int | Sequence[int]
) -> tuple[torch.Tensor, Callable[[], dict[str, float]]]:
    """(L, T) advantages of this process's completion tokens by a critic, and what makes it learn from the same returns.

    That returns the metrics of the update; ``seed`` fixes its order.
    """
    trajectories = rollout.trajectories
    values, after = critic.values(trajectories, [goes_on(trajectory, args.bootstrap) for trajectory in trajectories])
    turn_ids = turn_columns(trajectories).to(values.device)
    turn_rewards = rollout.turn_rewards()[0][rollout.local_indices].to(values.device)
    advantages, targets, mask = critic_credit(turn_ids, turn_rewards, values, after, args)
    sound = torch.tensor([one.limit not in FAILURES for one in trajectories], dtype=torch.bool, device=values.device)
    if args.whiten_advantages:
        advantages = whiten(advantages, (turn_ids >= 0) & sound[:, None], critic.total)
    minibatches, epochs = critic_steps(len(rollout.summaries), args)
    taught = trajectories, targets, mask & sound[:, None], values
    return advantages, partial(critic.update, *taught, args.value_clip, minibatches, epochs, seed)


def critic_steps(trajectories: int, args: StarPOConfig) -> tuple[int, int]:
    """The critic's steps in one pass over a rollout of all processes' ``trajectories``, and its passes."""
    assert args.steps_per_generation is not None
    if args.critic_batch_size is None:
        steps = max(1, args.steps_per_generation // args.gradient_accumulation_steps)
    else:
        steps = -(-trajectories // args.critic_batch_size)
    return steps, args.num_iterations if args.critic_epochs is None else args.critic_epochs


def goes_on(trajectory: Trajectory, bootstrap: str) -> bool:
    """Whether an episode ended at a limit after which the critic's value counts.

    With ``bootstrap="unseen"`` a limit that the messages count down to (``info["limit_is_told"]``) is part of the
    state, and nothing can be earned after it.
    """
    if trajectory.terminated or not trajectory.truncated or trajectory.limit in FAILURES:
        return False  # after a failure no message came back, so there is no state to value
    told = trajectory.turns[-1].info.get("limit_is_told", False)
    return bootstrap == "all" or (bootstrap == "unseen" and not told)
