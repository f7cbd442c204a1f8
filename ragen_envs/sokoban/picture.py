"""The picture of a Sokoban room, made of square tiles (`pictures.tiles`)."""

import functools

import numpy as np
from numpy.typing import NDArray

from ragen_envs.pictures.tiles import SHADOW, Axis, Canvas, Painter, Tile, ellipse, lay_tiles, paint_player, paint_tile
from ragen_envs.sokoban.rooms import Room

MORTAR, BRICK, BRICK_LIGHT = (84, 74, 72), (158, 92, 74), (176, 108, 86)
FLAGSTONE, JOINT = (226, 218, 203), (208, 198, 180)
RING, RING_INSIDE = (201, 76, 76), (236, 205, 190)
WOOD, PLANK, FRAME = (196, 148, 88), (171, 124, 68), (128, 88, 44)
HOME_WOOD, HOME_PLANK, HOME_FRAME = (122, 168, 96), (98, 144, 74), (62, 102, 46)


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
def _tile(is_floor: bool, is_target: bool, thing: str) -> Tile:
    if not is_floor:
        return paint_tile([_paint_wall])
    ground: list[Painter] = [_paint_floor, _paint_target] if is_target else [_paint_floor]
    box = _paint_box_on_target if is_target else _paint_box
    painters: dict[str, list[Painter]] = {"": [], "box": [box], "player": [paint_player]}
    return paint_tile(ground + painters[thing])


def draw_sokoban(room: Room) -> NDArray[np.uint8]:
    """Draws a room. Boxes on a target are green.

    Args:
        room: Board, boxes and player.

    Returns:
        RGB picture of shape (48 · height, 48 · width, 3), uint8.
    """
    board = room.board
    things = dict.fromkeys(room.boxes, "box") | {room.player: "player"}
    squares = range(board.height * board.width)
    tiles = [_tile(square in board.floor, square in board.targets, things.get(square, "")) for square in squares]
    return lay_tiles(tiles, board.width)
