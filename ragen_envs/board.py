"""What games on a board of tiles share: the legend, lines of coordinates, and the picture."""

import abc
import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from ragen_envs.render import Picture
from ragen_envs.text_env import TextEnv


class BoardEnv(TextEnv):
    """A game whose observation is a board of symbols and, if they are wanted, coordinates.

    A subclass sets the attributes declared here, and writes `_board_text` and `_squares`.
    """

    _task: str
    _legend: str  # what the symbols mean
    _pictured: ClassVar[str]  # what the picture shows
    _sheet: ClassVar[Path]  # a picture of all tiles in one row
    _symbols: str  # of the tiles, in the order of the sheet
    _coordinates: bool  # whether observations list where things are, so that a model need not count squares

    @abc.abstractmethod
    def _board_text(self) -> str:
        """The board now, one line for each row."""

    @abc.abstractmethod
    def _squares(self) -> tuple[Mapping[str, Collection[int]], int]:
        """The arguments of `coordinate_lines`, now."""

    @property
    def instruction(self) -> str:
        """The task and the legend."""
        counted = "\nCoordinates are (row, column), from 0 at the top left." if self._coordinates else ""
        return f"{self._task}\n{self._legend}{counted}"

    @property
    def picture_instruction(self) -> str:
        """The task and what the picture shows."""
        return self.instruction.replace(self._legend, self._pictured)

    @property
    def text_beside_picture(self) -> str:
        """The coordinates, if observations list them."""
        return coordinate_lines(*self._squares()).lstrip() if self._coordinates else ""

    def _text(self) -> str:
        return self._board_text() + coordinate_lines(*self._squares()) if self._coordinates else self._board_text()

    def _picture(self) -> Picture:
        """The board in tiles: RGB, uint8 of shape (side of a tile · rows, side · columns, 3)."""
        board = self._board_text().splitlines()
        numbers = np.array([[self._symbols.index(symbol) for symbol in row] for row in board])
        tiles = _tiles(self._sheet)[numbers]  # (rows, columns, side, side, 3)
        rows, columns, side = tiles.shape[:3]
        return tiles.swapaxes(1, 2).reshape(rows * side, columns * side, 3)


@functools.cache
def _tiles(sheet: Path) -> Picture:
    """The tiles of a sheet, of shape (tiles, side, side, 3)."""
    from PIL import Image

    with Image.open(sheet) as opened:
        row = np.array(opened.convert("RGB"))
    return row.reshape(len(row), -1, len(row), 3).swapaxes(0, 1)


def coordinate_lines(squares: Mapping[str, Collection[int]], width: int) -> str:
    r"""One line for each name, after a newline, with its squares (row-major from 0) on a map of so many columns.

    >>> coordinate_lines({"You": [5], "Holes": [3, 0], "Goals": []}, width=3)
    '\nYou: (1, 2)\nHoles: (0, 0) (1, 0)\nGoals: none'
    """
    lines = ""
    for name, found in squares.items():
        places = " ".join(f"({square // width}, {square % width})" for square in sorted(found))
        lines += f"\n{name}: {places or 'none'}"
    return lines
