"""Pictures of text, and descriptions of a map that are compared with it."""

import numpy as np
import pytest

from ragen_envs import description_score
from ragen_envs.pictures.text import HEIGHT, MARGIN, PAPER, WIDTH, draw_text

LONG = "A machine-washable shirt below forty dollars, with long sleeves, in navy or in black. " * 12


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Numbers: 3, 4\nTarget: 7", LONG, LONG * 20, "x" * 100_000, "\ud800 √ \t日本"]
)
def test_every_picture_has_one_size(text: str) -> None:
    picture = draw_text(text)
    assert (picture.shape, picture.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert picture.flags.writeable and (picture[:MARGIN] == PAPER).all()


ROOM = "######\n#_P__#\n#_X__#\n#__O_#\n######"  # player (1, 2), box (2, 2), target (3, 3)
LAKE = "P_O\n__O\nG__"
DONE = "####\n#P√#\n####"


@pytest.mark.parametrize(
    ("text", "state", "score"),
    [
        ("player (1, 2), box (2, 2), target (3, 3)", ROOM, 1.0),
        ("You are above the box. Player is above box; target is right of box.", ROOM, 2 / 3),
        ("You are above the box. The box is below you. Player is above box!", ROOM, 1 / 3),
        ("player is above box, player is left of target, box is above target, box is left of target", ROOM, 1.0),
        ("player at (1, 2), box at (2, 3), target (3, 3)", ROOM, 1 / 3 * 2 / 3),
        ("player (1, 2), player (1, 2), player (1, 2), player (1, 3)", ROOM, 0.0),
        ("box is left of player", ROOM, 0.0),
        ("player (1, 2)", ROOM, 1 / 3),
        ("the room is nice", ROOM, 0.0),
        ("player (0, 0), hole (0, 2), hole (1, 2), goal (2, 0)", LAKE, 1.0),
        ("hole (0, 2)", LAKE, 1 / 2 / 3),
        ("goal is below player", LAKE, 1 / 3),
        ("hole is right of goal, hole is above goal", LAKE, 2 / 3),
        ("player is left of hole; hole is above player", LAKE, 0.0),
        ("hole is right of box", LAKE, 0.0),
        ("player (1, 1), box (1, 2), target (1, 2)", DONE, 1.0),
        ("player (1, 1)", "Machines: Phoenix, Dragon", 0.0),
        ("player (1, 1)", "", 0.0),
    ],
)
def test_a_description_is_compared_with_the_map(text: str, state: str, score: float) -> None:
    assert description_score(text, state) == pytest.approx(score)
