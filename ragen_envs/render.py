"""Pictures of environments: text, drawings in SVG, and frames of one size. Those of boards are in `board`.

Pillow and resvg_py are imported when a picture needs them; resvg_py comes with ``pip install 'ragen-trl[pictures]'``.
"""

import functools
import io
import textwrap

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 640, 480  # of a picture of a text
MARGIN = 24
INK, PAPER = (33, 37, 41), (250, 250, 247)
FONT_SIZES = (30, 24, 20, 17, 14, 12, 10)
_LETTER, _LEADING = 0.55, 1.35  # width of a letter and distance of two lines, in font sizes

Picture = NDArray[np.uint8]  # RGB, (height, width, 3)


def on_square(picture: Picture, side: int) -> Picture:
    """Scales a picture down until it fits a square, and puts it in the middle of it.

    Args:
        picture: RGB, uint8 of shape (height, width, 3).
        side: Of the square, in pixels.

    Returns:
        RGB, uint8 of shape (side, side, 3), white around the picture.

    Example:
        >>> on_square(np.array([[[0] * 3, [100] * 3], [[200] * 3, [100] * 3]], np.uint8), 1).tolist()
        [[[100, 100, 100]]]
    """
    from PIL import Image

    small, square = Image.fromarray(picture), Image.new("RGB", (side, side), "white")
    small.thumbnail((side, side), Image.Resampling.HAMMING, reducing_gap=None)
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return np.array(square)


def draw_svg(drawing: str, side: int) -> Picture:
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
def _drawn(drawing: str, side: int) -> Picture:
    try:
        import resvg_py
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("drawings need the package resvg_py; pip install 'ragen-trl[pictures]'") from error
    from PIL import Image

    # Fonts would be read from the disk for every picture.
    png = resvg_py.svg_to_bytes(svg_string=drawing, width=side, background="#ffffff", skip_system_fonts=True)
    with Image.open(io.BytesIO(png)) as opened:
        return np.array(opened.convert("RGB"))


def draw_text(text: str, width: int = WIDTH, height: int = HEIGHT) -> Picture:
    """Draws a text in the largest font size in which all of it fits.

    Lines that are too long for usual letters are wrapped. What does not fit in the smallest size is cut off.

    Args:
        text: What to show; characters that are not in the font become boxes.
        width: Of the picture, in pixels.
        height: Of the picture, in pixels.

    Returns:
        RGB picture, uint8 of shape (height, width, 3).
    """
    from PIL import Image, ImageDraw, ImageFont

    text = text.encode("utf-8", "replace").decode()  # no font draws lone surrogates
    for size in FONT_SIZES:
        columns = int((width - 2 * MARGIN) / (size * _LETTER))
        rows = int((height - 2 * MARGIN) / (size * _LEADING))
        lines = [part for line in text.splitlines() for part in textwrap.wrap(line, columns, tabsize=4) or [""]]
        if len(lines) <= rows:
            break
    picture = Image.new("RGB", (width, height), PAPER)
    drawing, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    for row, line in enumerate(lines[:rows]):
        drawing.text((MARGIN, MARGIN + row * size * _LEADING), line, font=font, fill=INK)
    return np.array(picture)
