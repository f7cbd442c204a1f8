"""From a rollout batch to advantages, by the estimator that the configuration names.

Two layouts of columns meet here: TRL's completions begin after the first prompt, the critic reads whole trajectories
(`batch.collate`).
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch

from ragen_trl.algorithms.advantages import group_advantages, moments, whiten_with
from ragen_trl.algorithms.gae import bi_level_gae, spread_over_turns, token_gae, turn_gae
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from ragen_trl.batching.batch import collate, completion_columns
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.credit.critic import Critic
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.trajectory import Trajectory


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
    else:  # "mt_grpo"
        earlier = mask & mask.roll(-1, dims=1)  # turns before the last one, whose reward is the outcome
        earlier[:, -1:] = False
        outcomes = rollout.returns - rewards.masked_fill(~earlier, 0.0).sum(dim=1)
        turns = mt_grpo_advantages(rewards, mask, outcomes, size, args.step_weight, compared=earlier)
    if not rollout.trajectories:
        return turns.new_zeros((0, rollout.completion_length))
    turn_ids = collate(rollout.trajectories, pad_id=0)["turn_ids"].to(turns.device)
    tokens = spread_over_turns(turns[rollout.local_indices], turn_ids)
    return completion_columns(tokens, rollout.trajectories, rollout.completion_length)


class CriticCredit(NamedTuple):
    """Advantages by a critic, and what the critic learns from them; columns as in ``batch.collate``.

    Attributes:
        advantages: (L, S), 0 at environment tokens.
        targets: (L, S) returns that the critic should have predicted.
        mask: (L, S) true where the critic learns: at every sampled token, or at the first one of each turn
            ("turn_gae").
        action_mask: (L, S) true at sampled tokens.
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
    columns = collate(trajectories, pad_id=0)
    turn_ids = columns["turn_ids"].to(values.device)
    action_mask = turn_ids >= 0
    starts = torch.zeros_like(action_mask)
    if args.advantage == "gae":
        rewards = torch.zeros_like(values)
        for row, trajectory in enumerate(trajectories):
            for turn, end in enumerate(_turn_ends(trajectory)):
                rewards[row, end] = turn_rewards[row, turn]
        advantages, targets = token_gae(rewards, values, action_mask, args.gamma, args.gae_lambda, bootstrap)
    elif args.advantage == "bi_level_gae":
        advantages, targets = bi_level_gae(
            turn_rewards, values, turn_ids, args.turn_gamma, args.gamma, args.gae_lambda, bootstrap
        )
    else:  # "turn_gae"
        turn_values = torch.zeros_like(turn_rewards)
        turn_mask = torch.zeros_like(turn_rewards, dtype=torch.bool)
        for row, trajectory in enumerate(trajectories):
            for turn, end in enumerate(_turn_ends(trajectory)):
                start = end - len(trajectory.turns[turn].reply_ids) + 1
                turn_values[row, turn], turn_mask[row, turn], starts[row, start] = values[row, start], True, True
        by_turn, targets = turn_gae(turn_rewards, turn_values, turn_mask, args.turn_gamma, args.turn_lambda, bootstrap)
        advantages, targets = spread_over_turns(by_turn, turn_ids), spread_over_turns(targets, turn_ids)
    mask = starts if args.advantage == "turn_gae" else action_mask
    return CriticCredit(advantages, targets, mask, action_mask)


def critic_advantages(
    critic: Critic,
    rollout: RolloutBatch,
    args: StarPOConfig,
    total: Callable[[torch.Tensor], torch.Tensor],
    seed: int,
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
        advantages = whiten_with(advantages, action_mask, total(moments(advantages, action_mask)))
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


def _turn_ends(trajectory: Trajectory) -> list[int]:
    ends, length = [], 0
    for turn in trajectory.turns:
        length += len(turn.prompt_ids) + len(turn.reply_ids)
        ends.append(length - 1)
    return ends
