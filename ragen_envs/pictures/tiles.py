"""Painting of square tiles with NumPy: no image files, no pygame.

A tile is painted at three times its size in unit coordinates and averaged down, which smooths the edges. Each family
paints its own tiles. The player is painted here, because all of them have it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

TILE_PIXELS = 48
OVERSAMPLING = 3

Canvas = NDArray[np.float64]  # (side, side, 3), RGB in 0..255
Axis = NDArray[np.float64]  # (side, side), from -1 to 1, left to right (x) or top to bottom (y)
Mask = NDArray[np.bool_]  # (side, side)
Tile = NDArray[np.uint8]  # (TILE_PIXELS, TILE_PIXELS, 3)
Painter = Callable[[Canvas, Axis, Axis], None]  # paints over the canvas

SHADOW = (0.75, 0.80, 0.86)  # factor on the colour below
COAT, SKIN, HAT, EYE = (46, 125, 90), (250, 214, 180), (235, 150, 52), (50, 50, 50)


def ellipse(x: Axis, y: Axis, center: tuple[float, float], radii: tuple[float, float]) -> Mask:
    """The points inside an ellipse that is parallel to the axes."""
    return np.asarray(((x - center[0]) / radii[0]) ** 2 + ((y - center[1]) / radii[1]) ** 2 <= 1.0)


def paint_player(canvas: Canvas, x: Axis, y: Axis) -> None:
    """Paints the player, from the front."""
    canvas[ellipse(x, y, (0.0, 0.70), (0.42, 0.12))] *= SHADOW
    canvas[ellipse(x, y, (0.0, 0.36), (0.36, 0.38))] = COAT
    canvas[ellipse(x, y, (0.0, -0.22), (0.30, 0.30))] = SKIN
    canvas[ellipse(x, y, (0.0, -0.26), (0.33, 0.33)) & (y < -0.30)] = HAT
    canvas[ellipse(x, y, (0.0, -0.62), (0.09, 0.09))] = HAT
    canvas[ellipse(x, y, (-0.11, -0.16), (0.04, 0.06)) | ellipse(x, y, (0.11, -0.16), (0.04, 0.06))] = EYE


def paint_tile(painters: Sequence[Painter]) -> Tile:
    """Makes one tile; each painter paints over the ones before it."""
    side = TILE_PIXELS * OVERSAMPLING
    axis = (np.arange(side) + 0.5) / side * 2 - 1
    x, y = np.meshgrid(axis, axis)
    canvas = np.zeros((side, side, 3))
    for paint in painters:
        paint(canvas, x, y)
    blocks = canvas.reshape(TILE_PIXELS, OVERSAMPLING, TILE_PIXELS, OVERSAMPLING, 3)
    tile: Tile = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
    return tile


def lay_tiles(tiles: Sequence[Tile], columns: int) -> NDArray[np.uint8]:
    """Joins tiles to a picture, row by row.

    Args:
        tiles: The tiles; they fill all rows.
        columns: Number of tiles in a row.

    Returns:
        RGB picture of shape (48 · rows, 48 · columns, 3), uint8.
    """
    rows = [np.concatenate(tiles[first : first + columns], axis=1) for first in range(0, len(tiles), columns)]
    return np.concatenate(rows, axis=0)
