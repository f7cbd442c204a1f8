"""Sokoban rooms: drawn at random as gym-sokoban does with RAGEN's changes, or read from a file of levels.

A walk carves the floor, boxes start on their targets, and a depth-first search over pulls looks for the state that is
hardest to undo, so each room can be solved. All randomness comes from the generator passed in.

A level is a block of lines in the XSB text format, which public level sets use. It may have letters (``p P b B`` for
the player and a box, on floor or on a target) and run lengths (``4#`` for ``####``), or stand in one line with ``|``
between rows. Anything else between the blocks (titles, authors, walls that enclose nothing) is ignored.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from ragen_envs.errors import EnvError

ACTIONS = ("Up", "Down", "Left", "Right")
TURN_PROBABILITY = 0.35  # of the random walk, at each step
STEPS_PER_SIDE = 1.7  # length of the walk, divided by the sum of the two sides
# What the walk carves around it, on 3 x 3 squares: a row, a column, and three bends.
BRUSHES = ("... ### ...", ".#. .#. .#.", "... ##. .#.", "... ##. ##.", "... .## .#.")
MAX_STATES = 300_000  # visited in one search
MAX_ATTEMPTS = 1000
MAX_STROLL = 3  # random steps of the player at the end

# Of a level: # wall, @ player, + player on a target, $ box, * box on a target, . target; the rest of them is floor.
SYMBOLS = frozenset("#@+$*. -_")
_LETTERS = str.maketrans("pPbB", "@+$*")
_RUN = re.compile(r"([0-9]{1,3})([^0-9|])")


class RoomError(EnvError, ValueError):
    """No solvable room or solution was found, or a level cannot be played; then the message names file and line."""


class _Shared:
    """What is immutable, and so need not be copied with an environment."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


@dataclass(frozen=True)
class Board(_Shared):
    """The part of a room that never moves. Squares are numbered row by row from 0 at the top left.

    Attributes:
        height: Number of rows.
        width: Number of columns.
        floor: Squares that are not wall, including targets. None is on the rim.
        targets: Squares where boxes belong.
    """

    height: int
    width: int
    floor: frozenset[int]
    targets: frozenset[int]

    @property
    def offsets(self) -> tuple[int, int, int, int]:
        """The change of the player's square number by each of `ACTIONS`."""
        return -self.width, self.width, -1, 1


@dataclass(frozen=True)
class Room(_Shared):
    """A board with a player and boxes on it, as an episode starts.

    Attributes:
        board: Floor and targets.
        boxes: Squares with a box, as many as targets.
        player: The player's square.
    """

    board: Board
    boxes: frozenset[int]
    player: int


def draw_room(
    random: np.random.Generator, dim_room: tuple[int, int] = (6, 6), num_boxes: int = 1, search_depth: int = 300
) -> Room:
    """Draws a solvable room in which no box is on a target.

    Args:
        random: Source of all randomness; the result depends only on its state.
        dim_room: Rows and columns, walls included; each at least 3.
        num_boxes: Number of boxes and of targets, at least 1.
        search_depth: Limit of the backward search, in pulls and steps, as RAGEN counts it: states deeper than
            ``search_depth - 2`` are not visited. Small values give easier rooms and take less time.

    Raises:
        RoomError: If 1000 attempts failed.
    """
    for _ in range(MAX_ATTEMPTS):
        floor = _carve(random, *dim_room)
        if len(floor) <= num_boxes + 1:
            continue
        inside = frozenset(floor)
        player, *targets = [floor.pop(int(level * len(floor))) for level in random.random(num_boxes + 1).tolist()]
        board = Board(*dim_room, inside, frozenset(targets))
        if found := _play_backwards(board, player, search_depth):
            boxes, player, displacement = found
            return Room(board, frozenset(boxes), _stroll(random, board, boxes, player, displacement))
    asked = f"dim_room={dim_room}, num_boxes={num_boxes}, search_depth={search_depth}"
    raise RoomError(f"no solvable room in {MAX_ATTEMPTS} attempts for {asked}; use a larger room or fewer boxes")


def _carve(random: np.random.Generator, height: int, width: int) -> list[int]:
    """The floor of a new room: the squares that a random walk has carved, in order of their numbers."""
    brushes = [
        sum(1 << row * width + column for row in range(3) for column in range(3) if brush.split()[row][column] == "#")
        for brush in BRUSHES
    ]
    ways = ((1, 0), (0, 1), (-1, 0), (0, -1))
    steps = int(STEPS_PER_SIDE * (height + width))
    levels = random.random(3 + 3 * steps).tolist()
    down, right = ways[int(levels[0] * 4)]
    # As in the original, the walk may start on the far rim; its first step moves inside.
    row, column = 1 + int(levels[1] * (height - 1)), 1 + int(levels[2] * (width - 1))
    carved = 0
    for at in range(3, len(levels), 3):
        if levels[at] < TURN_PROBABILITY:
            down, right = ways[int(levels[at + 1] * 4)]
        row = min(max(row + down, 1), height - 2)
        column = min(max(column + right, 1), width - 2)
        carved |= brushes[int(levels[at + 2] * len(brushes))] << ((row - 1) * width + column - 1)
    inside = (range(row * width + 1, row * width + width - 1) for row in range(1, height - 1))
    return [square for squares in inside for square in squares if carved >> square & 1]


def _play_backwards(board: Board, player: int, search_depth: int) -> tuple[tuple[int, ...], int, int] | None:
    """The state that is hardest to undo, by depth-first search over pulls from the solved room.

    The score of a state is the product of two numbers: how often the box that is pulled changed, and how far the boxes
    are from their targets (rows plus columns, summed over the boxes). Only states count in which neither a box nor the
    player is on a target. Of states with the same score, the first one counts.

    Returns:
        Squares of the boxes, square of the player, distance of the boxes from their targets; None if no box could be
        moved off its target.
    """
    width, offsets = board.width, board.offsets
    floor = sum(1 << square for square in board.floor)
    goals = sum(1 << square for square in board.targets)
    homes = tuple(board.targets)
    best: tuple[tuple[int, ...], int, int] | None = None
    best_score = 0
    seen: set[tuple[int, int, int]] = set()
    # Player, square of each box, boxes never pulled and boxes pulled (as bits), number of changes of box, box pulled
    # last, depth. As in the original, a box that was pulled back to its target makes a different state.
    stack = [(player, homes, goals, 0, 0, -1, 0)]
    while stack and len(seen) < MAX_STATES:
        player, boxes, fresh, pulled, swaps, last, depth = stack.pop()
        key = (player, fresh, pulled)
        if depth > search_depth - 2 or key in seen:
            continue
        seen.add(key)
        occupied = fresh | pulled
        if swaps and not goals & (occupied | 1 << player):
            displacement = sum(
                abs(box // width - home // width) + abs(box % width - home % width)
                for box, home in zip(boxes, homes, strict=True)
            )
            if swaps * displacement > best_score:
                best, best_score = (boxes, player, displacement), swaps * displacement
        for offset in reversed(offsets):  # the last one pushed is looked at first
            ahead, back = player + offset, player - offset
            if not (floor & ~occupied) >> ahead & 1:
                continue
            if not occupied >> back & 1:
                if (ahead, fresh, pulled) not in seen:
                    stack.append((ahead, boxes, fresh, pulled, swaps, last, depth + 1))
                continue
            box = boxes.index(back)
            gone = ~(1 << back)
            moved = (*boxes[:box], player, *boxes[box + 1 :])
            now_pulled = pulled & gone | 1 << player
            stack.append((ahead, moved, fresh & gone, now_pulled, swaps + (box != last), box, depth + 1))
    return best


def _stroll(random: np.random.Generator, board: Board, boxes: Sequence[int], player: int, displacement: int) -> int:
    """The player's square after some random steps, so that it is not always next to the box to push."""
    level, *levels = random.random(1 + 2 * MAX_STROLL).tolist()
    if level > (0.8 if displacement == 1 else 0.5):
        return player
    been = {player, *boxes}
    for where, go_on in zip(levels[::2], levels[1::2], strict=True):
        free = [player + offset for offset in board.offsets if player + offset in board.floor]
        free = [square for square in free if square not in been]
        if not free:
            break
        player = free[int(where * len(free))]
        been.add(player)
        if go_on > 0.5:
            break
    return player


def read_levels(path: str | os.PathLike[str]) -> tuple[Room | str, ...]:
    """Reads all levels of a file.

    Args:
        path: A text file. Levels are ASCII, so the encoding of the names between them does not matter.

    Returns:
        The levels in order, at least one of them a room. Squares that the player can never reach are wall, and so is a
        box there that stands on its target. Instead of a level that cannot be played (it is open, does not have exactly
        one player and as many boxes as targets, or has nothing to push) there is the reason, with its line.

    Raises:
        RoomError: If the file cannot be read or no level can be played.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, TypeError) as error:
        raise RoomError(f"levels={path!r} cannot be read: {error}") from error
    levels: list[Room | str] = []
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        rows = _rows(line)
        if len(rows) == 1:
            block += rows
            continue
        for found, first in ((block, number - len(block)), (rows, number)):
            if set("".join(found)) & set("@+$*."):
                try:
                    levels.append(_read_level(found))
                except RoomError as error:
                    levels.append(f"{os.fspath(path)}, line {first}: {error}")
        block = []
    if not any(isinstance(level, Room) for level in levels):
        nothing = f"levels={os.fspath(path)!r} has no level in the XSB format (lines of #@$.)"
        raise RoomError(str(levels[0]) if levels else nothing)
    return tuple(levels)


def _rows(line: str) -> list[str]:
    """The rows of a level that a line holds: mostly one, several if they are in one line, none in any other text."""
    spelled = _RUN.sub(lambda run: int(run[1]) * run[2], line.expandtabs().translate(_LETTERS))
    rows = [row.rstrip() for row in spelled.split("|")]
    return [row for row in rows if row] if "#" in spelled and set("".join(rows)) <= SYMBOLS else []


def _read_level(rows: Sequence[str]) -> Room:
    """The room of one block; `RoomError` says why there is none."""
    width = max(map(len, rows))
    text = "".join(row.ljust(width) for row in rows)

    players, boxes, targets = (
        frozenset(square for square, symbol in enumerate(text) if symbol in symbols) for symbols in ("@+", "$*", ".*+")
    )
    if len(players) != 1:
        raise RoomError(f"{len(players) or 'no'} players; a level needs one '@' or '+'")
    if len(boxes) != len(targets):
        raise RoomError(f"boxes: {len(boxes)}, targets: {len(targets)}; there must be equally many")
    (player,) = players
    floor = _reach(text, width, player)
    if boxes - floor != targets - floor:
        row, column = divmod(min((boxes | targets) - floor), width)
        raise RoomError(f"the player cannot reach row {row + 1}, column {column + 1}, boxes ignored")
    if boxes == targets:
        raise RoomError("nothing to push; at least one box must be off its target")
    return Room(Board(len(rows), width, floor, targets & floor), boxes & floor, player)


def _reach(text: str, width: int, player: int) -> frozenset[int]:
    """The squares inside the walls around the player; `RoomError` if they touch the rim: the player could walk out."""
    inside, frontier = {player}, [player]
    for square in frontier:  # it grows during the loop
        row, column = divmod(square, width)
        if row in (0, len(text) // width - 1) or column in (0, width - 1):
            raise RoomError(f"the level is open at row {row + 1}, column {column + 1}; close its wall")
        for neighbour in (square - width, square + width, square - 1, square + 1):
            if neighbour not in inside and text[neighbour] != "#":
                inside.add(neighbour)
                frontier.append(neighbour)
    return frozenset(inside)
