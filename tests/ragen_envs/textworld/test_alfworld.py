"""A folder of games as ALFWorld's data are, with a game made here: `tests.support.ragen_envs.alfworld_game`."""

import copy
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from ragen_envs import TextWorld, best_action, difficulty, explain
from ragen_envs.textworld.games import GameError
from ragen_envs.textworld.scenes import scene
from tests.support.ragen_envs.alfworld_game import write_game
from tests.support.ragen_envs.commands import check_one_line

pytest.importorskip("textworld")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two games of two types, and one that ALFWorld would leave out."""
    found = tmp_path_factory.mktemp("alfworld") / "valid_seen"
    write_game(found / "pick_and_place_simple-Mug-None-Fridge-1" / "trial_1")
    write_game(found / "elsewhere" / "trial_2", task_type="pick_cool_then_place_in_recep")
    write_game(found / "pick_and_place_simple-Mug-None-Fridge-1" / "trial_3", solvable=False)
    return found


def test_without_the_planner_the_error_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textworld.envs.pddl.pddl.fast_downward_missing", True)
    with pytest.raises(ImportError, match=r"game.tw-pddl needs the planner of .*; pip install 'ragen-trl\[alfworld\]'"):
        scene.__wrapped__(str(folder / "elsewhere" / "trial_2" / "game.tw-pddl"), (), False)


def test_a_game_is_played_to_the_end_by_its_planner(folder: Path) -> None:
    pytest.importorskip("fast_downward")
    env = TextWorld(folder=str(folder))
    first, info = env.reset(seed=0)
    assert "You are in a kitchen." in first and env.task == "Task: put mug 1 in fridge."
    assert first.startswith("Task: put mug 1 in fridge.\n")
    assert env.scene.commands == ("go to fridge 1", "go to shelf 1", "go to shelf 2")
    assert difficulty(env) == 4.0 and "go to X" not in env.instruction
    assert "go to X" in TextWorld(folder=str(folder), show_commands=False).instruction
    # ALFWorld counts down: the first of two ids has the number 2.
    assert env.step("go to shelf 1")[0].startswith("You arrive at shelf 1. On it you see mug 2.\nCommands: ")
    twin = copy.deepcopy(env)
    commands = []
    while not info["success"]:
        command = best_action(env, 9)
        assert explain(env, [command], np.random.default_rng(0)).endswith(f" {command}.")
        observation, reward, over, _, info = env.step(command)
        commands.append(command)
    assert commands == ["go to shelf 2", "take mug 1 from shelf 2", "go to fridge 1", "move mug 1 to fridge 1"]
    assert (reward, over) == (1.0, True) and observation == "You move the mug 1 to the fridge 1.\nThe task is done."
    assert twin.step("go to shelf 2")[0].startswith("You arrive at shelf 2. On it you see mug 1.")


def test_types_of_tasks_are_told_apart(folder: Path) -> None:
    pytest.importorskip("fast_downward")
    env = gymnasium.make("ragen/TextWorld-v0", folder=str(folder))
    infos = [env.reset(seed=seed)[1] for seed in range(8)]
    assert {(info["game"], info["task_type"]) for info in infos} == {
        ("pick_and_place_simple-Mug-None-Fridge-1/trial_1/game.tw-pddl", "pick_and_place_simple"),
        ("elsewhere/trial_2/game.tw-pddl", "pick_cool_then_place_in_recep"),
    }
    one = TextWorld(folder=str(folder), games=1)
    assert {one.reset(seed=seed)[1]["task_type"] for seed in range(8)} == {"pick_cool_then_place_in_recep"}
    with pytest.raises(ValueError, match="split='eval' is of generated games; with a folder leave it out"):
        TextWorld(folder=str(folder), split="eval")


@pytest.mark.parametrize("content", ['{"pddl_domain": ', "{}", "\0"])
def test_a_damaged_game_is_named(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fast_downward")
    (tmp_path / "game.tw-pddl").write_text(content)
    env = TextWorld(folder=str(tmp_path))
    with pytest.raises(GameError, match="game.tw-pddl is damaged .*; get it again, or take it out of the folder"):
        env.reset(seed=0)
    command = ["play", "ragen/TextWorld-v0", "--random", "--env_kwargs", json.dumps({"folder": str(tmp_path)})]
    check_one_line(capsys, command, ["game.tw-pddl is damaged"])
    (tmp_path / "traj_data.json").write_text(content + "[")
    with pytest.raises(GameError, match="traj_data.json is damaged"):
        env.reset(seed=0)


def test_threads_play_several_games_side_by_side(tmp_path: Path) -> None:
    """Regression: every answer of these games is parsed, by one parser of all threads; it ended in an IndexError."""
    pytest.importorskip("fast_downward")
    games = [str(write_game(tmp_path / f"trial_{number}")) for number in range(4)]
    ways = [("go to shelf 1",), ("go to shelf 2", "take mug 1 from shelf 2"), ("go to shelf 1", "go to fridge 1")]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            played = list(pool.map(lambda game: [scene.__wrapped__(game, way, False) for way in ways * 3], games))
    finally:
        sys.setswitchinterval(interval)
    assert played == [[scene.__wrapped__(games[0], way, False) for way in ways * 3]] * 4
