"""Extra rewards: functions for ``StarPOTrainer(reward_funcs=[…])`` that read whole trajectories.

A trajectory's reward is ``w_0 · return + Σ_i w_i · r_i`` with ``reward_weights = [w_0, w_1, …]``: the environment's
return first, format penalties included. No reward function changes success. Each function takes ``trajectory``, this
process's trajectories, and ignores the other columns that TRL passes. All values are finite.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from ragen_envs import consistency
from ragen_trl.trajectory import Trajectory, Turn


def consistency_reward(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """How well actions follow from thoughts, from 0 to 0.2: ``1/T Σ_t 1/|a_t| Σ_a consistency(thought_t, a)``.

    It is made for shops, whose actions contain words (``search[red shoes]``, ``buy:B07``); `ragen_envs.consistency`
    rates all other actions 0. A turn without a thought or without an executed action counts 0.
    """
    return [fmean(_consistency(turn) for turn in episode.turns) for episode in trajectory]


def length_reward(target: int, scale: int) -> Callable[..., list[float]]:
    """Make a reward function that penalises long replies: ``-1/T Σ_t min(1, max(0, n_t - target) / scale)``.

    ``n_t`` is the number of sampled tokens of reply t, end of turn included. This is DAPO's soft overlong punishment
    (arXiv 2503.14476, section 3.4) with L_max = ``target + scale`` and L_cache = ``scale``, as a mean over replies, so
    further turns cost nothing.

    Each reply may have ``target`` tokens, at least 0, without penalty; the full one is reached ``scale`` tokens later,
    at least 1. TRL logs the function as ``rewards/length_reward_<target>_<scale>``.
    """
    if target < 0 or scale < 1:
        raise ValueError(f"target is {target} and scale is {scale}; give at least 0 and at least 1")

    def length(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
        return [fmean(charge(len(turn.reply_ids)) for turn in episode.turns) for episode in trajectory]

    def charge(tokens: int) -> float:
        return max(-1.0, min(0, target - tokens) / scale)

    length.__name__ = f"length_reward_{target}_{scale}"
    return length


def _consistency(turn: Turn) -> float:
    actions = turn.info["actions"]
    return fmean(consistency(turn.thought, action) for action in actions) if actions else 0.0
