"""Optimal play on a frozen lake, by value iteration over a finite horizon.

The number of actions left decides what is best: with few of them the player must take risks.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from ragen_envs.frozen_lake.env import FrozenLake
from ragen_envs.frozen_lake.maps import ACTIONS, GOAL, Lake

# Horizons are rounded up to a multiple of this, so that one table is enough for every step of an episode.
HORIZON_STEP = 16
# Two actions whose values differ by less are equally good; the difference is a rounding error.
TIE = 1e-12


def best_lake_action(env: FrozenLake, actions_left: int) -> str:
    """The move that makes it most probable to reach the goal in time; see `lake_policy`.

    Raises:
        ValueError: If `actions_left` is below 1.
    """
    if actions_left < 1:
        raise ValueError(f"actions_left={actions_left}; an oracle needs at least 1 action")
    horizon = -(-actions_left // HORIZON_STEP) * HORIZON_STEP
    return ACTIONS[lake_policy(env.lake, horizon)[actions_left - 1, env.position]]


@functools.lru_cache(maxsize=4096)
def lake_policy(lake: Lake, horizon: int) -> NDArray[np.int8]:
    """Optimal play on a frozen lake by value iteration over a finite horizon.

    It maximises the probability of reaching the goal in time. Among equally good moves it minimises the expected length
    of the successful paths, and then takes the first of `ACTIONS`. Without slipping, and with enough actions, it walks
    a shortest path.

    Args:
        lake: The map and its physics.
        horizon: The largest number of actions left.

    Returns:
        Index into `ACTIONS`, shape (horizon, size²): row h is for h + 1 actions left.
    """
    outcomes = [[lake.transitions(tile, action) for action in ACTIONS] for tile in range(len(lake.tiles))]
    # Some tiles have fewer outcomes than others: fill up with probability 0.
    most = max(len(each) for row in outcomes for each in row)
    padded = np.array([[each + [(0.0, 0)] * (most - len(each)) for each in row] for row in outcomes])
    probability, reached = padded[..., 0], padded[..., 1].astype(np.intp)  # each (size², 4, outcomes)
    success = np.array([float(tile == GOAL) for tile in lake.tiles])  # with no actions left
    length = np.zeros_like(success)  # E[actions taken · success]
    on_goal = success == 1.0
    policy = np.empty((horizon, len(success)), dtype=np.int8)
    for row in policy:
        action_success = (probability * success[reached]).sum(-1)  # (size², 4)
        action_length = (probability * length[reached]).sum(-1) + action_success
        best = action_success >= action_success.max(-1, keepdims=True) - TIE
        shortest = np.where(best, action_length, np.inf)
        row[:] = (shortest <= shortest.min(-1, keepdims=True) + TIE).argmax(-1)
        success = np.take_along_axis(action_success, row[:, None].astype(np.intp), -1)[:, 0]
        length = np.take_along_axis(action_length, row[:, None].astype(np.intp), -1)[:, 0]
        length[on_goal] = 0.0  # the episode is over, time no longer counts
    return policy
