"""Making games: whole or not there, once, and the same in every process."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragen_envs.textworld.games import GameError, game_file, user_cache
from ragen_envs.textworld.scenes import scene

pytest.importorskip("textworld")

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


def test_threads_make_and_start_games_at_once(tmp_path: Path) -> None:
    """Regression: TextWorld has one parser for all threads, and two in it at a time ended in an IndexError."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            files = list(pool.map(lambda number: game_file("w1-o1-q1", number, tmp_path), range(4)))
            scenes = list(pool.map(lambda file: scene(str(file), (), True), files))
    finally:
        sys.setswitchinterval(interval)
    assert all(len(one.plan) == 1 for one in scenes)


def test_what_was_left_half_made_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(size: str, number: int, folder: Path) -> None:
        folder.mkdir()
        (folder / "game.z8").write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("ragen_envs.textworld.games._make", fails)
    for _ in range(2):  # the second time nothing is there either
        with pytest.raises(OSError, match="disk full"):
            game_file("w1-o1-q1", 0, tmp_path)
    assert not list(tmp_path.rglob("game.z8"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(GameError, match="cache='.*file' cannot be written .*; name another folder"):
        game_file("w1-o1-q1", 0, tmp_path / "file")


def test_a_quest_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import textworld
    from textworld.generator import QuestGenerationError

    seeds = []

    def finds_none(options: textworld.GameOptions) -> None:
        seeds.append(options.seeds)
        raise QuestGenerationError("none")

    monkeypatch.setattr("textworld.make", finds_none)
    with pytest.raises(GameError, match="size='w1-o1-q9': TextWorld finds no quest of 9 commands in 1 rooms"):
        game_file("w1-o1-q9", 0, tmp_path)
    assert len(seeds) == 5 and seeds[0] != seeds[1]
