"""FrozenLake as a text environment: Gymnasium's physics, RAGEN's random starts and symbols.

A lake (`Lake`: the map and how slippery it is) is a value apart from the environment that walks on it, so that
an oracle can plan on the one and cache by it. Left out: Gymnasium's named maps and reward schedules, which no
text benchmark uses, and RAGEN's "coordinates" observation. The drawing is in `frozen_lake_picture`.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragen_envs.frozen_lake_picture import draw_lake
from ragen_envs.text_env import TextEnv

# In this order the two neighbours of a direction, modulo 4, are its perpendiculars.
ACTIONS = ("Left", "Down", "Right", "Up")
ICE, HOLE, GOAL = "_OG"
PLAYER_ON = {ICE: "P", HOLE: "X", GOAL: "√"}
MAX_REJECTED_LAKES = 100


@functools.lru_cache(maxsize=64)
def neighbours(size: int) -> tuple[tuple[int, int, int, int], ...]:
    """Where each move leads on an empty square; off the border it leads nowhere.

    Args:
        size: Side of the square, in tiles.

    Returns:
        For each of the size² tiles, row-major, the tiles reached by Left, Down, Right and Up.
    """
    last = size - 1
    return tuple(
        (
            row * size + max(column - 1, 0),
            min(row + 1, last) * size + column,
            row * size + min(column + 1, last),
            max(row - 1, 0) * size + column,
        )
        for row in range(size)
        for column in range(size)
    )


@dataclass(frozen=True)
class Lake:
    """A map and its physics.

    Attributes:
        size: Side of the square, in tiles.
        tiles: The size² tiles, row-major: ``_`` ice, ``O`` hole, ``G`` goal.
        move_probability: Probability that the intended move happens; the rest is split evenly between the two
            perpendicular moves. 1 is a lake without slipping.
    """

    size: int
    tiles: str
    move_probability: float

    def transitions(self, tile: int, action: str) -> list[tuple[float, int]]:
        """What an action may lead to.

        Args:
            tile: The player's tile, row-major from 0.
            action: A name from `ACTIONS`.

        Returns:
            (probability, next tile) of the intended move and, if the lake is slippery, of the two perpendicular
            ones. A tile occurs twice if two moves lead there. Holes and the goal lead to themselves.
        """
        if self.tiles[tile] != ICE:
            return [(1.0, tile)]
        reached = neighbours(self.size)[tile]
        move = ACTIONS.index(action)
        if self.move_probability == 1.0:
            return [(1.0, reached[move])]
        aside = (1.0 - self.move_probability) / 2
        return [
            (self.move_probability, reached[move]),
            (aside, reached[(move - 1) % 4]),
            (aside, reached[(move + 1) % 4]),
        ]


def has_path(tiles: str, size: int, start: int, goal: int) -> bool:
    """Whether the goal can be reached from the start without entering a hole."""
    reached = neighbours(size)
    seen = {start}
    frontier = [start]
    while frontier:
        for tile in reached[frontier.pop()]:
            if tile == goal:
                return True
            if tile not in seen and tiles[tile] == ICE:
                seen.add(tile)
                frontier.append(tile)
    return False


def draw_start(
    random: np.random.Generator, size: int, frozen_prob: float, random_start: bool = True
) -> tuple[str, int]:
    """Draws a solvable map: independent tiles, start and goal, drawn anew until a path joins them.

    Args:
        random: Source of all randomness; the result is a function of its state alone.
        size: Side of the square, in tiles.
        frozen_prob: Probability that a tile other than start and goal is ice.
        random_start: Draw distinct start and goal uniformly, instead of the top-left and bottom-right corner.

    Returns:
        The tiles, row-major, and the player's start tile.
    """
    count = size * size
    start, goal = 0, count - 1
    for _ in range(MAX_REJECTED_LAKES):
        *levels, start_level, goal_level = random.random(count + 2).tolist()
        if random_start:
            start = int(start_level * count)
            goal = int(goal_level * (count - 1))
            goal += goal >= start
        board = [ICE if level < frozen_prob else HOLE for level in levels]
        board[start], board[goal] = ICE, GOAL
        tiles = "".join(board)
        if has_path(tiles, size, start, goal):
            return tiles, start
    # Only a lake of mostly holes gets here (probability below 1e-80 by default): freeze one way through.
    tile = start
    while tile != goal:
        board[tile] = ICE
        (row, column), (goal_row, goal_column) = divmod(tile, size), divmod(goal, size)
        if row != goal_row:
            tile += size if goal_row > row else -size
        else:
            tile += 1 if goal_column > column else -1
    return "".join(board), start


class FrozenLake(TextEnv):
    """Cross a frozen lake without falling into a hole.

    ## Description
    The player walks on a square of ice with holes in it, from a start to a goal. On a slippery lake the player
    may slide to a side of the intended direction. Every lake has a path from start to goal.

    The defaults are RAGEN's first version (arXiv 2504.20073); ``frozen_prob=0.9, success_rate=0.8`` are those of
    RAGEN-2, whose published runs use ``is_slippery=False``.

    ## Action Space
    Text: `Left`, `Down`, `Right`, `Up`, in any case. A move into the border is valid and changes nothing.

    ## Observation Space
    Text: ``size`` lines of ``size`` symbols. `P` player, `_` ice, `O` hole, `G` goal, `X` player in a hole,
    `√` player on the goal.

    ## Starting State
    A new lake each time. Each tile is ice with probability `frozen_prob`; start and goal are distinct and
    uniform (`random_start`) or the top-left and bottom-right corners; lakes without a path are drawn again.

    ## Rewards
    +1 for reaching the goal, else 0.

    ## Episode End
    Terminated in a hole or on the goal. The registered id is truncated after 100 actions by `TimeLimit`.

    ## Information
    `success`: the player is on the goal. `action_is_valid`: the action is one of the four.
    `action_is_effective`: the player's tile changed. `slipped`: the move went aside of the intended direction.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"slipped": False}

    def __init__(
        self,
        size: int = 4,
        frozen_prob: float = 0.8,
        is_slippery: bool = True,
        success_rate: float = 1 / 3,
        random_start: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Sets the kind of lake; `reset` draws one.

        Args:
            size: Side of the lake in tiles, at least 2.
            frozen_prob: Probability that a tile is ice rather than a hole, in [0, 1].
            is_slippery: Whether moves may go aside.
            success_rate: Probability of the intended move on a slippery lake, in [0, 1]; the rest is split
                evenly between the two perpendicular moves.
            random_start: Random start and goal rather than opposite corners.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If a number is out of its range.
        """
        if size < 2:
            raise ValueError(f"size={size} leaves no room for a start and a goal; use 2 or more")
        for name, probability in (("frozen_prob", frozen_prob), ("success_rate", success_rate)):
            if not 0.0 <= probability <= 1.0:
                raise ValueError(f"{name}={probability} is not a probability; use a number from 0 to 1")
        super().__init__(render_mode=render_mode, max_observation_length=size * (size + 1))
        self._size = size
        self._frozen_prob = frozen_prob
        self._random_start = random_start
        self._move_probability = success_rate if is_slippery else 1.0

    @property
    def instruction(self) -> str:
        """The task and the legend."""
        slippery = " The ice is slippery: you may slide to the side instead." if self._move_probability < 1.0 else ""
        return (
            f"Walk over the frozen lake to the goal. A hole ends the game.{slippery}\n"
            "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal"
        )

    @property
    def actions(self) -> tuple[str, ...]:
        """The four moves."""
        return ACTIONS

    @property
    def lake(self) -> Lake:
        """The current map and its physics. Exists after `reset`."""
        return self._lake

    @property
    def position(self) -> int:
        """The player's tile, row-major from 0. Exists after `reset`."""
        return self._position

    def transitions(self, state: int, action: str) -> list[tuple[float, int]]:
        """(probability, next tile) of each outcome of an action on tile `state`; see `Lake.transitions`."""
        return self._lake.transitions(state, action)

    def _start(self, options: Mapping[str, Any]) -> str:
        tiles, self._position = draw_start(self.np_random, self._size, self._frozen_prob, self._random_start)
        self._lake = Lake(self._size, tiles, self._move_probability)
        rows = (tiles[first : first + self._size] for first in range(0, len(tiles), self._size))
        self._map_text = "\n".join(rows)
        return self._text()

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        move = ACTIONS.index(action)
        slipped = False
        if self._move_probability < 1.0:
            level = self.outcome_random.random()
            slipped = level >= self._move_probability
            if slipped:
                move += -1 if level < (1.0 + self._move_probability) / 2 else 1
        before = self._position
        self._position = neighbours(self._size)[before][move % 4]
        tile = self._lake.tiles[self._position]
        success = tile == GOAL
        info = {"success": success, "action_is_effective": self._position != before, "slipped": slipped}
        return self._text(), float(success), tile != ICE, info

    def _text(self) -> str:
        """The map with the player on it."""
        at = self._position + self._position // self._size  # one newline per row above
        return f"{self._map_text[:at]}{PLAYER_ON[self._map_text[at]]}{self._map_text[at + 1 :]}"

    def _picture(self) -> NDArray[np.uint8]:
        return draw_lake(self._lake.tiles, self._size, self._position)
