"""Pictures of environments: boards of tiles, text, drawings in SVG, and frames of one size.

Pillow and resvg_py are imported when a picture needs them; resvg_py comes with ``pip install 'ragen-trl[pictures]'``.
"""

import functools
import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 640, 480  # of a picture of a text
MARGIN = 24
INK, PAPER = (33, 37, 41), (250, 250, 247)
FONT_SIZES = (30, 24, 20, 17, 14, 12, 10)
_LEADING = 1.35  # distance of two lines, in font sizes
_CUT = "…"


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


def draw_board(sheet: Path, symbols: str, board: str) -> NDArray[np.uint8]:
    """Draws a board of square tiles.

    Args:
        sheet: A picture of all tiles in one row.
        symbols: The symbol of each tile, in the order of the sheet.
        board: The board's rows, one symbol for each tile.

    Returns:
        RGB picture, uint8 of shape (side of a tile · rows, side · columns, 3).
    """
    numbers = np.array([[symbols.index(symbol) for symbol in row] for row in board.splitlines()])
    tiles = _tiles(sheet)[numbers]  # (rows, columns, side, side, 3)
    rows, columns, side = tiles.shape[:3]
    return tiles.swapaxes(1, 2).reshape(rows * side, columns * side, 3)


@functools.cache
def _tiles(sheet: Path) -> NDArray[np.uint8]:
    """The tiles of a sheet, of shape (tiles, side, side, 3)."""
    from PIL import Image

    with Image.open(sheet) as opened:
        row = np.array(opened.convert("RGB"))
    return row.reshape(len(row), -1, len(row), 3).swapaxes(0, 1)
