"""Sokoban as a text environment: its rooms are drawn or read in `rooms`, and solved in `solver`."""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from ragen_envs.arguments import check_integer, check_limit, checked_number
from ragen_envs.board import BoardEnv, coordinate_lines
from ragen_envs.sokoban.rooms import ACTIONS, Room, RoomError, draw_room, read_levels
from ragen_envs.sokoban.solver import Solver, State, solver_for
from ragen_envs.text_env import TEXT_CHARSET
from ragen_envs.wording import TRIALS, phrases, pick, way

NEW_VOCABULARY = "W.GCBA@"
"""The symbols of RAGEN's environment SokobanDifferentGridVocab."""
WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
MEANINGS = ("wall", "floor", "target", "box on a target", "box", "you", "you on a target")

_SIDES = {"Up": "below it", "Down": "above it", "Left": "on its right", "Right": "on its left"}  # of who pushes so
_DIRECTIONS = {"Up": "up", "Down": "down", "Left": "to the left", "Right": "to the right"}
_THOUGHTS = phrases(__file__)

STEP_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0


class Sokoban(BoardEnv):
    """Push every box onto a target.

    ## Description
    The player walks through a room and pushes boxes by walking into them. A box moves one square, and not into a
    wall or another box; boxes cannot be pulled. Each episode has a new room, which can always be solved.
    `ragen/Sokoban-v0` is RAGEN's SimpleSokoban (6 × 6, one box), `ragen/SokobanLarge-v0` its LargerSokoban (8 × 8,
    two boxes, ``search_depth=10``); RAGEN plays both with 10 actions an episode.

    ## Action Space
    Text: `Up`, `Down`, `Left`, `Right`, in any case. A move against a wall, or against a box that cannot move, is
    valid and changes nothing.

    ## Observation Space
    Text: one line for each row, one symbol for each square. `#` wall, `_` floor, `O` target, `√` box on a target, `X`
    box, `P` player, `S` player on a target, or the symbols given. With `coordinates`, the (row, column) of player,
    boxes and targets follow.

    ## Starting State
    A room by `rooms.draw_room`, or one of the `levels`, uniformly or as ``options={"level": index}`` says.

    ## Rewards
    -0.1 for each action, +1 for pushing a box onto a target, -1 for pushing one off, +10 when all are on targets.

    ## Episode End
    Terminated when every box is on a target. Truncated after `max_steps` valid actions.

    ## Information
    `success`: every box is on a target. `action_is_valid`: the action is one of the four. `action_is_effective`:
    the player moved. `pushed`: a box moved.

    ## Version History
    v0: first version.

    ## Source
    Rules and rewards are gym-sokoban's (MIT), settings and symbols RAGEN's (MIT, arXiv 2504.20073).
    """

    option_names: ClassVar[tuple[str, ...]] = ("outcome_seed", "level")
    idle_info: ClassVar[Mapping[str, Any]] = {"pushed": False}
    horizon = 10
    plain_arguments = ("symbols",)
    actions = ACTIONS
    _pictured = "brick wall, pale floor, red ring target, brown box, green box on a target, you in a green coat"
    _sheet = Path(__file__).with_name("tiles.png")
    _task = (
        "Push every box onto a target. You push a box by walking into it; it stops at walls and at other boxes, and "
        "you cannot pull."
    )

    def __init__(
        self,
        dim_room: Sequence[int] = (6, 6),
        num_boxes: int = 1,
        max_steps: int | None = 100,
        search_depth: int = 300,
        symbols: str = "#_O√XPS",
        coordinates: bool = False,
        levels: str | os.PathLike[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Sets the kind of room; `reset` draws one.

        Args:
            dim_room: Rows and columns, walls included; each at least 3, one of them at least 5.
            num_boxes: Number of boxes, at least 1.
            max_steps: Valid actions after which an episode is truncated; None for no limit.
            search_depth: How far the room generator plays backwards, see `rooms.draw_room`.
            symbols: Seven different characters for wall, floor, target, box on a target, box, player and player on
                a target; ``"W.GCBA@"`` is RAGEN's other vocabulary.
            coordinates: Whether observations also list where player, boxes and targets are.
            levels: A file of levels in the XSB format to play instead of generated rooms, whose arguments
                (`dim_room`, `num_boxes`, `search_depth`) then mean nothing. Such levels want more steps.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If a number is out of range, or the symbols are not different.
            RoomError: If no level of the file can be played; a warning names those that cannot.
        """
        rows, columns = map(int, dim_room)
        check_integer("num_boxes", num_boxes, 1, "leaves nothing to push")
        if min(rows, columns) < 3 or max(rows, columns) < 5 or num_boxes + 2 > (rows - 2) * (columns - 2):
            raise ValueError(f"num_boxes={num_boxes} do not fit into dim_room={dim_room!r}; use fewer or a larger room")
        check_limit("max_steps", max_steps)
        check_integer("search_depth", search_depth, 3, "cannot move a box off its target")
        if not len(symbols) == len(set(symbols)) == len(MEANINGS) or not set(symbols) <= set(TEXT_CHARSET) - {"\n"}:
            raise ValueError(f"symbols={symbols!r} must be 7 different characters of ASCII and √")
        self._levels = () if levels is None else read_levels(levels)
        rooms = {number: level for number, level in enumerate(self._levels) if isinstance(level, Room)}
        self._playable = tuple(rooms)
        if bad := [level for level in self._levels if isinstance(level, str)]:
            gymnasium.logger.warn(f"{len(bad)} of {len(self._levels)} levels cannot be played: {'; '.join(bad):.500}")
        longest = 0
        sizes = [(room.board.height, room.board.width, len(room.boxes)) for room in rooms.values()]
        for height, width, boxes in sizes or [(rows, columns, num_boxes)]:
            corners = [height * width - 1] * boxes
            listed = coordinate_lines({"You": corners[:1], "Boxes": corners, "Targets": corners}, width)
            longest = max(longest, height * (width + 1) + (len(listed) if coordinates else 0))
        super().__init__(render_mode=render_mode, max_observation_length=longest)
        self._dim_room, self._num_boxes, self._search_depth = (rows, columns), num_boxes, search_depth
        self._symbols, self._coordinates = symbols, coordinates
        named = zip(symbols, MEANINGS, strict=True)
        self._legend = ", ".join(f"{one if one.strip() else repr(one)} {meaning}" for one, meaning in named)
        self._max_steps = max_steps

    @property
    def room(self) -> Room:
        """The board, the boxes and the player, now. Exists after `reset`."""
        return Room(self._board, self._boxes, self._player)

    def best_action(self, actions_left: int) -> str:
        """The first move of a shortest solution; where there is none any more, all moves are equally good.

        Raises:
            RoomError: If the level is too large for the solver.
        """
        return solver_for(self._board).best_move(self._player, self._boxes) or ACTIONS[0]

    def difficulty(self) -> float:
        """Moves of a shortest solution; infinity if there is none."""
        return float(solver_for(self._board).distance(self._player, self._boxes))

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """Where the next box must go, and from which side it is pushed.

        The solver says which push comes next; the rest can be seen in the room.
        """
        room, action = self.room, actions[0]
        if room.boxes <= room.board.targets:
            return f"Every box is on a target, and I try {action}."
        solver = solver_for(room.board)
        reached = solver.after((room.player, room.boxes), action)
        left, then = solver.distance(room.player, room.boxes), solver.distance(*reached)
        if left == math.inf or then != left - 1:
            return f"{self._any_box(rng)}{pick(rng, *TRIALS)} {action}."
        box, push, target = _next_push(solver, room, reached)
        kind = "last_push" if box + self._offsets[push] == target else "push"
        kind = "walk" if reached[1] == room.boxes else kind
        reason = pick(rng, *_THOUGHTS[kind]).format(side=_SIDES[push], direction=_DIRECTIONS[push])
        return f"{self._aim(box, target, rng)}{reason} {action}."

    def _aim(self, box: int, target: int, rng: np.random.Generator) -> str:
        """Where a box must go."""
        if box == target:
            return "A box is in the way on its target"  # which it leaves and comes back to
        width = self._board.width
        at, there, goes = divmod(box, width), divmod(target, width), way(box, target, width, rng)
        if self._coordinates:
            said = [f"The box at {at} must get to {there}, {goes}", f"From {at} the box has to go {goes}, to {there}"]
            return pick(rng, *said, f"The box at {at} must go {goes}")
        if len(self._boxes) > 1:
            lies = f"box {way(self._player, box, width, rng)} from me"
            return pick(rng, f"I want the {lies} to go {goes}", f"The {lies} must go {goes}")
        said = [f"The box must go {goes}", f"The target is {goes} from the box", f"The box has to move {goes}"]
        return pick(rng, *said, f"Box to target: {goes}")

    def _any_box(self, rng: np.random.Generator) -> str:
        """Where a box lies that is on no target; its way is told only where there is one target."""
        box = min(self._boxes - self._board.targets)
        if len(self._boxes) == 1:
            return self._aim(box, min(self._board.targets), rng)
        return f"A box is {way(self._player, box, self._board.width, rng)} from me"

    def _start(self, options: Mapping[str, Any]) -> str:
        room = self._draw(options.get("level"))
        self._board, self._boxes, self._player = room.board, room.boxes, room.player
        self._steps = 0
        self._offsets = dict(zip(ACTIONS, room.board.offsets, strict=True))
        self._cells = ["\n"] * (room.board.height * (room.board.width + 1) - 1)
        for square in range(room.board.height * room.board.width):
            self._draw_square(square)
        return self._text()

    def _draw(self, level: int | None) -> Room:
        if not self._levels:
            if level is not None:
                raise ValueError(f"level={level!r} needs a file of levels, but rooms are generated; pass levels=")
            return draw_room(self.np_random, self._dim_room, self._num_boxes, self._search_depth)
        # Drawn even when the option replaces it, so that the option cannot shift later start states.
        number = self._playable[int(self.np_random.integers(len(self._playable)))]
        if level is not None:
            number = checked_number("level", level)
            if number >= len(self._levels):
                raise ValueError(f"level={level!r} does not exist; use an integer from 0 to {len(self._levels) - 1}")
        chosen = self._levels[number]
        if isinstance(chosen, str):
            raise RoomError(chosen)
        return chosen

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        board, player = self._board, self._player
        ahead = player + self._offsets[action]
        beyond = ahead + self._offsets[action]
        pushed = ahead in self._boxes
        free = beyond in board.floor and beyond not in self._boxes if pushed else ahead in board.floor
        reward, solved = STEP_REWARD, False
        self._steps += 1
        if free:
            self._player = ahead
            if pushed:
                self._boxes = self._boxes - {ahead} | {beyond}
                reward += BOX_REWARD * ((beyond in board.targets) - (ahead in board.targets))
                solved = self._boxes <= board.targets
                reward += SOLVED_REWARD * solved
                self._draw_square(beyond)
            self._draw_square(player)
            self._draw_square(ahead)
        self._truncated = not solved and self._steps == self._max_steps
        info = {"success": solved, "action_is_effective": free, "pushed": pushed and free}
        return self._text(), reward, solved, info

    def _draw_square(self, square: int) -> None:
        on_target = square in self._board.targets
        if square == self._player:
            kind = PLAYER_ON_TARGET if on_target else PLAYER
        elif square in self._boxes:
            kind = BOX_ON_TARGET if on_target else BOX
        else:
            kind = TARGET if on_target else FLOOR if square in self._board.floor else WALL
        self._cells[square + square // self._board.width] = self._symbols[kind]

    def _board_text(self) -> str:
        return "".join(self._cells)

    def _squares(self) -> tuple[dict[str, Collection[int]], int]:
        board = self._board
        return {"You": (self._player,), "Boxes": self._boxes, "Targets": board.targets}, board.width


def _next_push(solver: Solver, room: Room, reached: State) -> tuple[int, str, int]:
    """The next push of a shortest solution that goes on from `reached`.

    Returns:
        Where the box is now, the direction of its next push, and where it will be at the end.
    """
    state, before = reached, room.boxes
    while state[1] == before:  # only walks; the solution has a push, because a box is on no target
        state = solver.after(state, solver.best_move(*state) or ACTIONS[0])
    (start,), (box,) = before - state[1], state[1] - before
    push = ACTIONS[room.board.offsets.index(box - start)]
    if len(before) == 1:
        return start, push, min(room.board.targets)
    while (move := solver.best_move(*state)) is not None:
        after = solver.after(state, move)
        if box in state[1] - after[1]:
            (box,) = after[1] - state[1]
        state = after
    return start, push, box
