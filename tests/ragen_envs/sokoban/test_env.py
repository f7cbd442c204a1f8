"""Sokoban: the rules by hand, the text, and the arguments."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest

from ragen_envs import Sokoban
from ragen_envs.sokoban import NEW_VOCABULARY
from ragen_envs.sokoban.levels import LevelError

CORRIDOR = "#######\n#@$ . #\n#######\n"
TWO_BOXES = "#######\n#@$.*.#\n#   $ #\n#     #\n#######\n"


@pytest.fixture
def load(tmp_path: Path):
    """Makes an environment of the levels in a text."""

    def make(text: str, **kwargs) -> Sokoban:
        path = tmp_path / "levels.txt"
        path.write_text(text, encoding="utf-8")
        env = Sokoban(levels=str(path), **kwargs)
        env.reset(seed=0)
        return env

    return make


def test_a_push_onto_the_last_target_pays_10_9(load) -> None:
    env = load(CORRIDOR)
    observation, reward, terminated, truncated, info = env.step("right")
    assert observation == "#######\n#_PXO_#\n#######"
    assert (reward, terminated, truncated) == (-0.1, False, False)
    assert info == {"success": False, "action_is_effective": True, "pushed": True, "action_is_valid": True}
    observation, reward, terminated, truncated, info = env.step("Right")
    assert observation == "#######\n#__P√_#\n#######"
    assert reward == pytest.approx(10.9)
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_every_kind_of_push_has_its_reward(load) -> None:
    env = load(TWO_BOXES)
    assert env.step("Right")[1] == pytest.approx(0.9)  # a box onto a target, others are still off
    assert env.step("Right")[1] == pytest.approx(-0.1)  # blocked by the next box
    for action in ("Down", "Right"):
        assert env.step(action)[1] == pytest.approx(-0.1)  # on the floor, no box moved
    observation, reward, _, _, info = env.step("Up")
    assert (reward, info["pushed"]) == (pytest.approx(-0.1), False)  # the box above stands against the wall
    assert observation.splitlines()[1:3] == ["#__√√O#", "#__PX_#"]


def test_pushing_off_a_target_costs_one_and_sideways_nothing(load) -> None:
    env = load("########\n#@*. $ #\n########\n")
    assert env.step("Right")[1] == pytest.approx(-0.1)  # from target to target
    assert env.step("Right")[1] == pytest.approx(-1.1)  # off it
    assert env.step("Right")[1] == pytest.approx(-0.1)  # two boxes in a row do not move


@pytest.mark.parametrize(
    ("action", "effective", "pushed"),
    [("Up", False, False), ("Left", False, False), ("Down", True, False), ("Right", True, True)],
)
def test_moves_against_walls_change_nothing_but_cost(load, action: str, effective: bool, pushed: bool) -> None:
    env = load("#####\n#@$.#\n#   #\n#####\n")
    before = env.room
    _, reward, _, _, info = env.step(action)
    assert (info["action_is_effective"], info["pushed"], env.room != before) == (effective, pushed, effective)
    assert reward == pytest.approx(10.9 if pushed else -0.1)


def test_player_on_target_has_its_own_symbol_and_leaves_the_target(load) -> None:
    env = load("######\n#+$  #\n######\n")
    assert env.reset(seed=0)[0] == "######\n#SX__#\n######"
    assert env.step("Right")[0] == "######\n#OPX_#\n######"


def test_text_follows_the_state() -> None:
    """The incremental drawing against a drawing from scratch."""
    env = Sokoban(dim_room=(7, 9), num_boxes=2)
    rng = np.random.default_rng(0)
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        for _ in range(40):
            room = env.room
            expected = ["_" if square in room.board.floor else "#" for square in range(7 * 9)]
            for square in room.board.targets:
                expected[square] = "O"
            for square in room.boxes:
                expected[square] = "√" if square in room.board.targets else "X"
            expected[room.player] = "S" if room.player in room.board.targets else "P"
            rows = ["".join(expected[first : first + 9]) for first in range(0, 63, 9)]
            assert observation == "\n".join(rows)
            observation, _, terminated, _, _ = env.step(env.actions[rng.integers(4)])
            if terminated:
                break


def test_truncated_after_max_steps_and_then_nothing_happens(load) -> None:
    env = load(CORRIDOR, max_steps=3)
    env.step("no action")  # costs no step
    assert [env.step("Left")[3] for _ in range(3)] == [False, False, True]
    room = env.room
    assert env.step("Right")[1:4] == (0.0, False, True)
    assert env.room == room
    assert env.reset()[1]["success"] is False
    assert env.step("Right")[3] is False


def test_solved_in_the_last_step_is_terminated_only(load) -> None:
    env = load(CORRIDOR, max_steps=2)
    env.step("Right")
    assert env.step("Right")[2:4] == (True, False)


def test_no_limit_of_its_own(load) -> None:
    env = load(CORRIDOR, max_steps=None)
    assert not any(env.step("Left")[3] for _ in range(300))


def test_other_symbols_are_shown_and_explained() -> None:
    plain, other = Sokoban(num_boxes=2), Sokoban(num_boxes=2, symbols=NEW_VOCABULARY)
    translate = str.maketrans("#_O√XPS", NEW_VOCABULARY)
    assert other.reset(seed=5)[0] == plain.reset(seed=5)[0].translate(translate)
    assert "W wall, . floor, G target, C box on a target, B box, A you, @ you on a target" in other.instruction
    assert "' ' floor" in Sokoban(symbols="# .*$@+").instruction


def test_coordinates_are_zero_based_rows_and_columns(load) -> None:
    env = load(TWO_BOXES, coordinates=True)
    env.step("Right")
    expected = "#_P√√O#\n#___X_#\n#_____#\n#######\nYou: (1, 2)\nBoxes: (1, 3) (1, 4) (2, 4)\n"
    assert env.render_mode is None
    assert env.step("no action")[0].endswith(f"{expected}Targets: (1, 3) (1, 4) (1, 5)")
    assert "(row, column)" in env.instruction


def test_coordinates_fit_the_observation_space() -> None:
    env = Sokoban(dim_room=(13, 12), num_boxes=4, coordinates=True, search_depth=10)
    for seed in range(20):
        assert env.reset(seed=seed)[0] in env.observation_space


def test_levels_are_drawn_or_chosen(load) -> None:
    env = load(f"{CORRIDOR}\n{TWO_BOXES}\n; a title\n{CORRIDOR.replace('$ ', ' $')}")
    starts = {env.reset(seed=seed)[0] for seed in range(30)}
    assert len(starts) == 3
    chosen = [env.reset(seed=4, options={"level": index})[0] for index in range(3)]
    assert set(chosen) == starts and len(set(chosen)) == 3
    after = env.reset()[0]
    env.reset(seed=4)
    assert env.reset()[0] == after  # choosing a level does not move later starts
    assert chosen[0] in env.observation_space and chosen[1] in env.observation_space
    assert copy.deepcopy(env)._levels is env._levels  # a plan copies the environment for each reply


def test_a_level_that_is_not_there_is_named(load) -> None:
    env = load(CORRIDOR)
    with pytest.raises(ValueError, match=re.escape("level=1 does not exist; use an integer from 0 to 0")):
        env.reset(options={"level": 1})
    with pytest.raises(ValueError, match="needs a file of levels"):
        Sokoban().reset(options={"level": 0})


def test_picture_has_the_size_of_the_room(load) -> None:
    env = load(CORRIDOR, render_mode="rgb_array")
    before = env.render()
    assert before.shape == (3 * 48, 7 * 48, 3) and before.dtype == np.uint8
    env.step("Right")
    changed = (env.render() != before).any(axis=(0, 2)).reshape(7, 48).any(axis=1)
    assert changed.tolist() == [False, True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dim_room": (4, 4)}, "dim_room=(4, 4) leaves no room to push; use at least 3 and 5"),
        ({"dim_room": 6}, "dim_room=6 must be two integers, rows and columns"),
        ({"dim_room": (6.0, 6)}, "dim_room=(6.0, 6) must be two integers, rows and columns"),
        ({"num_boxes": 0}, "num_boxes=0 leaves nothing to push; use 1 or more"),
        ({"max_steps": 0}, "max_steps=0 leaves nothing to play; use 1 or more"),
        ({"num_boxes": 1.5}, "num_boxes=1.5 is a float; use an integer, 1 or more"),
        ({"num_boxes": "1"}, "num_boxes='1' is a str; use an integer"),
        ({"num_boxes": 15}, "num_boxes=15 do not fit into dim_room=(6, 6); use fewer or a larger room"),
        ({"max_steps": 2.5}, "max_steps=2.5 is a float; use an integer"),
        ({"symbols": None}, "symbols=None must be one text of 7 different characters"),
        ({"levels": "x.txt", "num_boxes": 2}, "levels='x.txt' leave no use for dim_room=(6, 6), num_boxes=2"),
        ({"levels": 42}, "levels=42 cannot be read"),
        ({"search_depth": 2}, "search_depth=2 cannot move a box off its target; use 3 or more"),
        ({"symbols": "abc"}, "symbols='abc' must be one text of 7 different characters: wall, floor, target"),
        ({"symbols": "#_O√XPP"}, "symbols='#_O√XPP' must be one text of 7 different characters"),
        ({"symbols": "#_O√XPé"}, "symbols='#_O√XPé' must be printable ASCII or √"),
        ({"render_mode": "human"}, "render_mode='human' is unknown"),
    ],
)
def test_bad_arguments_are_named(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Sokoban(**kwargs)


def test_a_missing_level_file_is_named() -> None:
    with pytest.raises(LevelError, match=r"levels='nowhere\.txt' cannot be read"):
        Sokoban(levels="nowhere.txt")
