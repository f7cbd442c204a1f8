"""Reads Sokoban levels in the XSB text format, which public level sets use.

A level is a block of lines made of the symbols below. Anything else between the blocks (titles, authors, lines that
begin with ``;``, walls that enclose nothing) is ignored.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from ragen_envs.errors import EnvError
from ragen_envs.sokoban.rooms import Board, Room

WALL, PLAYER, PLAYER_ON_TARGET, BOX, BOX_ON_TARGET, TARGET = "#@+$*."
FLOOR = " -_"
SYMBOLS = frozenset("#@+$*." + FLOOR)
MOVABLE = frozenset("@+$*.")


class LevelError(EnvError, ValueError):
    """A level file, or a level in it, cannot be played; the message names file and line."""


def read_levels(path: str | os.PathLike[str]) -> tuple[Room, ...]:
    """Reads all levels of a file.

    Args:
        path: A text file, UTF-8 or, as old sets often are, Latin-1.

    Returns:
        The levels in order, at least one. Squares that the player can never reach are wall.

    Raises:
        LevelError: If the file cannot be read or has no level, or if a level is open, does not have exactly one player
            and as many boxes as targets, or has nothing to push.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, TypeError) as error:
        raise LevelError(f"levels={path!r} cannot be read: {error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # levels are ASCII; such bytes are in a name
    lines = text.splitlines()
    levels = []
    block: list[str] = []
    for number, line in enumerate([*lines, ""], start=1):
        row = line.expandtabs().rstrip()
        if WALL in row and set(row) <= SYMBOLS:
            block.append(row)
        elif block:
            if set("".join(block)) & MOVABLE:
                levels.append(_read_level(block, f"{os.fspath(path)}, line {number - len(block)}"))
            block = []
    if not levels:
        raise LevelError(f"levels={os.fspath(path)!r} has no level in the XSB format (lines of {WALL}@$.)")
    return tuple(levels)


def _read_level(rows: list[str], where: str) -> Room:
    """The room of one block; `where` names its file and first line."""
    width = max(map(len, rows))
    text = "".join(row.ljust(width) for row in rows)

    def squares(symbols: Iterable[str]) -> frozenset[int]:
        wanted = set(symbols)
        return frozenset(square for square, symbol in enumerate(text) if symbol in wanted)

    players, boxes = squares((PLAYER, PLAYER_ON_TARGET)), squares((BOX, BOX_ON_TARGET))
    targets = squares((TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET))
    if len(players) != 1:
        count = len(players) or "no"
        raise LevelError(f"{where}: {count} players; a level needs one {PLAYER!r} or {PLAYER_ON_TARGET!r}")
    if len(boxes) != len(targets):
        raise LevelError(f"{where}: boxes: {len(boxes)}, targets: {len(targets)}; there must be equally many")
    if boxes == targets:
        raise LevelError(f"{where}: nothing to push; at least one box must be off its target")
    (player,) = players
    floor = _reach(text, width, player, where)
    if not boxes | targets <= floor:
        row, column = divmod(min((boxes | targets) - floor), width)
        raise LevelError(f"{where}: the player cannot reach row {row + 1}, column {column + 1}, boxes ignored")
    return Room(Board(len(rows), width, floor, targets), boxes, player)


def _reach(text: str, width: int, player: int, where: str) -> frozenset[int]:
    """The squares inside the walls around the player.

    Raises:
        LevelError: If they touch the rim, so that the player could walk out.
    """
    inside = {player}
    frontier = [player]
    while frontier:
        square = frontier.pop()
        row, column = divmod(square, width)
        if row in (0, len(text) // width - 1) or column in (0, width - 1):
            raise LevelError(f"{where}: the level is open at row {row + 1}, column {column + 1}; close its wall")
        for neighbour in (square - width, square + width, square - 1, square + 1):
            if neighbour not in inside and text[neighbour] != WALL:
                inside.add(neighbour)
                frontier.append(neighbour)
    return frozenset(inside)
