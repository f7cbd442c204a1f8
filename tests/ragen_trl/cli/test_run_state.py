"""RunState: a repeated command continues after what is done, and never mixes or deletes what is not its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli import training_run
from ragen_trl.cli.main import main
from ragen_trl.cli.run_state import RunExistsError, RunState
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

SETTINGS: dict[str, Any] = {"env": "ragen/FrozenLake-v0", "max_steps": 50, "betas": (0.9, 0.99)}


def forbidden() -> Any:
    raise AssertionError("this stage is done already")


def test_a_stage_is_made_once_and_outlives_the_process(tmp_path: Path) -> None:
    state = RunState(tmp_path, SETTINGS, overwrite=False)
    assert state.value("random", lambda: {"success": 0.2}) == {"success": 0.2}
    assert state.value("random", forbidden) == {"success": 0.2}
    assert RunState(tmp_path, SETTINGS, overwrite=False).value("random", forbidden) == {"success": 0.2}


def test_a_stage_that_fails_is_not_done(tmp_path: Path) -> None:
    state = RunState(tmp_path, SETTINGS, overwrite=False)
    with pytest.raises(AssertionError):
        state.value("random", forbidden)
    assert RunState(tmp_path, SETTINGS, overwrite=False).value("random", lambda: 1) == 1


def test_times_of_resumed_runs_add_up(tmp_path: Path) -> None:
    RunState(tmp_path, SETTINGS, overwrite=False).add("seconds", 1.5)
    state = RunState(tmp_path, SETTINGS, overwrite=False)
    state.add("seconds", 2.0)
    assert state.value("seconds", forbidden) == 3.5


def test_settings_that_json_spells_differently_are_the_same(tmp_path: Path) -> None:
    """Regression guard: a tuple comes back as a list, a path as a string."""
    settings = SETTINGS | {"model": tmp_path / "model"}
    RunState(tmp_path, settings, overwrite=False).value("random", lambda: 1)
    assert RunState(tmp_path, settings, overwrite=False).value("random", forbidden) == 1


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    RunState(tmp_path, SETTINGS, overwrite=False).value("random", lambda: 1)
    before = (tmp_path / "stages.json").read_bytes()
    with pytest.raises(RunExistsError) as caught:
        RunState(tmp_path, SETTINGS | {"max_steps": 60, "seed": 1}, overwrite=False)
    message = str(caught.value)
    assert "max_steps was 50, now 60" in message
    assert "seed was None, now 1" in message
    assert "env" not in message.partition("(")[2].partition(")")[0]
    assert str(tmp_path) in message
    assert "--overwrite true" in message
    assert (tmp_path / "stages.json").read_bytes() == before


def test_an_option_that_did_not_exist_when_the_run_began_has_its_default_there(tmp_path: Path) -> None:
    """Regression: a run of several days was refused after an update of the package that had added an option."""
    RunState(tmp_path, SETTINGS, overwrite=False).value("random", lambda: 1)
    added, defaults = SETTINGS | {"new": 0.5}, {"new": 0.5, "max_steps": 60}
    assert RunState(tmp_path, added, overwrite=False, defaults=defaults).value("random", forbidden) == 1
    with pytest.raises(RunExistsError, match=r"\(new was 0\.5, now 0\.7\)"):
        RunState(tmp_path, SETTINGS | {"new": 0.7}, overwrite=False, defaults=defaults)
    with pytest.raises(RunExistsError, match="max_steps was 50, now 60"):  # what is recorded counts
        RunState(tmp_path, added | {"max_steps": 60}, overwrite=False, defaults=defaults)


def test_a_finished_run_is_refused(tmp_path: Path) -> None:
    RunState(tmp_path, SETTINGS, overwrite=False)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(RunExistsError, match="holds a finished run, see .*report.html; pass --overwrite true"):
        RunState(tmp_path, SETTINGS, overwrite=False)


def test_overwriting_starts_again(tmp_path: Path) -> None:
    RunState(tmp_path, SETTINGS, overwrite=False).value("random", lambda: 1)
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "checkpoint-5").mkdir()
    state = RunState(tmp_path, SETTINGS | {"max_steps": 60}, overwrite=True)
    assert state.value("random", lambda: 2) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["stages.json"]


def test_overwriting_deletes_nothing_but_runs(tmp_path: Path) -> None:
    """Regression: ``--output_dir . --overwrite true`` deleted whatever was in the folder."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunExistsError, match="holds no run .*not deleted; choose another --output_dir"):
        RunState(tmp_path, SETTINGS, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("exists", [True, False])
def test_overwriting_an_empty_or_missing_folder_is_no_mistake(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "run"
    if exists:
        folder.mkdir()
    RunState(folder, SETTINGS, overwrite=True)
    assert json.loads((folder / "stages.json").read_text())["values"] == {}


def test_a_run_that_was_stopped_after_its_last_update_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: with several updates on a rollout its last checkpoint was refused, with a traceback, for ever."""
    monkeypatch.setattr(training_run, "write_report", lambda folders, page: None)
    for part in (small_model(), TOKENIZER):
        part.save_pretrained(tmp_path / "model")
    words = [
        *("train", "--env", "ragen/Bandit-v0", "--algo", "starpo", "--model", str(tmp_path / "model")),
        *("--eval_episodes", "4", "--max_turns", "1", "--think", "false", "--max_reply_length", "8"),
        *("--per_device_train_batch_size", "8", "--num_generations", "4", "--gradient_accumulation_steps", "1"),
        *("--num_iterations", "2", "--max_steps", "3", "--save_steps", "2", "--learning_rate", "0.01", "--output_dir"),
    ]
    assert main([*words, str(tmp_path / "whole")]) == 0
    evaluate = training_run._play

    def stopped(folder: Path, name: str, *rest: Any) -> Any:
        if name == "trained":
            raise KeyboardInterrupt
        return evaluate(folder, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "_play", stopped)
        assert main([*words, str(tmp_path / "run")]) == 130
    capsys.readouterr()
    assert main([*words, str(tmp_path / "run")]) == 0
    assert f"going on from {tmp_path / 'run' / 'checkpoint-3'}" in capsys.readouterr().out
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]
