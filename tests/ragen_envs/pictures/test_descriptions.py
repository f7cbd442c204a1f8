"""Descriptions of a map: right and wrong places and relations, and what is not a statement."""

from statistics import fmean
from typing import Any

import gymnasium
import pytest

from ragen_envs import description_score

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


def test_a_map_with_coordinates_is_read_up_to_them() -> None:
    assert description_score("player (1, 2), box (2, 2), target (3, 3)", ROOM + "\nYou: (1, 2)") == 1.0


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [("ragen/Sokoban-v0", {}), ("ragen/FrozenLake-v0", {}), ("ragen/FrozenLake-v0", {"size": 8})],
)
def test_a_text_that_does_not_look_earns_little(env_id: str, kwargs: dict[str, Any]) -> None:
    env = gymnasium.make(env_id, **kwargs)
    states = [env.reset(seed=seed)[0] for seed in range(60)]
    kinds = ("player", "box", "target") if "Sokoban" in env_id else ("player", "hole", "goal")
    relations = ("above", "below", "left of", "right of")
    said = [f"{one} is {how} {other}. " for one in kinds for other in kinds for how in relations if one != other]
    places = [f"player ({row}, {column}). " for row in range(8) for column in range(8)]
    assert all(description_score("".join(said), state) == 0 for state in states)
    assert all(description_score("".join(places), state) == 0 for state in states)

    def earned(text: str) -> float:
        return fmean(description_score(text, state) for state in states)

    best = ""
    while (better := max((best + one for one in (*said, *places) if one not in best), key=earned)) and (
        earned(better) > earned(best)
    ):
        best = better
    assert earned(best) < 0.25
