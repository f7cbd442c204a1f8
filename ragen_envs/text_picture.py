"""A picture of a text, for environments that have nothing better to draw.

Pillow sets the type with the font that it carries, so no font files are needed here. It is imported when a picture
is first asked for: environments that only speak need not have it.
"""

import numpy as np
from numpy.typing import NDArray

FONT_SIZE = 18
MARGIN = 16
INK, PAPER = (33, 37, 41), (250, 250, 247)


def draw_text(text: str) -> NDArray[np.uint8]:
    """Draws a text, line by line.

    Args:
        text: What to show; characters that the font lacks come out as boxes.

    Returns:
        RGB picture, uint8 of shape (height, width, 3), as large as the text needs.
    """
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(FONT_SIZE)
    left, top, right, bottom = ImageDraw.Draw(Image.new("RGB", (1, 1))).multiline_textbbox((0, 0), text, font=font)
    size = (int(right) + 2 * MARGIN, int(bottom) + 2 * MARGIN)
    picture = Image.new("RGB", size, PAPER)
    ImageDraw.Draw(picture).multiline_text((MARGIN, MARGIN), text, font=font, fill=INK)
    return np.asarray(picture)
