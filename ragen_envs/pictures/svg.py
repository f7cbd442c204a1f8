"""Pixels of a drawing in SVG, for environments whose pictures come as such.

`resvg_py` computes them without fonts and without system libraries, the same ones each time. It comes with ``pip
install 'ragen-trl[vision]'`` and is imported for the first picture.
"""

import functools
import importlib.util
import io

import numpy as np
from numpy.typing import NDArray

from ragen_envs.errors import EnvError


class MissingRendererError(EnvError, ModuleNotFoundError):
    """The package that draws SVG is not installed."""


def check_renderer() -> None:
    """Checks that drawings can be drawn, without importing anything.

    Raises:
        MissingRendererError: If they cannot.
    """
    if importlib.util.find_spec("resvg_py") is None:
        raise MissingRendererError(
            "render_mode='rgb_array' needs the package resvg_py here; pip install 'ragen-trl[vision]'"
        )


def draw_svg(drawing: str, side: int) -> NDArray[np.uint8]:
    """Draws a square drawing.

    Args:
        drawing: An SVG document.
        side: Of the picture, in pixels.

    Returns:
        RGB picture, uint8 of shape (side, side, 3).

    Raises:
        MissingRendererError: If the package is not installed.
        ValueError: If the document cannot be read, or is no square.
    """
    return _drawn(drawing, side).copy()


@functools.lru_cache(maxsize=64)  # the members of a group see the same pages
def _drawn(drawing: str, side: int) -> NDArray[np.uint8]:
    check_renderer()
    import resvg_py
    from PIL import Image

    # Fonts would be read from the disk for every picture.
    png = resvg_py.svg_to_bytes(svg_string=drawing, width=side, background="#ffffff", skip_system_fonts=True)
    with Image.open(io.BytesIO(png)) as opened:
        picture = np.array(opened.convert("RGB"))
    if picture.shape != (side, side, 3):
        raise ValueError(f"the drawing is {picture.shape[1]} x {picture.shape[0]} pixels and no square")
    return picture
