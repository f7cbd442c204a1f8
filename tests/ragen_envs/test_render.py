"""Pictures of text."""

import numpy as np
import pytest

from ragen_envs.render import HEIGHT, MARGIN, PAPER, WIDTH, draw_text

LONG = "A machine-washable shirt below forty dollars, with long sleeves, in navy or in black. " * 12


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Numbers: 3, 4\nTarget: 7", LONG, LONG * 20, "x" * 100_000, "\ud800 √ \t日本"]
)
def test_every_picture_has_one_size(text: str) -> None:
    picture = draw_text(text)
    assert (picture.shape, picture.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert picture.flags.writeable and (picture[:MARGIN] == PAPER).all()
