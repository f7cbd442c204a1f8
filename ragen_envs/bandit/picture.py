"""The picture of a bandit: slot machines with their names. The one that was pulled is lit and shows its pay-out.

It is drawn with Pillow at three times its size and averaged down, which smooths the edges. The colour of a machine
depends only on its place, so it never tells which arm pays what. Pillow is imported for the first picture.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragen_envs.render import load_font

WIDTH, HEIGHT, OVERSAMPLING = 640, 480, 3
MOST_IN_A_ROW = 5
BOX_WIDTH, BOX_HEIGHT = 200, 300  # units in which a machine is drawn

Colour = tuple[int, int, int]
BODIES: tuple[Colour, ...] = ((46, 110, 160), (60, 130, 96), (128, 84, 152), (176, 110, 52), (152, 66, 84))
WALL, EDGE, SIGN, INK, STRIP = (38, 42, 66), (22, 25, 40), (247, 242, 228), (44, 44, 58), (20, 26, 24)
GOLD, METAL, KNOB = (250, 204, 84), (176, 182, 192), (222, 68, 62)
WON, LOST, READY = (255, 214, 92), (216, 110, 100), (126, 150, 134)
DIM = 0.62  # brightness of a machine that was not chosen


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

    picture = Image.new("RGB", (WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING), WALL)
    drawing = ImageDraw.Draw(picture)
    rows = math.ceil(len(arms) / MOST_IN_A_ROW)
    columns = math.ceil(len(arms) / rows)
    cell_width, cell_height = picture.width / columns, picture.height / rows
    scale = min(cell_width / BOX_WIDTH, cell_height / (BOX_HEIGHT + 30))
    for place, name in enumerate(arms):
        row, column = divmod(place, columns)
        in_row = min(columns, len(arms) - row * columns)
        left = (picture.width - in_row * cell_width) / 2 + column * cell_width + (cell_width - BOX_WIDTH * scale) / 2
        top = (row + 1) * cell_height - (BOX_HEIGHT + 15) * scale
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
    box(4, 6, 172, 300, radius=34, fill=EDGE if paid is None else GOLD)
    box(12, 14, 164, 300, radius=26, fill=body)
    box(24, 34, 152, 92, radius=10, fill=SIGN)
    write(63, name, INK)
    box(24, 130, 152, 202, radius=8, fill=STRIP)
    if paid is None:
        write(166, "PULL?", READY)
    else:
        write(166, f"{paid:+g}" if paid else "0", WON if paid > 0 else LOST)
    box(36, 240, 140, 282, radius=12, fill=EDGE)
    for coin in range(4 if paid is not None and paid > 0 else 0):
        box(44 + 23 * coin, 250, 66 + 23 * coin, 272, radius=11, fill=GOLD)
