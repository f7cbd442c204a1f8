"""Where things are, in lines that name them: the part of an observation that spares a model the counting."""

from collections.abc import Collection, Mapping

LEGEND = "Coordinates are (row, column), from 0 at the top left."


def coordinate_lines(squares: Mapping[str, Collection[int]], width: int) -> str:
    r"""Writes one line a name, each opened by a newline, so that it can follow a map.

    Args:
        squares: For each name, its squares, row-major from 0.
        width: Columns of the map.

    Returns:
        The lines, squares in order; a name without squares has ``none``.

    >>> coordinate_lines({"You": [5], "Holes": [3, 0], "Goals": []}, width=3)
    '\nYou: (1, 2)\nHoles: (0, 0) (1, 0)\nGoals: none'
    """
    lines = []
    for name, found in squares.items():
        places = " ".join(f"({square // width}, {square % width})" for square in sorted(found))
        lines.append(f"\n{name}: {places or 'none'}")
    return "".join(lines)


def longest_coordinate_lines(most: Mapping[str, int], height: int, width: int) -> int:
    """The most characters that `coordinate_lines` can take.

    Args:
        most: For each name, its largest number of squares.
        height: Rows of the map.
        width: Columns of the map.
    """
    place = len(f"({height - 1}, {width - 1}) ")
    return sum(len(f"\n{name}: ") + max(count * place, len("none")) for name, count in most.items())
