"""A moving picture of an episode, as a GIF.

Pillow writes it and is imported for it only.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE = 400  # pixels
PAUSE, LAST_PAUSE = 500, 2000  # milliseconds
COLORS = 128


def write_film(path: Path, frames: Sequence[NDArray[np.uint8]]) -> None:
    """Writes pictures as a GIF that plays again and again. Large ones are made smaller.

    Args:
        path: The file.
        frames: One or more RGB pictures, each uint8 of shape (height, width, 3).

    Raises:
        OSError: If the file cannot be written.
    """
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    for picture in pictures:
        picture.thumbnail((SIDE, SIDE))
    first, *rest = [picture.quantize(COLORS) for picture in pictures]
    pauses = [*[PAUSE] * len(rest), LAST_PAUSE]
    first.save(path, save_all=True, append_images=rest, duration=pauses, loop=0, optimize=True)
