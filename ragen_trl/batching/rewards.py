"""Extra rewards: functions for ``StarPOTrainer(reward_funcs=[…])`` that read whole trajectories.

A trajectory's reward is ``w_0 · return + Σ_i w_i · r_i`` with ``reward_weights = [w_0, w_1, …]``: the environment's
return first, format penalties included. No reward function changes success. Each function takes ``trajectory``, this
process's trajectories, and ignores the other columns that TRL passes. All values are finite.
"""

from collections.abc import Sequence
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


def _consistency(turn: Turn) -> float:
    actions = turn.info["actions"]
    return fmean(consistency(turn.thought, action) for action in actions) if actions else 0.0
