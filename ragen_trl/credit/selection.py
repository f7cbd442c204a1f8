"""Which groups are trained on: StarPO-S's filter with a configuration's options, for one environment or several."""

from collections import Counter

import torch

from ragen_trl.algorithms.filtering import group_std, most_uncertain_groups, top_mass_groups
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.seeds import interleave


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
