"""From a rollout batch to the groups that are trained on, and to advantages, as the configuration names them.

Two layouts of columns meet here: TRL's completions begin after the first prompt, the critic reads whole trajectories
(`batch.collate`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch

from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.filtering import group_std, most_uncertain_groups, top_mass_groups
from ragen_trl.algorithms.gae import bi_level_gae, gae, spread_over_turns
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from ragen_trl.batching.batch import collate, completion_columns
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


def trajectory_advantages(rollout: RolloutBatch, args: StarPOConfig) -> torch.Tensor:
    """(B,) group-relative advantages, one for all tokens of a trajectory, of the weighted sum of its rewards."""
    return group_advantages(rollout.returns, rollout.group_size, args.baseline, args.scale_rewards)


def turn_advantages(rollout: RolloutBatch, args: StarPOConfig) -> torch.Tensor:
    """(L, T) advantages of this process's completion tokens, the same for all tokens of a turn (GiGPO, MT-GRPO).

    MT-GRPO's outcome is the reward of an episode's last turn, extra functions included; the turns before it keep their
    own.
    """
    rewards, mask = rollout.turn_rewards()
    size = rollout.group_size
    if args.advantage == "gigpo":
        anchors = [() if summary.failed else summary.anchors for summary in rollout.summaries]
        scale: Literal["group", "none"] = "none" if args.scale_rewards == "none" else "group"
        turns = gigpo_advantages(rewards, mask, anchors, size, args.turn_gamma, args.step_weight, scale)
    elif args.advantage == "mt_grpo":
        earlier = mask & mask.roll(-1, dims=1)  # turns before the last one, whose reward is the outcome
        earlier[:, -1:] = False
        outcomes = rollout.returns - rewards.masked_fill(~earlier, 0.0).sum(dim=1)
        turns = mt_grpo_advantages(rewards, mask, outcomes, size, args.step_weight, compared=earlier)
    else:
        raise ValueError(f"advantage {args.advantage!r} has no estimator; write one, or override `advantages`")
    if not rollout.trajectories:
        return turns.new_zeros((0, rollout.completion_length))
    turn_ids = collate(rollout.trajectories, pad_id=0)["turn_ids"].to(turns.device)
    tokens = spread_over_turns(turns[rollout.local_indices], turn_ids)
    return completion_columns(tokens, rollout.trajectories, rollout.completion_length)


class CriticCredit(NamedTuple):
    """Advantages and what the critic learns from: (L, S) each, columns as in ``batch.collate``, 0 at other tokens.

    ``mask`` is true where the critic learns, which is at every sampled token (``action_mask``), or at the first one of
    each turn ("turn_gae"); ``targets`` are the returns that it should have predicted.
    """

    advantages: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor
    action_mask: torch.Tensor


def critic_credit(
    trajectories: Sequence[Trajectory],
    turn_rewards: torch.Tensor,
    values: torch.Tensor,
    bootstrap: torch.Tensor,
    args: StarPOConfig,
) -> CriticCredit:
    """Generalised advantage estimation in the variant that ``args.advantage`` names.

    ``turn_rewards`` are (L, K), 0 after the last turn; ``values`` (L, S), the state's before each token; ``bootstrap``
    (L,) values after the last token, 0 if the task is over.
    """
    turn_ids = collate(trajectories, pad_id=0)["turn_ids"].to(values.device)  # (L, S)
    action_mask = turn_ids >= 0
    first = action_mask & (turn_ids != turn_ids.roll(1, dims=1))  # column 0 is never sampled
    played = torch.arange(turn_rewards.shape[1], device=values.device) < first.sum(dim=1, keepdim=True)  # (L, K)
    if args.advantage == "gae":
        rewards = torch.zeros_like(values)
        last = action_mask & (turn_ids != turn_ids.roll(-1, dims=1))
        rewards[last] = turn_rewards[played]
        advantages, targets = gae(rewards, values, action_mask, args.gamma, args.gae_lambda, bootstrap)
    elif args.advantage == "bi_level_gae":
        advantages, targets = bi_level_gae(
            turn_rewards, values, turn_ids, args.turn_gamma, args.gamma, args.gae_lambda, bootstrap
        )
    elif args.advantage == "turn_gae":
        turn_values = torch.zeros_like(turn_rewards)
        turn_values[played] = values[first]
        by_turn, targets = gae(turn_rewards, turn_values, played, args.turn_gamma, args.turn_lambda, bootstrap)
        advantages, targets = spread_over_turns(by_turn, turn_ids), spread_over_turns(targets, turn_ids)
    else:
        raise ValueError(f"advantage {args.advantage!r} has no estimator with a critic; write one")
    return CriticCredit(advantages, targets, first if args.advantage == "turn_gae" else action_mask, action_mask)


def critic_advantages(
    critic: Critic,
    rollout: RolloutBatch,
    args: StarPOConfig,
    total: Callable[[torch.Tensor], torch.Tensor],
    seed: int | Sequence[int],
) -> tuple[torch.Tensor, dict[str, float]]:
    """(L, T) advantages of this process's completion tokens by a critic, and the metrics of its update.

    The critic values the states first and then learns from the same returns, in an order that ``seed`` fixes. ``total``
    adds a tensor up over all processes.
    """
    trajectories = rollout.trajectories
    values, after = critic.values(trajectories, [goes_on(trajectory, args.bootstrap) for trajectory in trajectories])
    turn_rewards = rollout.turn_rewards()[0][rollout.local_indices].to(values.device)
    advantages, targets, mask, action_mask = critic_credit(trajectories, turn_rewards, values, after, args)
    sound = torch.tensor([one.limit not in FAILURES for one in trajectories], dtype=torch.bool, device=values.device)
    mask, action_mask = mask & sound[:, None], action_mask & sound[:, None]
    if args.whiten_advantages:
        advantages = whiten(advantages, action_mask, total)
    minibatches, epochs = critic_steps(len(rollout.summaries), args)
    metrics = critic.update(trajectories, targets, mask, values, args.value_clip, minibatches, epochs, seed)
    return completion_columns(advantages, trajectories, rollout.completion_length), metrics


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
    if trajectory.terminated or not trajectory.truncated or bootstrap == "none":
        return False
    if trajectory.limit in FAILURES:  # no message came back, so there is no state to value
        return False
    return bootstrap == "all" or not trajectory.turns[-1].info.get("limit_is_told", False)
