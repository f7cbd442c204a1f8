"""The picture of a frozen lake, made of square tiles (`pictures.tiles`)."""

import functools

import numpy as np
from numpy.typing import NDArray

from ragen_envs.pictures.tiles import HAT, Axis, Canvas, Tile, ellipse, lay_tiles, paint_player, paint_tile

SNOW, SHEEN, EDGE = (219, 237, 247), (240, 249, 253), (178, 208, 226)
RIM, WATER, DEEP = (139, 177, 203), (43, 84, 126), (26, 55, 92)
POLE, FLAG = (92, 74, 60), (214, 64, 57)


def _paint_ice(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[:] = SNOW
    diagonal = x + y
    streak = (np.abs(diagonal + 0.5) < 0.09) | (np.abs(diagonal + 0.15) < 0.04)
    canvas[streak & (np.abs(x - y) < 0.55)] = SHEEN
    canvas[np.maximum(np.abs(x), np.abs(y)) > 0.96] = EDGE


def _paint_hole(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[ellipse(x, y, (0.0, 0.05), (0.80, 0.68))] = RIM
    canvas[ellipse(x, y, (0.0, 0.12), (0.72, 0.56))] = WATER
    canvas[ellipse(x, y, (0.0, 0.22), (0.56, 0.38))] = DEEP


def _paint_goal(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[ellipse(x, y, (-0.28, 0.72), (0.34, 0.12))] = EDGE
    canvas[(np.abs(x + 0.28) < 0.05) & (np.abs(y) < 0.74)] = POLE
    canvas[(x > -0.23) & (x < 0.62) & (np.abs(y + 0.42) < 0.30 * (0.62 - x) / 0.85)] = FLAG


def _paint_sinking_player(canvas: Canvas, x: Axis, y: Axis) -> None:
    # Only the hat is still above the water.
    canvas[ellipse(x, y, (0.0, 0.16), (0.33, 0.33)) & (y < 0.12)] = HAT
    canvas[ellipse(x, y, (0.0, -0.20), (0.09, 0.09))] = HAT
    canvas[ellipse(x, y, (0.0, 0.14), (0.42, 0.06))] = RIM


@functools.lru_cache(maxsize=8)
def _tile(symbol: str, with_player: bool) -> Tile:
    painters = [_paint_ice]
    if symbol == "O":
        painters.append(_paint_hole)
    elif symbol == "G":
        painters.append(_paint_goal)
    if with_player:
        painters.append(_paint_sinking_player if symbol == "O" else paint_player)
    return paint_tile(painters)


def draw_lake(tiles: str, size: int, position: int) -> NDArray[np.uint8]:
    """Draws a lake and the player on it.

    Args:
        tiles: size² symbols, row-major: ``_`` ice, ``O`` hole, ``G`` goal.
        size: Side of the lake, in tiles.
        position: The player's tile, row-major from 0.

    Returns:
        RGB picture of shape (48·size, 48·size, 3), uint8.
    """
    return lay_tiles([_tile(symbol, square == position) for square, symbol in enumerate(tiles)], size)
