"""Pictures of environments: square tiles painted with NumPy, text, drawings in SVG, and frames of one size.

Pillow and resvg_py come with ``pip install 'ragen-trl[pictures]'`` and are imported when a picture needs them.
"""

import functools
import io
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 640, 480  # of a picture of a text
MARGIN = 24
INK, PAPER = (33, 37, 41), (250, 250, 247)
FONT_SIZES = (30, 24, 20, 17, 14, 12, 10)
_LEADING = 1.35  # distance of two lines, in font sizes
_CUT = "…"

TILE_PIXELS = 48
OVERSAMPLING = 3  # a tile is painted larger and averaged down, which smooths the edges

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

Colour = tuple[int, int, int]
MACHINE_WIDTH, MACHINE_HEIGHT = 200, 300  # units in which a slot machine is drawn
# A body's colour depends only on the machine's place, so it never tells which arm pays what.
BODIES: tuple[Colour, ...] = ((46, 110, 160), (60, 130, 96), (128, 84, 152), (176, 110, 52), (152, 66, 84))
HALL, CASING, SIGN, SIGN_INK, STRIP = (38, 42, 66), (22, 25, 40), (247, 242, 228), (44, 44, 58), (20, 26, 24)
GOLD, METAL, KNOB = (250, 204, 84), (176, 182, 192), (222, 68, 62)
WON, LOST, READY = (255, 214, 92), (216, 110, 100), (126, 150, 134)
DIM = 0.62  # brightness of a machine that was not chosen


def on_square(picture: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Scales a picture down until it fits a square, and puts it in the middle of it.

    Every new pixel is the mean of the area that it covers, so that thin lines stay visible.

    Args:
        picture: RGB, uint8 of shape (height, width, 3).
        side: Of the square, in pixels.

    Returns:
        RGB, uint8 of shape (side, side, 3), white around the picture.

    Example:
        >>> on_square(np.array([[[0] * 3, [100] * 3], [[200] * 3, [100] * 3]], np.uint8), 1).tolist()
        [[[100, 100, 100]]]
    """
    height, width = picture.shape[:2]
    scale = min(1.0, side / max(height, width))
    rows, columns = max(1, round(height * scale)), max(1, round(width * scale))
    small = picture.astype(np.float64)
    if scale < 1.0:
        small = np.einsum("rh,hwc,kw->rkc", _means(height, rows), small, _means(width, columns), optimize=True)
    square = np.full((side, side, 3), 255, np.uint8)
    top, left = (side - rows) // 2, (side - columns) // 2
    square[top : top + rows, left : left + columns] = small.round().clip(0, 255)
    return square


def _means(pixels: int, fewer: int) -> NDArray[np.float64]:
    """(fewer, pixels) the share of each old pixel in each new one; rows sum to 1."""
    edges = np.arange(fewer + 1) * (pixels / fewer)
    starts = np.arange(pixels)
    covered = np.minimum(edges[1:, None], starts + 1) - np.maximum(edges[:-1, None], starts)
    return np.asarray(covered.clip(min=0) * (fewer / pixels))


def draw_svg(drawing: str, side: int) -> NDArray[np.uint8]:
    """Draws a square drawing: the same pixels each time, without fonts and without system libraries.

    Args:
        drawing: An SVG document.
        side: Of the picture, in pixels.

    Returns:
        RGB picture, uint8 of shape (side, side, 3).

    Raises:
        ModuleNotFoundError: If resvg_py is not installed.
        ValueError: If the document cannot be read.
    """
    return _drawn(drawing, side).copy()


@functools.lru_cache(maxsize=64)  # the members of a group see the same pages
def _drawn(drawing: str, side: int) -> NDArray[np.uint8]:
    try:
        import resvg_py
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("drawings need the package resvg_py; pip install 'ragen-trl[pictures]'") from error
    from PIL import Image

    # Fonts would be read from the disk for every picture.
    png = resvg_py.svg_to_bytes(svg_string=drawing, width=side, background="#ffffff", skip_system_fonts=True)
    with Image.open(io.BytesIO(png)) as opened:
        return np.array(opened.convert("RGB"))


@functools.lru_cache(maxsize=64)
def load_font(size: int) -> Any:
    """The font that Pillow contains, in a size of at least 1 pixel. Cached, because Pillow unpacks it each time."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def draw_text(text: str, width: int = WIDTH, height: int = HEIGHT) -> NDArray[np.uint8]:
    """Draws a text in the largest font size in which all of it fits.

    Lines that are too long are wrapped. A text that does not fit in the smallest size is cut off with an ellipsis.

    Args:
        text: What to show; characters that are not in the font become boxes.
        width: Of the picture, in pixels.
        height: Of the picture, in pixels.

    Returns:
        RGB picture, uint8 of shape (height, width, 3).
    """
    from PIL import Image, ImageDraw

    text = text.encode("utf-8", "replace").decode().expandtabs(4)  # no font draws lone surrogates
    for size in FONT_SIZES:
        font = load_font(size)
        most = int((height - 2 * MARGIN) / (size * _LEADING))
        measure = functools.lru_cache(maxsize=1024)(font.getlength)
        lines = _wrap(text, width - 2 * MARGIN, measure, most + 1)
        if len(lines) <= most:
            break
    else:
        lines = lines[:most]
        lines[-1] = _wrap(lines[-1], width - 2 * MARGIN - measure(_CUT), measure, 1)[0].rstrip() + _CUT
    picture = Image.new("RGB", (width, height), PAPER)
    drawing = ImageDraw.Draw(picture)
    for row, line in enumerate(lines):
        drawing.text((MARGIN, MARGIN + row * size * _LEADING), line, font=font, fill=INK)
    return np.array(picture)


def _wrap(text: str, width: float, measure: Callable[[str], float], most: int) -> list[str]:
    """Breaks a text into lines, between words if possible, else inside words.

    Args:
        text: Any text; its own line breaks are kept.
        width: The largest width of a line.
        measure: Gives the width of a character; that of a line is their sum. One character may be wider than `width`.
        most: The largest number of lines; text after them is left out.

    >>> _wrap("one two abcdefgh", 5, len, 9)
    ['one', 'two', 'abcde', 'fgh']
    """
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        rest = paragraph
        while len(lines) < most:
            widths = itertools.accumulate(map(measure, rest))
            end = next((max(1, count) for count, reached in enumerate(widths) if reached > width), len(rest))
            if end == len(rest):
                lines.append(rest)
                break
            blank = rest.rfind(" ", 0, end + 1)
            end = blank if blank > 0 and rest[:blank].strip() else end
            lines.append(rest[:end])
            rest = rest[end:].removeprefix(" ")
    return lines


def _ellipse(x: Axis, y: Axis, center: tuple[float, float], radii: tuple[float, float]) -> Mask:
    """The points inside an ellipse that is parallel to the axes."""
    return np.asarray(((x - center[0]) / radii[0]) ** 2 + ((y - center[1]) / radii[1]) ** 2 <= 1.0)


def _paint_player(canvas: Canvas, x: Axis, y: Axis) -> None:
    """Paints the player, from the front."""
    canvas[_ellipse(x, y, (0.0, 0.70), (0.42, 0.12))] *= SHADOW
    canvas[_ellipse(x, y, (0.0, 0.36), (0.36, 0.38))] = COAT
    canvas[_ellipse(x, y, (0.0, -0.22), (0.30, 0.30))] = SKIN
    canvas[_ellipse(x, y, (0.0, -0.26), (0.33, 0.33)) & (y < -0.30)] = HAT
    canvas[_ellipse(x, y, (0.0, -0.62), (0.09, 0.09))] = HAT
    canvas[_ellipse(x, y, (-0.11, -0.16), (0.04, 0.06)) | _ellipse(x, y, (0.11, -0.16), (0.04, 0.06))] = EYE


def _paint_tile(painters: Sequence[Painter]) -> Tile:
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


def _lay_tiles(tiles: Sequence[Tile], columns: int) -> NDArray[np.uint8]:
    """Joins tiles to a picture, row by row."""
    rows = [np.concatenate(tiles[first : first + columns], axis=1) for first in range(0, len(tiles), columns)]
    return np.concatenate(rows, axis=0)


def _paint_ice(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[:] = SNOW
    diagonal = x + y
    streak = (np.abs(diagonal + 0.5) < 0.09) | (np.abs(diagonal + 0.15) < 0.04)
    canvas[streak & (np.abs(x - y) < 0.55)] = SHEEN
    canvas[np.maximum(np.abs(x), np.abs(y)) > 0.96] = EDGE


def _paint_hole(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[_ellipse(x, y, (0.0, 0.05), (0.80, 0.68))] = RIM
    canvas[_ellipse(x, y, (0.0, 0.12), (0.72, 0.56))] = WATER
    canvas[_ellipse(x, y, (0.0, 0.22), (0.56, 0.38))] = DEEP


def _paint_goal(canvas: Canvas, x: Axis, y: Axis) -> None:
    canvas[_ellipse(x, y, (-0.28, 0.72), (0.34, 0.12))] = EDGE
    canvas[(np.abs(x + 0.28) < 0.05) & (np.abs(y) < 0.74)] = POLE
    canvas[(x > -0.23) & (x < 0.62) & (np.abs(y + 0.42) < 0.30 * (0.62 - x) / 0.85)] = FLAG


def _paint_sinking_player(canvas: Canvas, x: Axis, y: Axis) -> None:
    # Only the hat is still above the water.
    canvas[_ellipse(x, y, (0.0, 0.16), (0.33, 0.33)) & (y < 0.12)] = HAT
    canvas[_ellipse(x, y, (0.0, -0.20), (0.09, 0.09))] = HAT
    canvas[_ellipse(x, y, (0.0, 0.14), (0.42, 0.06))] = RIM


@functools.lru_cache(maxsize=8)
def _lake_tile(symbol: str, with_player: bool) -> Tile:
    painters = [_paint_ice]
    if symbol == "O":
        painters.append(_paint_hole)
    elif symbol == "G":
        painters.append(_paint_goal)
    if with_player:
        painters.append(_paint_sinking_player if symbol == "O" else _paint_player)
    return _paint_tile(painters)


def draw_lake(tiles: str, size: int, position: int) -> NDArray[np.uint8]:
    """Draws a lake and the player on it.

    Args:
        tiles: size² symbols, row-major: ``_`` ice, ``O`` hole, ``G`` goal.
        size: Side of the lake, in tiles.
        position: The player's tile, row-major from 0.

    Returns:
        RGB picture of shape (48·size, 48·size, 3), uint8.
    """
    return _lay_tiles([_lake_tile(symbol, square == position) for square, symbol in enumerate(tiles)], size)


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
    canvas[_ellipse(x, y, (0.0, 0.0), (0.46, 0.46))] = RING
    canvas[_ellipse(x, y, (0.0, 0.0), (0.34, 0.34))] = RING_INSIDE
    canvas[_ellipse(x, y, (0.0, 0.0), (0.16, 0.16))] = RING


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
        return _paint_tile([_paint_wall])
    ground: list[Painter] = [_paint_floor, _paint_target] if is_target else [_paint_floor]
    box = _paint_box_on_target if is_target else _paint_box
    painters: dict[str, list[Painter]] = {"": [], "box": [box], "player": [_paint_player]}
    return _paint_tile(ground + painters[thing])


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
    return _lay_tiles(tiles, size[1])


@functools.lru_cache(maxsize=16)  # a bandit has few states, and a model that sees is shown each of them often
def draw_bandit(arms: tuple[str, ...], pulled: str, pay_out: float | None) -> NDArray[np.uint8]:
    """Draws slot machines in rows of up to five.

    Args:
        arms: Their names, in the order of their places.
        pulled: Name of the arm that was pulled; "" if none was yet.
        pay_out: What it paid; None if none was pulled yet.

    Returns:
        RGB picture, uint8 of shape (480, 640, 3); not to be changed.
    """
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING), HALL)
    drawing = ImageDraw.Draw(picture)
    rows = math.ceil(len(arms) / 5)
    columns = math.ceil(len(arms) / rows)
    cell_width, cell_height = picture.width / columns, picture.height / rows
    scale = min(cell_width / MACHINE_WIDTH, cell_height / (MACHINE_HEIGHT + 30))
    for place, name in enumerate(arms):
        row, column = divmod(place, columns)
        in_row = min(columns, len(arms) - row * columns)
        left = (picture.width - in_row * cell_width) / 2 + column * cell_width
        left += (cell_width - MACHINE_WIDTH * scale) / 2
        top = (row + 1) * cell_height - (MACHINE_HEIGHT + 15) * scale
        paid = pay_out if name == pulled else None
        shade = DIM if pay_out is not None and paid is None else 1.0
        _draw_machine(drawing, (left, top), scale, shade, name, BODIES[place % len(BODIES)], paid)
    return np.array(picture.reduce(OVERSAMPLING))


def _draw_machine(
    drawing: Any, corner: tuple[float, float], scale: float, shade: float, name: str, body: Colour, paid: float | None
) -> None:
    """Draws one machine; lit and with its lever down if it has paid."""

    def shaded(colour: Colour) -> tuple[int, ...]:
        return tuple(round(part * shade) for part in colour)

    def box(*sides: float, radius: float, fill: Colour) -> None:
        at = [corner[axis % 2] + unit * scale for axis, unit in enumerate(sides)]
        drawing.rounded_rectangle(at, radius * scale, fill=shaded(fill))

    def write(y: float, text: str, fill: Colour) -> None:
        """Centred, in a smaller size if it does not fit."""
        font, room = load_font(max(1, round(28 * scale))), 116 * scale
        if (length := font.getlength(text)) > room:
            font = load_font(max(1, int(28 * scale * room / length)))
        at = (corner[0] + 88 * scale, corner[1] + y * scale)
        drawing.text(at, text, font=font, fill=shaded(fill), anchor="mm")

    knob = 96 if paid is None else 232
    box(160, min(knob, 168), 190, max(knob, 178), radius=4, fill=METAL)
    box(174, knob - 12, 198, knob + 12, radius=12, fill=KNOB)
    box(4, 6, 172, 300, radius=34, fill=CASING if paid is None else GOLD)
    box(12, 14, 164, 300, radius=26, fill=body)
    box(24, 34, 152, 92, radius=10, fill=SIGN)
    write(63, name, SIGN_INK)
    box(24, 130, 152, 202, radius=8, fill=STRIP)
    if paid is None:
        write(166, "PULL?", READY)
    else:
        write(166, f"{paid:+g}" if paid else "0", WON if paid > 0 else LOST)
    box(36, 240, 140, 282, radius=12, fill=CASING)
    for coin in range(4 if paid is not None and paid > 0 else 0):
        box(44 + 23 * coin, 250, 66 + 23 * coin, 272, radius=11, fill=GOLD)
