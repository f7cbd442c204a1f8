"""Reads Sokoban levels in the XSB text format, which public level sets use.

A level is a block of lines made of the symbols below. They may be letters (``p P b B`` for the player and a box, on
floor or on a target), have run lengths (``4#`` for ``####``), or stand in one line with ``|`` between rows. Anything
else between the blocks (titles, authors, walls that enclose nothing) is ignored.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ragen_envs.errors import EnvError
from ragen_envs.sokoban.rooms import Board, Room

WALL, PLAYER, PLAYER_ON_TARGET, BOX, BOX_ON_TARGET, TARGET = "#@+$*."
MOVABLE = frozenset("@+$*.")
SYMBOLS = MOVABLE | set("# -_")
_LETTERS = str.maketrans("pPbB", "@+$*")
_RUN = re.compile(r"([0-9]{1,3})([^0-9|])")


class LevelError(EnvError, ValueError):
    """A level file, or a level in it, cannot be played; the message names file and line."""


def read_levels(path: str | os.PathLike[str]) -> tuple[Room | str, ...]:
    """Reads all levels of a file.

    Args:
        path: A text file, UTF-8 or, as old sets often are, Latin-1.

    Returns:
        The levels in order, at least one of them a room. Squares that the player can never reach are wall, and so is a
        box there that stands on its target. Instead of a level that cannot be played (it is open, does not have exactly
        one player and as many boxes as targets, or has nothing to push) there is the reason, with its line.

    Raises:
        LevelError: If the file cannot be read or no level can be played.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, TypeError) as error:
        raise LevelError(f"levels={path!r} cannot be read: {error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # levels are ASCII; such bytes are in a name
    levels: list[Room | str] = []
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        rows = _rows(line)
        if len(rows) == 1:
            block += rows
            continue
        for found, first in ((block, number - len(block)), (rows, number)):
            if set("".join(found)) & MOVABLE:
                try:
                    levels.append(_read_level(found))
                except LevelError as error:
                    levels.append(f"{os.fspath(path)}, line {first}: {error}")
        block = []
    if not levels:
        raise LevelError(f"levels={os.fspath(path)!r} has no level in the XSB format (lines of {WALL}@$.)")
    if not any(isinstance(level, Room) for level in levels):
        raise LevelError(str(levels[0]))
    return tuple(levels)


def _rows(line: str) -> list[str]:
    """The rows of a level that a line holds: mostly one, several if they are in one line, none in any other text."""
    spelled = _RUN.sub(lambda run: int(run[1]) * run[2], line.expandtabs().translate(_LETTERS))
    rows = [row.rstrip() for row in spelled.split("|")]
    return [row for row in rows if row] if WALL in spelled and set("".join(rows)) <= SYMBOLS else []


def _read_level(rows: Sequence[str]) -> Room:
    """The room of one block; `LevelError` says why there is none."""
    width = max(map(len, rows))
    text = "".join(row.ljust(width) for row in rows)

    def squares(*symbols: str) -> frozenset[int]:
        return frozenset(square for square, symbol in enumerate(text) if symbol in symbols)

    players, boxes = squares(PLAYER, PLAYER_ON_TARGET), squares(BOX, BOX_ON_TARGET)
    targets = squares(TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET)
    if len(players) != 1:
        raise LevelError(f"{len(players) or 'no'} players; a level needs one {PLAYER!r} or {PLAYER_ON_TARGET!r}")
    if len(boxes) != len(targets):
        raise LevelError(f"boxes: {len(boxes)}, targets: {len(targets)}; there must be equally many")
    (player,) = players
    floor = _reach(text, width, player)
    if boxes - floor != targets - floor:
        row, column = divmod(min((boxes | targets) - floor), width)
        raise LevelError(f"the player cannot reach row {row + 1}, column {column + 1}, boxes ignored")
    if boxes == targets:
        raise LevelError("nothing to push; at least one box must be off its target")
    return Room(Board(len(rows), width, floor, targets & floor), boxes & floor, player)


def _reach(text: str, width: int, player: int) -> frozenset[int]:
    """The squares inside the walls around the player; `LevelError` if they touch the rim: the player could walk out."""
    inside, frontier = {player}, [player]
    for square in frontier:  # it grows during the loop
        row, column = divmod(square, width)
        if row in (0, len(text) // width - 1) or column in (0, width - 1):
            raise LevelError(f"the level is open at row {row + 1}, column {column + 1}; close its wall")
        for neighbour in (square - width, square + width, square - 1, square + 1):
            if neighbour not in inside and text[neighbour] != WALL:
                inside.add(neighbour)
                frontier.append(neighbour)
    return frozenset(inside)
