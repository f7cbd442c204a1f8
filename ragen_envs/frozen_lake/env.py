"""FrozenLake as a text environment: its lakes are drawn, and plans on them made, in `maps`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ragen_envs.arguments import check_integer, check_probability
from ragen_envs.board import BoardEnv, coordinate_lines
from ragen_envs.frozen_lake.maps import ACTIONS, GOAL, HOLE, ICE, Lake, distances, draw_start, lake_policy, neighbours
from ragen_envs.wording import TRIALS, phrases, pick, way

_PLACES = {"Up": "above me", "Down": "below me", "Left": "on my left", "Right": "on my right"}
# Horizons are rounded up to a multiple of this, so that one table is enough for every step of an episode.
HORIZON_STEP = 16
PLAYER_ON = {ICE: "P", HOLE: "X", GOAL: "√"}
_REASONS = {**phrases(__file__), "none": TRIALS}


class FrozenLake(BoardEnv):
    """Cross a frozen lake without falling into a hole.

    ## Description
    The player walks on a square of ice with holes in it, from a start to a goal. On a slippery lake the player
    may slide to a side of the intended direction.

    The defaults are RAGEN's first version (arXiv 2504.20073). RAGEN-2 (arXiv 2604.06268) has
    ``frozen_prob=0.9, success_rate=0.8, coordinates=True``, and its published runs do not slip:
    ``frozen_prob=0.9, is_slippery=False, coordinates=True``. Results of the two cannot be compared: with 10 actions an
    oracle fails on half of the lakes of the first version, and on almost none of the second.

    ## Action Space
    Text: `Left`, `Down`, `Right`, `Up`, in any case. A move into the border is valid and changes nothing.

    ## Observation Space
    Text: ``size`` lines of ``size`` symbols. `P` player, `_` ice, `O` hole, `G` goal, `X` player in a hole,
    `√` player on the goal. With `coordinates`, the (row, column) of player, holes and goal follow.

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

    ## Version History
    v0: first version.

    ## Source
    The physics is Gymnasium's (MIT), starts and symbols are RAGEN's (MIT, arXiv 2504.20073).
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"slipped": False}
    horizon = 10
    actions = ACTIONS
    _pictured = "pale ice, dark round holes, a flag at the goal, you in a green coat"
    _sheet = Path(__file__).with_name("tiles.png")
    _symbols = "_OGPX√"
    _legend = "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal"

    lake: Lake
    """The current map and its physics. Exists after `reset`."""

    position: int
    """The player's tile, row-major from 0. Exists after `reset`."""

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
        corner = size * size - 1
        listed = coordinate_lines({"You": [corner], "Holes": [corner] * size * size, "Goal": [corner]}, size)
        longest = size * (size + 1) + (len(listed) if coordinates else 0)
        super().__init__(render_mode=render_mode, max_observation_length=longest)
        self._size, self._frozen_prob, self._random_start = size, frozen_prob, random_start
        self._coordinates = coordinates
        self._move_probability = success_rate if is_slippery else 1.0
        slippery = " The ice is slippery: you may slide to the side instead." if self._move_probability < 1.0 else ""
        self._task = f"Walk over the frozen lake to the goal. A hole ends the game.{slippery}"

    def best_action(self, actions_left: int) -> str:
        """The move that makes it most probable to reach the goal in time; see `maps.lake_policy`."""
        horizon = -(-actions_left // HORIZON_STEP) * HORIZON_STEP
        return ACTIONS[lake_policy(self.lake, horizon)[actions_left - 1, self.position]]

    def difficulty(self) -> float:
        """Moves of a shortest path, if nothing slips."""
        return float(distances(self.lake.tiles, self._size).get(self.position, float("inf")))

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """Where the goal lies, which hole is near, and where to go. All of it can be seen on the map."""
        lake, here, action = self.lake, self.position, actions[0]
        if lake.tiles[here] != ICE:
            return f"The walk is over, and I try {action}."
        kind, place = _reason(lake, here, action, rng)
        reason = pick(rng, *_REASONS[kind]).format(place=place)
        at, there = divmod(here, lake.size), divmod(lake.tiles.index(GOAL), lake.size)
        lies = way(here, lake.tiles.index(GOAL), lake.size, rng)
        said = [f"The goal is {lies}", f"I see the goal {lies}", f"From here the goal lies {lies}", f"Goal: {lies}"]
        if self._coordinates:
            said += [f"I am at {at} and the goal is at {there}, {lies}", f"The goal at {there} is {lies} from {at}"] * 2
        return f"{pick(rng, *said)}{reason} {action}."

    def _start(self, options: Mapping[str, Any]) -> str:
        tiles, self.position = draw_start(self.np_random, self._size, self._frozen_prob, self._random_start)
        self.lake = Lake(self._size, tiles, self._move_probability)
        rows = (tiles[first : first + self._size] for first in range(0, len(tiles), self._size))
        self._map_text = "\n".join(rows)
        self._holes, self._goal = [tile for tile, symbol in enumerate(tiles) if symbol == HOLE], tiles.index(GOAL)
        return self._text()

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        move = ACTIONS.index(action)
        slipped = False
        if self._move_probability < 1.0:
            level = self.outcome_random.random()
            slipped = level >= self._move_probability
            if slipped:
                move += -1 if level < (1.0 + self._move_probability) / 2 else 1
        before = self.position
        self.position = neighbours(self._size)[before][move % 4]
        tile = self.lake.tiles[self.position]
        success = tile == GOAL
        info = {"success": success, "action_is_effective": self.position != before, "slipped": slipped}
        return self._text(), float(success), tile != ICE, info

    def _board_text(self) -> str:
        at = self.position + self.position // self._size  # one newline per row above
        return f"{self._map_text[:at]}{PLAYER_ON[self._map_text[at]]}{self._map_text[at + 1 :]}"

    def _squares(self) -> tuple[dict[str, list[int]], int]:
        return {"You": [self.position], "Holes": self._holes, "Goal": [self._goal]}, self._size


def _reason(lake: Lake, here: int, action: str, rng: np.random.Generator) -> tuple[str, str]:
    """Why this move: a key of `_REASONS`, and where the hole lies that it names."""
    reached = neighbours(lake.size)[here][ACTIONS.index(action)]
    is_nearer = _steps(lake, reached) < _steps(lake, here)
    around = zip(ACTIONS, neighbours(lake.size)[here], strict=True)
    holes = {move: tile for move, tile in around if lake.tiles[tile] == HOLE}  # next to the player
    if lake.move_probability < 1.0:
        possible = {tile for _, tile in lake.transitions(here, action)}
        risks = [_PLACES[move] for move, tile in holes.items() if tile in possible]
        avoided = [_PLACES[move] for move, tile in holes.items() if tile not in possible]
        if lake.tiles[reached] == HOLE or not (is_nearer or (avoided and not risks)):
            return "none", ""
        if risks:
            return "risk", pick(rng, *risks)
        if avoided:
            return "no_slip" if is_nearer else "stay_away", pick(rng, *avoided)
        return "head_for_it", ""
    to_goal = distances(lake.tiles, lake.size)
    if to_goal.get(reached) != to_goal[here] - 1:
        return "none", ""
    if lake.tiles[reached] == GOAL:
        return "last", ""
    if _steps(lake, reached) > _steps(lake, here):
        return "detour", ""
    if direct := [move for move in holes if _steps(lake, holes[move]) < _steps(lake, here)]:
        return "blocked", _PLACES[direct[0]]
    if holes and rng.random() < 0.6:
        return "stay_clear", _PLACES[pick(rng, *holes)]
    return "free", ""


def _steps(lake: Lake, tile: int) -> int:
    """Rows and columns between a tile and the goal."""
    (row, column), (goal_row, goal_column) = divmod(tile, lake.size), divmod(lake.tiles.index(GOAL), lake.size)
    return abs(row - goal_row) + abs(column - goal_column)
