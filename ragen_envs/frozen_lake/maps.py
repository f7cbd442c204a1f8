"""Frozen lakes: how a random one is drawn, and the best play on it."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# In this order, the directions before and after each one (modulo 4) are perpendicular to it.
ACTIONS = ("Left", "Down", "Right", "Up")
ICE, HOLE, GOAL = "_OG"
MAX_LAKES = 100
# Two actions whose values differ by less are equally good; the difference is a rounding error.
TIE = 1e-12


@functools.lru_cache(maxsize=64)
def neighbours(size: int) -> tuple[tuple[int, int, int, int], ...]:
    """The tiles that Left, Down, Right and Up lead to from each of the size² tiles, row-major, without holes."""
    found, last = [], size - 1
    for tile in range(size * size):
        row, column = divmod(tile, size)
        left, right = tile - (column > 0), tile + (column < last)
        found.append((left, tile + size * (row < last), right, tile - size * (row > 0)))
    return tuple(found)


@dataclass(frozen=True)
class Lake:
    """A map and its physics: an immutable value, so that it can be the key of a cache of plans.

    Attributes:
        size: Side of the square, in tiles.
        tiles: The size² tiles, row-major: ``_`` ice, ``O`` hole, ``G`` goal.
        move_probability: Probability that the intended move happens; the rest is split evenly between the two
            perpendicular moves. 1 means that the lake is not slippery.
    """

    size: int
    tiles: str
    move_probability: float

    def transitions(self, tile: int, action: str) -> list[tuple[float, int]]:
        """The outcomes of an action on a tile: (probability, next tile) of the intended move, then of slips to a side.

        A tile occurs twice if two moves lead there. Holes and the goal lead to themselves.
        """
        if self.tiles[tile] != ICE:
            return [(1.0, tile)]
        reached, move = neighbours(self.size)[tile], ACTIONS.index(action)
        if self.move_probability == 1.0:
            return [(1.0, reached[move])]
        aside = (1.0 - self.move_probability) / 2
        sides = [(aside, reached[(move + turn) % 4]) for turn in (-1, 1)]
        return [(self.move_probability, reached[move]), *sides]


@functools.lru_cache(maxsize=4096)
def distances(tiles: str, size: int) -> dict[int, int]:
    """Moves of a shortest path to the goal that enters no hole, for each tile that has one."""
    goal = tiles.index(GOAL)
    found, frontier = {goal: 0}, [goal]
    for tile in frontier:  # it grows during the loop: breadth-first search
        for other in neighbours(size)[tile]:
            if other not in found and tiles[other] == ICE:
                found[other] = found[tile] + 1
                frontier.append(other)
    return found


def draw_start(
    random: np.random.Generator, size: int, frozen_prob: float, random_start: bool = True
) -> tuple[str, int]:
    """Draws a solvable map: independent tiles, start and goal are drawn again until a path connects them.

    Args:
        random: Source of all randomness.
        size: Side of the square, in tiles.
        frozen_prob: Probability that a tile other than start and goal is ice.
        random_start: Whether start and goal are distinct and uniform, and not the top-left and bottom-right corner.

    Returns:
        The tiles, row-major, and the player's start tile.

    Raises:
        ValueError: If there was no path in 100 draws, as on lakes of mostly holes (by default below 1e-80).
    """
    count = size * size
    start, goal = 0, count - 1
    for _ in range(MAX_LAKES):
        *levels, start_level, goal_level = random.random(count + 2).tolist()
        if random_start:
            start = int(start_level * count)
            goal = int(goal_level * (count - 1))
            goal += goal >= start
        board = [ICE if level < frozen_prob else HOLE for level in levels]
        board[start], board[goal] = ICE, GOAL
        tiles = "".join(board)
        if start in distances(tiles, size):
            return tiles, start
    raise ValueError(f"none of {MAX_LAKES} lakes has a path with frozen_prob={frozen_prob}, size={size}; use more ice")


@functools.lru_cache(maxsize=4096)
def lake_policy(lake: Lake, horizon: int) -> NDArray[np.int8]:
    """Optimal play on a frozen lake by value iteration over a finite horizon.

    It maximises the probability of reaching the goal in time. Among equally good moves it minimises the expected length
    of the successful paths, and then takes the first of `ACTIONS`. Without slipping, and with enough actions, it walks
    a shortest path.

    Returns:
        Index into `ACTIONS`, shape (horizon, size²): row h is for h + 1 actions left.
    """
    aside = (1.0 - lake.move_probability) / 2
    probability = np.array([lake.move_probability, aside, aside])
    tiles = np.array(list(lake.tiles))
    around = np.array(neighbours(lake.size))  # (size², 4)
    around[tiles != ICE] = np.flatnonzero(tiles != ICE)[:, None]
    reached = np.stack([around, np.roll(around, 1, axis=1), np.roll(around, -1, axis=1)], axis=-1)  # (size², 4, 3)
    on_goal = tiles == GOAL
    success = on_goal.astype(float)  # with no actions left
    length = np.zeros_like(success)  # E[actions taken · success]
    policy = np.empty((horizon, len(success)), dtype=np.int8)
    for row in policy:
        action_success = (probability * success[reached]).sum(-1)  # (size², 4)
        action_length = (probability * length[reached]).sum(-1) + action_success
        best = action_success >= action_success.max(-1, keepdims=True) - TIE
        shortest = np.where(best, action_length, np.inf)
        row[:] = (shortest <= shortest.min(-1, keepdims=True) + TIE).argmax(-1)
        success = np.take_along_axis(action_success, row[:, None].astype(np.intp), -1)[:, 0]
        length = np.take_along_axis(action_length, row[:, None].astype(np.intp), -1)[:, 0]
        success[on_goal], length[on_goal] = 1.0, 0.0  # the episode is over, time no longer counts
    return policy
