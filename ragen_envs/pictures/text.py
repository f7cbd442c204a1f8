"""A picture of a text, for environments that have nothing better to draw.

Pillow draws with the font that it contains, so that no font files are needed. It is imported for the first picture:
without pictures it need not be installed. Pictures of all texts have one size, as the frames of a video must.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 640, 480
MARGIN = 24
INK, PAPER = (33, 37, 41), (250, 250, 247)
FONT_SIZES = (30, 24, 20, 17, 14, 12, 10)
CUT = "…"

_LEADING = 1.35  # distance of two lines, in font sizes


@functools.lru_cache(maxsize=64)
def load_font(size: int) -> Any:
    """The font that Pillow contains. It is cached, because Pillow unpacks it each time.

    Args:
        size: In pixels, at least 1.

    Returns:
        A `PIL.ImageFont.FreeTypeFont`.
    """
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
        lines = wrap(text, width - 2 * MARGIN, measure, most + 1)
        if len(lines) <= most:
            break
    else:
        lines = lines[:most]
        lines[-1] = wrap(lines[-1], width - 2 * MARGIN - measure(CUT), measure, 1)[0].rstrip() + CUT
    picture = Image.new("RGB", (width, height), PAPER)
    drawing = ImageDraw.Draw(picture)
    for row, line in enumerate(lines):
        drawing.text((MARGIN, MARGIN + row * size * _LEADING), line, font=font, fill=INK)
    return np.array(picture)


def wrap(text: str, width: float, measure: Callable[[str], float], most: int) -> list[str]:
    """Breaks a text into lines, between words if possible, else inside words.

    Args:
        text: Any text; its own line breaks are kept.
        width: The largest width of a line.
        measure: Gives the width of a character; the width of a line is their sum.
        most: The largest number of lines; text after them is left out.

    Returns:
        The lines. A single character may be wider than `width`.

    Example:
        >>> wrap("one two abcdefgh", 5, len, 9)
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
