"""Lines of an observation that give the coordinates of things, so that a model need not count squares."""

import abc
from collections.abc import Collection, Mapping

LEGEND = "Coordinates are (row, column), from 0 at the top left."


class ListsCoordinates(abc.ABC):
    """What an environment on a map says of coordinates, in text and beside a picture; a base beside `TextEnv`.

    A subclass sets ``_coordinates``: whether its observations list them. Without, all texts are "".
    """

    _coordinates: bool

    @abc.abstractmethod
    def _squares(self) -> tuple[Mapping[str, Collection[int]], int]:
        """The arguments of `coordinate_lines`, now."""

    @property
    def text_beside_picture(self) -> str:
        """The coordinates, if observations list them."""
        return self._coordinate_text().lstrip()

    @property
    def _coordinate_legend(self) -> str:
        """How coordinates are counted, after a newline."""
        return f"\n{LEGEND}" if self._coordinates else ""

    def _coordinate_text(self) -> str:
        """The lines of coordinates, each after a newline."""
        return coordinate_lines(*self._squares()) if self._coordinates else ""


def coordinate_lines(squares: Mapping[str, Collection[int]], width: int) -> str:
    r"""Writes one line for each name. Each line starts with a newline, so that the lines can follow a map.

    Args:
        squares: For each name, its squares, row-major from 0.
        width: Number of columns of the map.

    Returns:
        The lines. Squares are sorted; a name without squares gets ``none``.

    >>> coordinate_lines({"You": [5], "Holes": [3, 0], "Goals": []}, width=3)
    '\nYou: (1, 2)\nHoles: (0, 0) (1, 0)\nGoals: none'
    """
    lines = []
    for name, found in squares.items():
        places = " ".join(f"({square // width}, {square % width})" for square in sorted(found))
        lines.append(f"\n{name}: {places or 'none'}")
    return "".join(lines)


def longest_coordinate_lines(most: Mapping[str, int], height: int, width: int) -> int:
    """The largest number of characters that `coordinate_lines` can return.

    Args:
        most: For each name, its largest number of squares.
        height: Number of rows of the map.
        width: Number of columns of the map.
    """
    place = len(f"({height - 1}, {width - 1}) ")
    return sum(len(f"\n{name}: ") + max(count * place, len("none")) for name, count in most.items())
