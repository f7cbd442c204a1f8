"""FrozenLake: physics worked by hand, starts, text and picture."""

import numpy as np
import pytest

from ragen_envs import FrozenLake
from ragen_envs.frozen_lake.maps import ACTIONS, Lake, draw_start, has_path, neighbours

OPEN_LAKE = {"frozen_prob": 1.0, "random_start": False}


def test_neighbours_of_a_three_by_three_square() -> None:
    assert neighbours(3)[0] == (0, 3, 1, 0)  # Left and Up stay in the corner
    assert neighbours(3)[4] == (3, 7, 5, 1)
    assert neighbours(3)[8] == (7, 8, 8, 5)


def test_slippery_transitions() -> None:
    lake = Lake(3, "_______OG", 0.8)
    aside = pytest.approx(0.1)
    assert lake.transitions(4, "Left") == [(0.8, 3), (aside, 1), (aside, 7)]
    assert lake.transitions(4, "Down") == [(0.8, 7), (aside, 3), (aside, 5)]
    assert lake.transitions(4, "Right") == [(0.8, 5), (aside, 7), (aside, 1)]
    assert lake.transitions(4, "Up") == [(0.8, 1), (aside, 5), (aside, 3)]
    assert lake.transitions(0, "Up") == [(0.8, 0), (aside, 1), (aside, 0)]


def test_ragen_slips_evenly_and_a_dry_lake_never() -> None:
    third = pytest.approx(1 / 3)
    assert Lake(2, "___G", 1 / 3).transitions(0, "Right") == [(third, 1), (third, 2), (third, 0)]
    assert Lake(2, "___G", 1.0).transitions(0, "Right") == [(1.0, 1)]


def test_holes_and_goal_are_absorbing() -> None:
    lake = Lake(2, "_O_G", 1 / 3)
    assert [lake.transitions(tile, "Left") for tile in (1, 3)] == [[(1.0, 1)], [(1.0, 3)]]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("success_rate", [1 / 3, 0.8])
def test_play_follows_the_transitions(action: str, success_rate: float) -> None:
    env = FrozenLake(size=3, success_rate=success_rate, **OPEN_LAKE)
    env.reset(seed=0)
    env.step("Down")
    n = 3000
    counts = np.zeros(9)
    start = 0
    expected = np.zeros(9)
    for probability, tile in env.lake.transitions(start, action):
        expected[tile] += probability
    slips = 0
    for outcome in range(n):
        env.reset(seed=0, options={"outcome_seed": outcome})
        info = env.step(action)[-1]
        counts[env.position] += 1
        slips += info["slipped"]
        assert info["action_is_effective"] == (env.position != start)
    assert counts / n == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(n))
    assert slips / n == pytest.approx(1 - success_rate, abs=4 * 0.5 / np.sqrt(n))


def test_walk_to_the_goal_on_a_dry_lake() -> None:
    env = FrozenLake(size=3, is_slippery=False, **OPEN_LAKE)
    assert env.reset(seed=0)[0] == "P__\n___\n__G"
    observation, reward, terminated, _, info = env.step("left")  # the border: valid, no effect
    assert (observation, reward, terminated) == ("P__\n___\n__G", 0.0, False)
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, False)
    assert env.step("RIGHT")[0] == "_P_\n___\n__G"
    assert env.step("Right")[0] == "__P\n___\n__G"
    assert env.step("Down")[0] == "___\n__P\n__G"
    assert env.step("Down") == (
        *("___\n___\n__√", 1.0, True, False),
        {"success": True, "action_is_valid": True, "action_is_effective": True, "slipped": False},
    )


def test_hole_ends_the_walk_without_reward() -> None:
    env = FrozenLake(size=2, frozen_prob=0.0, is_slippery=False, random_start=False)
    assert env.reset(seed=0)[0] == "PO\n_G"
    observation, reward, terminated, truncated, info = env.step("Right")
    assert (observation, reward, terminated, truncated, info["success"]) == ("_X\n_G", 0.0, True, False, False)


def test_a_lake_of_holes_gets_one_way_through() -> None:
    env = FrozenLake(size=5, frozen_prob=0.0)
    for seed in range(50):
        env.reset(seed=seed)
        tiles = env.lake.tiles
        assert has_path(tiles, 5, env.position, tiles.index("G"))


@pytest.mark.parametrize("random_start", [True, False])
def test_starts_are_solvable_and_as_described(random_start: bool) -> None:
    random = np.random.default_rng(0)
    holes = []
    pairs = set()
    for _ in range(2000):
        tiles, start = draw_start(random, 4, 0.8, random_start)
        goal = tiles.index("G")
        assert len(tiles) == 16 and tiles.count("G") == 1 and tiles[start] == "_"
        assert has_path(tiles, 4, start, goal)
        pairs.add((start, goal))
        holes.append(tiles.count("O"))
    if random_start:
        assert len(pairs) > 235  # nearly all of the 240 ordered pairs
        assert 2.6 < np.mean(holes) < 2.9  # RAGEN's lakes: 2.7 to 2.9, reference section 1
    else:
        assert pairs == {(0, 15)}


def test_has_path() -> None:
    assert has_path("_O__" + "_OO_" + "___O" + "OO_G", 4, 0, 15)
    assert not has_path("_O__" + "_O__" + "O___" + "___G", 4, 0, 15)
    assert not has_path("_O" + "OG", 2, 0, 3)  # diagonals do not count


def test_instruction_speaks_of_slipping_only_when_it_slips() -> None:
    assert "slippery" in FrozenLake().instruction
    assert "slippery" not in FrozenLake(is_slippery=False).instruction
    assert "slippery" not in FrozenLake(success_rate=1.0).instruction
    assert all(symbol in FrozenLake().instruction for symbol in "P_OGX√")


def test_picture() -> None:
    env = FrozenLake(size=2, frozen_prob=0.0, is_slippery=False, random_start=False, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert isinstance(before, np.ndarray)
    assert (before.shape, before.dtype) == ((96, 96, 3), np.uint8)
    assert before[28, 72].tolist() == [26, 55, 92]  # deep water in the hole, top right
    env.step("Right")
    after = env.render()
    changed = (before != after).any(axis=2)
    assert changed[:48, :48].any() and changed[:48, 48:].any()  # the player left one tile and sank in the other
    assert not changed[48:].any()
    after[:] = 0  # the caller owns the picture
    assert env.render().any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"size": 1}, "size=1"), ({"frozen_prob": 1.1}, "frozen_prob=1.1"), ({"success_rate": -0.1}, "success_rate=-0.1")],
)
def test_bad_arguments_are_named(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrozenLake(**arguments)  # type: ignore[arg-type]


def test_coordinates_say_where_things_are() -> None:
    env = FrozenLake(size=5, coordinates=True)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        *rows, you, holes, goal = observation.splitlines()
        cells = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
        listed = [" ".join(str(place) for place, symbol in cells.items() if symbol == kind) for kind in "POG"]
        assert [you, holes, goal] == [f"You: {listed[0]}", f"Holes: {listed[1] or 'none'}", f"Goal: {listed[2]}"]
        assert observation in env.observation_space
    assert "(row, column)" in env.instruction and "(row, column)" not in FrozenLake().instruction
