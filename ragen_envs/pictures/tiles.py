"""Pictures of frozen lakes and Sokoban rooms, made of square tiles with NumPy: no image files, no pygame.

A tile is painted at three times its size in unit coordinates and averaged down, which smooths the edges.
"""

import functools
from collections.abc import Callable, Collection, Sequence

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
SNOW, SHEEN, EDGE = (219, 237, 247), (240, 249, 253), (178, 208, 226)
RIM, WATER, DEEP = (139, 177, 203), (43, 84, 126), (26, 55, 92)
POLE, FLAG = (92, 74, 60), (214, 64, 57)
MORTAR, BRICK, BRICK_LIGHT = (84, 74, 72), (158, 92, 74), (176, 108, 86)
FLAGSTONE, JOINT = (226, 218, 203), (208, 198, 180)
RING, RING_INSIDE = (201, 76, 76), (236, 205, 190)
WOOD, PLANK, FRAME = (196, 148, 88), (171, 124, 68), (128, 88, 44)
HOME_WOOD, HOME_PLANK, HOME_FRAME = (122, 168, 96), (98, 144, 74), (62, 102, 46)


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
def _lake_tile(symbol: str, with_player: bool) -> Tile:
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
    return lay_tiles([_lake_tile(symbol, square == position) for square, symbol in enumerate(tiles)], size)


def _paint_wall(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[:] = MORTAR
    course = np.floor((y + 1) * 2)  # four courses of bricks
    along = (x + 1 + 0.5 * (course % 2)) % 1.0
    brick = (np.abs((y + 1) * 2 - course - 0.5) < 0.42) & (along > 0.04) & (along < 0.96)
    canvas[brick] = BRICK
    canvas[brick & ((np.floor(x + 1 + 0.5 * (course % 2)) + course) % 3 == 0)] = BRICK_LIGHT


def _paint_floor(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[:] = FLAGSTONE
    canvas[np.maximum(np.abs(x), np.abs(y)) > 0.95] = JOINT


def _paint_target(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[ellipse(x, y, (0.0, 0.0), (0.46, 0.46))] = RING
    canvas[ellipse(x, y, (0.0, 0.0), (0.34, 0.34))] = RING_INSIDE
    canvas[ellipse(x, y, (0.0, 0.0), (0.16, 0.16))] = RING


def _paint_crate(canvas: Canvas, x: Axis, y: Axis, colours: tuple[tuple[int, int, int], ...]) -> None:
    wood, plank, frame = colours
    canvas[(np.abs(x) < 0.80) & (y > 0.0) & (y < 0.86)] *= SHADOW
    reach = np.maximum(np.abs(x), np.abs(y))
    canvas[reach < 0.76] = frame
    canvas[reach < 0.60] = wood
    canvas[(reach < 0.60) & (np.abs((x + 1) * 2.5 % 1.0 - 0.5) > 0.44)] = plank
    canvas[(reach < 0.60) & (np.abs(x - y) < 0.14)] = frame


_paint_box = functools.partial(_paint_crate, colours=(WOOD, PLANK, FRAME))
_paint_box_on_target = functools.partial(_paint_crate, colours=(HOME_WOOD, HOME_PLANK, HOME_FRAME))


@functools.lru_cache(maxsize=16)
def _room_tile(is_floor: bool, is_target: bool, thing: str) -> Tile:
    if not is_floor:
        return paint_tile([_paint_wall])
    ground: list[Painter] = [_paint_floor, _paint_target] if is_target else [_paint_floor]
    box = _paint_box_on_target if is_target else _paint_box
    painters: dict[str, list[Painter]] = {"": [], "box": [box], "player": [paint_player]}
    return paint_tile(ground + painters[thing])


def draw_sokoban(
    size: tuple[int, int], floor: Collection[int], targets: Collection[int], boxes: Collection[int], player: int
) -> NDArray[np.uint8]:
    """Draws a room. Boxes on a target are green.

    Args:
        size: Rows and columns.
        floor: Squares that are not wall, row-major from 0.
        targets: Squares where boxes belong.
        boxes: Squares with a box.
        player: The player's square.

    Returns:
        RGB picture of shape (48 · rows, 48 · columns, 3), uint8.
    """
    things = dict.fromkeys(boxes, "box") | {player: "player"}
    squares = range(size[0] * size[1])
    tiles = [_room_tile(square in floor, square in targets, things.get(square, "")) for square in squares]
    return lay_tiles(tiles, size[1])
