"""Without the package `textworld`, everything but its environment works, and that one says what to install."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from ragen_envs import MissingTextWorldError
from ragen_envs.cli.main import main
from ragen_envs.textworld.alfworld import task_type
from ragen_envs.textworld.games import GameError, games_in, parse_size


def _gone(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen_envs.textworld.games.version", _gone)
    with pytest.raises(MissingTextWorldError, match=r"pip install 'ragen-trl\[textworld\]'"):
        gymnasium.make("ragen/TextWorld-v0")


def test_baselines_of_all_environments_leave_out_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ragen_envs.textworld.games.version", _gone)
    monkeypatch.setattr("ragen_envs.cli.main.environment_ids", lambda: ["ragen/Bandit-v0", "ragen/TextWorld-v0"])
    assert main(["baselines", "--episodes", "2"]) == 0
    said = capsys.readouterr()
    assert "ragen/Bandit-v0" in said.out and "TextWorld" not in said.out
    assert "left out: ragen/TextWorld-v0 needs the package textworld; pip install" in said.err
    assert main(["baselines", "ragen/TextWorld-v0"]) != 0
    assert "pip install 'ragen-trl[textworld]'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["play", "baselines", "describe"])
@pytest.mark.parametrize("error", [MissingTextWorldError("it needs the planner"), GameError("there is no such quest")])
def test_a_game_that_cannot_be_begun_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, command: str
) -> None:
    """Regression: what is only found at `reset` ended the commands with a traceback."""

    def fail(size: str, number: int, cache: Path) -> Path:
        raise error

    monkeypatch.setattr("ragen_envs.textworld.games.version", lambda name: "1.7.0")
    monkeypatch.setattr("ragen_envs.textworld.env.game_file", fail)
    assert main([command, "ragen/TextWorld-v0", *(["--oracle"] if command == "play" else [])]) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


def test_importing_and_registering_does_not_import_the_package() -> None:
    assert "ragen/TextWorld-v0" in gymnasium.registry
    code = "import sys, ragen_envs; print(sorted({'textworld', 'jericho', 'filelock'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("size", ["w2o3q4", "w0-o1-q1", "w100-o1-q1", "w2-o3-q4 ", "", 3, None])
def test_a_size_is_three_numbers(size: object) -> None:
    with pytest.raises(ValueError, match="is no size; write rooms, objects and quest length"):
        parse_size(size)


def test_a_folder_without_games_or_with_half_a_game_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GameError, match="nothing' is no folder; name one with games"):
        games_in(tmp_path / "nothing")
    with pytest.raises(GameError, match="has no game that ends in .z8 or .tw-pddl"):
        games_in(tmp_path)
    (tmp_path / "half.z8").write_bytes(b"")
    with pytest.raises(GameError, match="half.z8 has no half.json beside it"):
        games_in(tmp_path)


def test_alfworlds_games_that_it_leaves_out_are_left_out(tmp_path: Path) -> None:
    for name, content in {
        "pick_and_place_simple-Mug-None-Shelf-1/trial_1": '{"solvable": true}',
        "pick_and_place_simple-Mug-None-Shelf-1/trial_2": '{"solvable": false}',
        "pick_two_obj_and_place-AppleSliced-None-Shelf-1/trial_1": '{"solvable": true}',
        "pick_and_place_with_movable_recep-Mug-Bowl-Shelf-1/trial_1": '{"solvable": true}',
        "look_at_obj_in_light-Book-None-Lamp-1/trial_9": "{}",
    }.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "game.tw-pddl").write_text(content)
    found = games_in(tmp_path)
    assert [path.parent.relative_to(tmp_path).as_posix() for path in found] == [
        "look_at_obj_in_light-Book-None-Lamp-1/trial_9",
        "pick_and_place_simple-Mug-None-Shelf-1/trial_1",
    ]
    assert [task_type(path) for path in found] == ["look_at_obj_in_light", "pick_and_place_simple"]
    found[1].with_name("traj_data.json").write_text('{"task_type": "pick_heat_then_place_in_recep"}')
    assert task_type(found[1]) == "pick_heat_then_place_in_recep"
    assert task_type(tmp_path / "own" / "game.z8") == ""
