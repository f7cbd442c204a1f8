"""Pictures of one size, whatever size an environment draws them in: scaled down and put on a square."""

import numpy as np
from numpy.typing import NDArray

GROUND = 255  # of the square around a picture that is no square


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
    square = np.full((side, side, 3), GROUND, np.uint8)
    top, left = (side - rows) // 2, (side - columns) // 2
    square[top : top + rows, left : left + columns] = small.round().clip(0, 255)
    return square


def _means(pixels: int, fewer: int) -> NDArray[np.float64]:
    """(fewer, pixels) the share of each old pixel in each new one; rows sum to 1."""
    edges = np.arange(fewer + 1) * (pixels / fewer)
    starts = np.arange(pixels)
    covered = np.minimum(edges[1:, None], starts + 1) - np.maximum(edges[:-1, None], starts)
    return np.asarray(covered.clip(min=0) * (fewer / pixels))
