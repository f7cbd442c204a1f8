"""The picture of a bandit: slot machines with their names. The one that was pulled is lit and shows its pay-out.

It is drawn with Pillow at three times its size and averaged down, which smooths the edges. The colour of a machine
depends only on its place, so that it never tells which arm pays what. Pillow is imported for the first picture.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragen_envs.pictures.text import load_font

WIDTH, HEIGHT = 640, 480
OVERSAMPLING = 3
MOST_IN_A_ROW = 5
# A machine is drawn in a box of this many units. Its lever sticks out on the right.
BOX_WIDTH, BOX_HEIGHT = 200, 300

Colour = tuple[int, int, int]
Drawing = Any  # PIL.ImageDraw.ImageDraw

WALL, CARPET, STRIPE = (38, 42, 66), (94, 36, 52), (112, 48, 62)
BODIES: tuple[Colour, ...] = ((46, 110, 160), (60, 130, 96), (128, 84, 152), (176, 110, 52), (152, 66, 84))
EDGE, SIGN, NAME = (22, 25, 40), (247, 242, 228), (44, 44, 58)
REEL, REEL_EDGE, STRIP = (252, 250, 244), (170, 166, 156), (20, 26, 24)
GOLD, COIN, BULB_ON, BULB_OFF = (250, 204, 84), (228, 170, 48), (255, 232, 150), (112, 108, 100)
METAL, KNOB, KNOB_SHADE = (176, 182, 192), (222, 68, 62), (186, 44, 44)
WON, LOST, READY = (255, 214, 92), (216, 110, 100), (126, 150, 134)
DIM = 0.62  # brightness of a machine that was not chosen


def draw_bandit(arms: Sequence[str], pulled: str, pay_out: float | None) -> NDArray[np.uint8]:
    """Draws slot machines in rows of up to five.

    Args:
        arms: Their names, in the order of their places.
        pulled: Name of the arm that was pulled; "" if none was yet.
        pay_out: What it paid; None if none was pulled yet.

    Returns:
        RGB picture, uint8 of shape (480, 640, 3).
    """
    return _drawn(tuple(arms), pulled, pay_out).copy()


@functools.lru_cache(maxsize=16)  # a bandit has few states, and a model that sees is shown each of them often
def _drawn(arms: tuple[str, ...], pulled: str, pay_out: float | None) -> NDArray[np.uint8]:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING), WALL)
    drawing = ImageDraw.Draw(picture)
    rows = math.ceil(len(arms) / MOST_IN_A_ROW)
    columns = math.ceil(len(arms) / rows)
    cell_width, cell_height = picture.width / columns, picture.height / rows
    scale = min(cell_width / BOX_WIDTH, cell_height / (BOX_HEIGHT + 30))
    for row in range(rows):
        _draw_carpet(drawing, (row + 1) * cell_height, 34 * scale)
    for place, name in enumerate(arms):
        row, column = divmod(place, columns)
        in_row = min(columns, len(arms) - row * columns)
        left = (picture.width - in_row * cell_width) / 2 + column * cell_width + (cell_width - BOX_WIDTH * scale) / 2
        top = (row + 1) * cell_height - (BOX_HEIGHT + 15) * scale
        shade = DIM if pay_out is not None and name != pulled else 1.0
        pen = _Pen(drawing, left, top, scale, shade)
        _draw_machine(pen, name, BODIES[place % len(BODIES)], pay_out if name == pulled else None)
    return np.array(picture.reduce(OVERSAMPLING))


def _draw_carpet(drawing: Drawing, bottom: float, height: float) -> None:
    drawing.rectangle((0, bottom - height, WIDTH * OVERSAMPLING, bottom), fill=CARPET)
    drawing.rectangle((0, bottom - height, WIDTH * OVERSAMPLING, bottom - 0.85 * height), fill=STRIPE)


class _Pen:
    """Draws in the units of one machine's box, with every colour dimmed by one factor.

    Corners and ends are (x, y, x, y), from the top left corner of the box.
    """

    def __init__(self, drawing: Drawing, left: float, top: float, scale: float, shade: float) -> None:
        self._drawing = drawing
        self._left, self._top, self._scale = left, top, scale
        self._shade = shade

    def _at(self, *units: float) -> list[float]:
        starts = (self._left, self._top)
        return [starts[index % 2] + unit * self._scale for index, unit in enumerate(units)]

    def _mix(self, colour: Colour) -> Colour:
        red, green, blue = (round(part * self._shade) for part in colour)
        return red, green, blue

    def box(self, corners: tuple[float, float, float, float], radius: float, fill: Colour) -> None:
        self._drawing.rounded_rectangle(self._at(*corners), radius * self._scale, fill=self._mix(fill))

    def disc(self, center: tuple[float, float], radius: float, fill: Colour) -> None:
        x, y = center
        self._drawing.ellipse(self._at(x - radius, y - radius, x + radius, y + radius), fill=self._mix(fill))

    def line(self, ends: tuple[float, float, float, float], width: float, fill: Colour) -> None:
        self._drawing.line(self._at(*ends), fill=self._mix(fill), width=round(width * self._scale))

    def star(self, center: tuple[float, float], radius: float, fill: Colour) -> None:
        points = []
        for corner in range(10):
            reach = radius if corner % 2 == 0 else 0.45 * radius
            angle = math.pi * (corner / 5 - 0.5)
            points += self._at(center[0] + reach * math.cos(angle), center[1] + reach * math.sin(angle))
        self._drawing.polygon(points, fill=self._mix(fill))

    def text(self, center: tuple[float, float], text: str, room: float, size: float, fill: Colour) -> None:
        """Draws centred text, in a smaller size if it does not fit."""
        font = load_font(max(1, round(size * self._scale)))
        if (length := font.getlength(text)) > room * self._scale:
            font = load_font(max(1, int(size * self._scale * room * self._scale / length)))
        x, y = self._at(*center)
        self._drawing.text((x, y), text, font=font, fill=self._mix(fill), anchor="mm")


def _draw_machine(pen: _Pen, name: str, body: Colour, pay_out: float | None) -> None:
    """Draws one machine; lit and with its lever down if `pay_out` is a number."""
    is_pulled = pay_out is not None
    lever_end = 232 if is_pulled else 96
    pen.line((166, 172, 186, 172), 12, METAL)
    pen.line((186, 172, 186, lever_end), 8, METAL)
    pen.disc((186, lever_end), 12, KNOB)
    pen.disc((189, lever_end + 3), 5, KNOB_SHADE)
    if is_pulled:
        pen.box((4, 6, 172, 300), 34, GOLD)
    pen.box((8, 10, 168, 300), 30, EDGE)
    pen.box((13, 15, 163, 300), 26, body)
    pen.box((24, 34, 152, 78), 10, SIGN)
    pen.text((88, 56), name, 118, 26, NAME)
    for bulb in range(9):
        pen.disc((32 + 14 * bulb, 25), 4, BULB_ON if is_pulled else BULB_OFF)
        pen.disc((32 + 14 * bulb, 87), 4, BULB_ON if is_pulled else BULB_OFF)
    for reel in range(3):
        left = 25 + 43 * reel
        pen.box((left, 100, left + 40, 168), 6, REEL_EDGE)
        pen.box((left + 2, 102, left + 38, 166), 5, REEL)
        _draw_symbol(pen, (left + 20, 134), reel if pay_out == 0 else 0 if is_pulled else 3)
    pen.box((25, 184, 151, 222), 8, STRIP)
    shown, colour = "PULL?", READY
    if pay_out is not None:
        shown, colour = f"{pay_out:+g}" if pay_out else "0", WON if pay_out > 0 else LOST
    pen.text((88, 203), shown, 112, 26, colour)
    pen.box((30, 240, 146, 286), 12, EDGE)
    if pay_out is not None and pay_out > 0:
        for coin in range(5):
            pen.disc((52 + 18 * coin, 274 - 7 * (coin % 2)), 11, COIN)
            pen.disc((52 + 18 * coin, 274 - 7 * (coin % 2)), 8, GOLD)


def _draw_symbol(pen: _Pen, center: tuple[float, float], symbol: int) -> None:
    """Draws what a reel shows: 0 is a star, 1 a berry, 2 a bar, and 3 a question mark."""
    x, y = center
    if symbol == 0:
        pen.star(center, 17, COIN)
        pen.star(center, 13, GOLD)
    elif symbol == 1:
        pen.line((x, y - 16, x + 6, y - 2), 3, BODIES[1])
        pen.disc((x, y + 5), 11, KNOB)
    elif symbol == 2:
        pen.box((x - 15, y - 7, x + 15, y + 7), 3, NAME)
    else:
        pen.text(center, "?", 30, 34, REEL_EDGE)
