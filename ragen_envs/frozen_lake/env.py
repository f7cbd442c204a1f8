"""FrozenLake as a text environment: Gymnasium's physics, RAGEN's random starts and symbols.

`maps` draws the lakes, `picture` paints them, `oracle` plans on them; here they are played.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragen_envs.arguments import check_flags, check_integer, check_probability
from ragen_envs.coordinates import ListsCoordinates, longest_coordinate_lines
from ragen_envs.frozen_lake.maps import ACTIONS, GOAL, HOLE, ICE, Lake, draw_start, neighbours
from ragen_envs.frozen_lake.picture import draw_lake
from ragen_envs.text_env import TextEnv

PICTURED = "pale ice, dark round holes, a flag at the goal, you in a green coat"
PLAYER_ON = {ICE: "P", HOLE: "X", GOAL: "√"}


class FrozenLake(ListsCoordinates, TextEnv):
    """Cross a frozen lake without falling into a hole.

    ## Description
    The player walks on a square of ice with holes in it, from a start to a goal. On a slippery lake the player
    may slide to a side of the intended direction. Every lake has a path from start to goal.

    The defaults are RAGEN's first version (arXiv 2504.20073). RAGEN-2 (arXiv 2604.06268) has
    ``frozen_prob=0.9, success_rate=0.8, coordinates=True``, and its published runs do not slip:
    ``frozen_prob=0.9, is_slippery=False, coordinates=True``. Results of the two cannot be compared: with 10 actions an
    oracle fails on half of the lakes of the first version, and on almost none of the second.

    ## Action Space
    Text: `Left`, `Down`, `Right`, `Up`, in any case. A move into the border is valid and changes nothing.

    ## Observation Space
    Text: ``size`` lines of ``size`` symbols. `P` player, `_` ice, `O` hole, `G` goal, `X` player in a hole,
    `√` player on the goal. With `coordinates`, lines with the (row, column) of player, holes and goal follow,
    counted from 0 at the top left.

    ## Starting State
    A new lake each time. Each tile is ice with probability `frozen_prob`. Start and goal are distinct and uniformly
    random (`random_start`), or the top-left and bottom-right corners. Lakes without a path are drawn again.

    ## Rewards
    +1 for reaching the goal, else 0.

    ## Episode End
    Terminated in a hole or on the goal. The registered id is truncated after 100 actions by `TimeLimit`.

    ## Information
    `success`: the player is on the goal. `action_is_valid`: the action is one of the four.
    `action_is_effective`: the player's tile changed. `slipped`: the move went to a side of the intended direction.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.

    ## Source
    The physics is Gymnasium's (MIT), starts and symbols are RAGEN's (MIT, arXiv 2504.20073). This code is under
    Apache-2.0.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"slipped": False}

    def __init__(
        self,
        size: int = 4,
        frozen_prob: float = 0.8,
        is_slippery: bool = True,
        success_rate: float = 1 / 3,
        random_start: bool = True,
        coordinates: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Sets the kind of lake; `reset` draws one.

        Args:
            size: Side of the lake in tiles, at least 2.
            frozen_prob: Probability that a tile is ice rather than a hole, in [0, 1].
            is_slippery: Whether moves may slip to a side.
            success_rate: Probability of the intended move on a slippery lake, in [0, 1]; the rest is split
                evenly between the two perpendicular moves.
            random_start: Whether start and goal are random, and not opposite corners.
            coordinates: Whether observations also list where player, holes and goal are.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is of another type, or a number out of its range.
        """
        check_integer("size", size, 2, "leaves no room for a start and a goal")
        check_probability("frozen_prob", frozen_prob)
        check_probability("success_rate", success_rate)
        check_flags(is_slippery=is_slippery, random_start=random_start, coordinates=coordinates)
        counts = {"You": 1, "Holes": size * size, "Goal": 1} if coordinates else {}
        longest = size * (size + 1) + longest_coordinate_lines(counts, size, size)
        super().__init__(render_mode=render_mode, max_observation_length=longest)
        self._size = size
        self._frozen_prob = frozen_prob
        self._random_start = random_start
        self._coordinates = coordinates
        self._move_probability = success_rate if is_slippery else 1.0

    @property
    def instruction(self) -> str:
        """The task and the legend."""
        legend = "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal"
        return f"{self._task}\n{legend}{self._coordinate_legend}"

    @property
    def picture_instruction(self) -> str:
        """The task and what the picture shows."""
        return f"{self._task}\n{PICTURED}{self._coordinate_legend}"

    @property
    def _task(self) -> str:
        slippery = " The ice is slippery: you may slide to the side instead." if self._move_probability < 1.0 else ""
        return f"Walk over the frozen lake to the goal. A hole ends the game.{slippery}"

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

    @property
    def shows_coordinates(self) -> bool:
        """Whether observations list where player, holes and goal are."""
        return self._coordinates

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
        player = PLAYER_ON[self._map_text[at]]
        return f"{self._map_text[:at]}{player}{self._map_text[at + 1 :]}{self._coordinate_text()}"

    def _squares(self) -> tuple[dict[str, list[int]], int]:
        """The player, the holes and the goal by name, and the lake's width."""
        named: dict[str, list[int]] = {"You": [self._position], "Holes": [], "Goal": []}
        for tile, symbol in enumerate(self._lake.tiles):
            if symbol != ICE:
                named["Holes" if symbol == HOLE else "Goal"].append(tile)
        return named, self._size

    def _picture(self) -> NDArray[np.uint8]:
        return draw_lake(self._lake.tiles, self._size, self._position)
