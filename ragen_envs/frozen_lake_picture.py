"""The picture of a frozen lake, drawn with numpy alone: no image files, no pygame.

Each tile is painted at three times its size in unit coordinates and averaged down, which smooths the edges.
"""

import functools

import numpy as np
from numpy.typing import NDArray

TILE_PIXELS = 48
OVERSAMPLING = 3

Canvas = NDArray[np.float64]  # (side, side, 3), RGB in 0..255
Mask = NDArray[np.bool_]  # (side, side)

SNOW, SHEEN, EDGE = (219, 237, 247), (240, 249, 253), (178, 208, 226)
RIM, WATER, DEEP = (139, 177, 203), (43, 84, 126), (26, 55, 92)
POLE, FLAG = (92, 74, 60), (214, 64, 57)
COAT, SKIN, HAT, EYE = (46, 125, 90), (250, 214, 180), (235, 150, 52), (50, 50, 50)


def _ellipse(x: Canvas, y: Canvas, center: tuple[float, float], radii: tuple[float, float]) -> Mask:
    return np.asarray(((x - center[0]) / radii[0]) ** 2 + ((y - center[1]) / radii[1]) ** 2 <= 1.0)


def _paint_ice(canvas: Canvas, x: Canvas, y: Canvas) -> None:
    canvas[:] = SNOW
    diagonal = x + y
    streak = (np.abs(diagonal + 0.5) < 0.09) | (np.abs(diagonal + 0.15) < 0.04)
    canvas[streak & (np.abs(x - y) < 0.55)] = SHEEN
    canvas[np.maximum(np.abs(x), np.abs(y)) > 0.96] = EDGE


def _paint_hole(canvas: Canvas, x: Canvas, y: Canvas) -> None:
    canvas[_ellipse(x, y, (0.0, 0.05), (0.80, 0.68))] = RIM
    canvas[_ellipse(x, y, (0.0, 0.12), (0.72, 0.56))] = WATER
    canvas[_ellipse(x, y, (0.0, 0.22), (0.56, 0.38))] = DEEP


def _paint_goal(canvas: Canvas, x: Canvas, y: Canvas) -> None:
    canvas[_ellipse(x, y, (-0.28, 0.72), (0.34, 0.12))] = EDGE
    canvas[(np.abs(x + 0.28) < 0.05) & (np.abs(y) < 0.74)] = POLE
    canvas[(x > -0.23) & (x < 0.62) & (np.abs(y + 0.42) < 0.30 * (0.62 - x) / 0.85)] = FLAG


def _paint_player(canvas: Canvas, x: Canvas, y: Canvas) -> None:
    canvas[_ellipse(x, y, (0.0, 0.70), (0.42, 0.12))] = EDGE
    canvas[_ellipse(x, y, (0.0, 0.36), (0.36, 0.38))] = COAT
    canvas[_ellipse(x, y, (0.0, -0.22), (0.30, 0.30))] = SKIN
    canvas[_ellipse(x, y, (0.0, -0.26), (0.33, 0.33)) & (y < -0.30)] = HAT
    canvas[_ellipse(x, y, (0.0, -0.62), (0.09, 0.09))] = HAT
    canvas[_ellipse(x, y, (-0.11, -0.16), (0.04, 0.06)) | _ellipse(x, y, (0.11, -0.16), (0.04, 0.06))] = EYE


def _paint_sinking_player(canvas: Canvas, x: Canvas, y: Canvas) -> None:
    # Only the hat is still above the water.
    canvas[_ellipse(x, y, (0.0, 0.16), (0.33, 0.33)) & (y < 0.12)] = HAT
    canvas[_ellipse(x, y, (0.0, -0.20), (0.09, 0.09))] = HAT
    canvas[_ellipse(x, y, (0.0, 0.14), (0.42, 0.06))] = RIM


@functools.lru_cache(maxsize=8)
def _tile(symbol: str, with_player: bool) -> NDArray[np.uint8]:
    """One tile, (TILE_PIXELS, TILE_PIXELS, 3)."""
    side = TILE_PIXELS * OVERSAMPLING
    axis = (np.arange(side) + 0.5) / side * 2 - 1
    x, y = np.meshgrid(axis, axis)
    canvas = np.empty((side, side, 3))
    _paint_ice(canvas, x, y)
    if symbol == "O":
        _paint_hole(canvas, x, y)
    elif symbol == "G":
        _paint_goal(canvas, x, y)
    if with_player:
        (_paint_sinking_player if symbol == "O" else _paint_player)(canvas, x, y)
    blocks = canvas.reshape(TILE_PIXELS, OVERSAMPLING, TILE_PIXELS, OVERSAMPLING, 3)
    tile: NDArray[np.uint8] = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
    return tile


def draw_lake(tiles: str, size: int, position: int) -> NDArray[np.uint8]:
    """Draws a lake and the player on it.

    Args:
        tiles: size² symbols, row-major: ``_`` ice, ``O`` hole, ``G`` goal.
        size: Side of the lake, in tiles.
        position: The player's tile, row-major from 0.

    Returns:
        RGB picture of shape (48·size, 48·size, 3), uint8.
    """
    painted = [_tile(symbol, index == position) for index, symbol in enumerate(tiles)]
    rows = [np.concatenate(painted[first : first + size], axis=1) for first in range(0, len(painted), size)]
    return np.concatenate(rows, axis=0)
