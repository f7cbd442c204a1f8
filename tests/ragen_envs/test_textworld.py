"""`ragen/TextWorld-v0`: generated games, made once, and games of a folder."""

import copy
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ragen_envs import TextWorld, best_action, difficulty, explain
from ragen_envs.textworld.games import game_file

pytest.importorskip("textworld")
SMALL = {"size": "w1-o2-q2", "games": 4}


def test_an_episode_by_hand() -> None:
    env = TextWorld(**SMALL)
    first, info = env.reset(seed=0)
    game = {seed: env.reset(seed=seed)[1]["game"] for seed in range(12)}
    assert set(game.values()) == {f"w1-o2-q2/{number}" for number in range(4)}
    assert info == {"success": False, "action_is_valid": False, "action_is_effective": False, "game": game[0]}
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
    assert env.step(env.scene.plan[0])[4]["action_is_effective"]
    # The oracle needs as many commands as the quest has, and the end pays one.
    for seed in range(4):
        env.reset(seed=seed)
        results = [env.step(best_action(env, 10)) for _ in range(2)]
        assert [(reward, over, info["success"]) for _, reward, over, _, info in results] == [
            (0.0, False, False),
            (1.0, True, True),
        ]


CODE = """
from ragen_envs.textworld import games
made = games._make
games._make = lambda *given: (print("made", flush=True), made(*given))
print(games.game_file("w1-o1-q1", 3))
"""


def test_two_processes_make_a_game_once_and_both_find_it_whole(tmp_path: Path) -> None:
    """Two processes that hash strings differently; the same game as in the user's cache, byte for byte."""
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path)}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": seed, **places},
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
    kept = game_file("w1-o1-q1", 3)
    digests = {hashlib.sha256(game.read_bytes()).hexdigest() for game in (path, kept)}
    assert len(digests) == 1


def test_games_of_a_folder_are_played_to_the_end_and_explained(tmp_path: Path) -> None:
    for number in (0, 3):
        shutil.copytree(game_file("w1-o2-q2", number).parent, tmp_path / "mine" / str(number))
    env = TextWorld(folder=str(tmp_path))
    assert {env.reset(seed=seed)[1]["game"] for seed in range(12)} == {"mine/0/game.z8", "mine/3/game.z8"}
    while difficulty(env):
        twin, command = copy.deepcopy(env), best_action(env, 9)
        assert explain(env, [command], np.random.default_rng(0)).endswith(f" {command}.")
        assert env.step(command) == twin.step(command)  # a copy plays on by itself
    assert env.scene.won
