"""The measures of a rollout that the trainer does not log: actions of a turn, and how alike replies are.

RAGEN calls the loss of variety within a group the echo trap (arXiv 2504.20073, section 4.1).
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from accelerate.utils import gather_object

from ragen_trl.batching.rollout_batch import RolloutBatch


def rollout_measures(rollout: RolloutBatch) -> dict[str, float]:
    """``actions_per_turn`` and ``identical_replies`` of a rollout, dropped groups included, over all processes.

    Every process has to call it.
    """
    here = [
        (played.turns[0].reply, len(played.turns), sum(len(turn.info["actions"]) for turn in played.turns))
        for played in rollout.trajectories
    ]
    replies, turns, actions = zip(*rollout.in_order(gather_object(here)), strict=True)
    return {"actions_per_turn": sum(actions) / sum(turns), **identical_replies(replies, rollout.group_size)}


def identical_replies(replies: Sequence[str], group_size: int) -> dict[str, float]:
    """The mean over groups of the share of equal pairs, ``Σ_v n_v (n_v - 1) / (n (n - 1))``; nothing for groups of one.

    It is an unbiased estimate of how often two samples agree, so groups of different sizes can be compared.

    Example:
        >>> identical_replies(["Up", "Up", "Up", "Left"], group_size=4)
        {'identical_replies': 0.5}
    """
    if group_size == 1:
        return {}
    groups = [replies[first : first + group_size] for first in range(0, len(replies), group_size)]
    equal = [sum(count * (count - 1) for count in Counter(group).values()) for group in groups]
    return {"identical_replies": fmean(equal) / (group_size * (group_size - 1))}
