"""`ragen/TextWorld-v0`: generated games, made once, and a folder of games as ALFWorld's data are."""

import copy
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ragen_envs import TextWorld, best_action, difficulty, explain
from ragen_envs.textworld.games import game_file, user_cache
from tests.support.ragen_envs.alfworld_game import write_game

pytest.importorskip("textworld")
SMALL = {"size": "w1-o2-q2", "games": 4}


def solve(env: TextWorld, seed: int) -> list[tuple[str, float]]:
    """The oracle's commands and what they earned."""
    env.reset(seed=seed)
    played, over = [], False
    while not over:
        command = best_action(env, 10)
        _, reward, over, _, info = env.step(command)
        played.append((command, reward))
    assert info["success"]
    return played


def test_an_episode_by_hand() -> None:
    env = TextWorld(**SMALL)
    first, info = env.reset(seed=0)
    game = {seed: env.reset(seed=seed)[1]["game"] for seed in range(12)}
    assert set(game.values()) == {f"w1-o2-q2/{number}" for number in range(4)}
    assert info == {
        **{"success": False, "action_is_valid": False, "action_is_effective": False},
        **{"game": game[0], "task_type": ""},
    }
    assert env.reset(seed=0)[0] == first
    task, room, *_, listed = first.splitlines()
    assert task == env.task and task.startswith("Task: ") and room.startswith("-= ")
    assert listed == f"Commands: {', '.join(env.scene.commands)}"
    assert {"look", "inventory"} <= set(env.scene.commands)
    assert "$$" not in first and ">" not in first  # neither the title nor the prompt of the interpreter
    looked, reward, over, _, info = env.step(" LOOK ")
    assert looked.startswith(room) and (reward, over) == (0.0, False)
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, False)
    assert env.step("fly to the moon")[0] == looked  # not a command: nothing changes
    command = env.plan[0]
    assert env.step(command)[4]["action_is_effective"]


def test_the_oracle_needs_the_quests_length_and_rewards_add_up_to_one() -> None:
    for rewards, expected in (("final", [0.0, 1.0]), ("progress", [0.5, 0.5])):
        env = TextWorld(**SMALL, rewards=rewards)
        for seed in range(4):
            assert [reward for _, reward in solve(env, seed)] == expected


CODE = """
import sys, time
from pathlib import Path
from ragen_envs.textworld import games
made = games._make
games._make = lambda *given: (print("made", flush=True), made(*given))
print(games.game_file("w1-o1-q1", 3, Path(sys.argv[1])))
"""


def test_two_processes_make_a_game_once_and_both_find_it_whole(tmp_path: Path) -> None:
    """Two processes that hash strings differently; the same game as in the user's cache, byte for byte."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CODE, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    said = [run.communicate()[0].split() for run in runs]
    assert sorted(map(len, said)) == [1, 2]  # one of them said "made"
    (path,) = {Path(words[-1]) for words in said}
    assert sorted(file.name for file in path.parent.iterdir()) == ["game.json", "game.z8"]
    assert sorted(file.name for file in path.parent.parent.iterdir()) == ["3", "3.lock"]
    kept = game_file("w1-o1-q1", 3, user_cache())
    digests = {hashlib.sha256(game.read_bytes()).hexdigest() for game in (path, kept)}
    assert len(digests) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two games of two types, and one that ALFWorld would leave out."""
    found = tmp_path_factory.mktemp("alfworld") / "valid_seen"
    write_game(found / "pick_and_place_simple-Mug-None-Fridge-1" / "trial_1")
    write_game(found / "elsewhere" / "trial_2", task_type="pick_cool_then_place_in_recep")
    write_game(found / "pick_and_place_simple-Mug-None-Fridge-1" / "trial_3", solvable=False)
    return found


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
