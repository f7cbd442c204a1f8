"""Descriptions of a map: right and wrong places and relations, and what is not a statement."""

import pytest

from ragen_envs import description_score

ROOM = "######\n#_P__#\n#_X__#\n#__O_#\n######"  # player (1, 2), box (2, 2), target (3, 3)
LAKE = "P_O\n__O\nG__"
DONE = "####\n#P√#\n####"


@pytest.mark.parametrize(
    ("text", "state", "score"),
    [
        ("player (1, 2), box (2, 2), target (3, 3)", ROOM, 1.0),
        ("You are above the box. Player is above box; target is right of box.", ROOM, 1.0),
        ("player at (1, 2), box at (2, 3), target (3, 3)", ROOM, 2 / 3 * 2 / 3),
        ("box is left of player", ROOM, 0.0),
        ("player (1, 2)", ROOM, 1 / 3),
        ("the room is nice", ROOM, 0.0),
        ("player (0, 0), hole (0, 2), hole (1, 2), goal (2, 0)", LAKE, 1.0),
        ("goal is below player", LAKE, 2 / 3),
        ("player (1, 1), box (1, 2), target (1, 2)", DONE, 1.0),
        ("player (1, 1)", "Machines: Phoenix, Dragon", 0.0),
        ("player (1, 1)", "", 0.0),
    ],
)
def test_a_description_is_compared_with_the_map(text: str, state: str, score: float) -> None:
    assert description_score(text, state) == pytest.approx(score)


def test_a_map_with_coordinates_is_read_up_to_them() -> None:
    assert description_score("player (1, 2), box (2, 2), target (3, 3)", ROOM + "\nYou: (1, 2)") == 1.0
