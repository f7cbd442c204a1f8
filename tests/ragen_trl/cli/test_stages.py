"""The run folder: a repeated command continues after what is done, and never mixes or deletes what is not its own."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.cli import training_run
from ragen_trl.cli.main import main
from ragen_trl.cli.training_run import open_run
from ragen_trl.errors import OptionError
from ragen_trl.reporting.report import lost_files
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

SETTINGS: dict[str, Any] = {"env": "ragen/FrozenLake-v0", "max_steps": 50, "betas": (0.9, 0.99)}


def test_overwriting_deletes_nothing_but_runs(tmp_path: Path) -> None:
    """Regression: ``--output_dir . --overwrite true`` deleted whatever was in the folder."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OptionError, match="holds no run, so it is not replaced; choose another --output_dir"):
        open_run(tmp_path, SETTINGS, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_warm_start_replaces_no_folder_but_one_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It deleted whatever --output_dir named once."""
    (tmp_path / "letters.txt").write_text("mine")
    assert main(["warm-start", "--demonstrations", "16", "--output_dir", str(tmp_path)]) == 2
    assert "so it is not replaced" in capsys.readouterr().err
    assert (tmp_path / "letters.txt").read_text() == "mine"


def test_a_warm_start_without_its_last_file_is_completed(tmp_path: Path) -> None:
    """Regression: killed between its model and its config.yaml, it was refused for good."""
    command = ["warm-start", "--env", "ragen/Bandit-v0", "--demonstrations", "16"]
    command += ["--output_dir", str(tmp_path / "start")]
    assert main(command) == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / "start").iterdir()}
    (tmp_path / "start" / "config.yaml").unlink()
    for _ in range(2):
        assert main(command) == 0
        assert {path.name: path.read_bytes() for path in (tmp_path / "start").iterdir()} == written
    assert main([*command, "--seed", "3"]) == 2


def small_run(folder: Path) -> list[str]:
    """The command of a run of a small model, without its length and its folder."""
    for part in (small_model(), TOKENIZER):
        part.save_pretrained(folder / "model")
    return [
        *("train", "--env", "ragen/Bandit-v0", "--algo", "starpo", "--model", str(folder / "model")),
        *("--eval_episodes", "4", "--max_turns", "1", "--think", "false", "--max_reply_length", "8"),
        *("--per_device_train_batch_size", "8", "--num_generations", "4", "--gradient_accumulation_steps", "1"),
    ]


def test_a_run_that_was_stopped_after_its_last_update_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: with several updates on a rollout its last checkpoint was refused, with a traceback, for ever."""
    monkeypatch.setattr(training_run, "write_report", lambda folders, page: None)
    words = [
        *small_run(tmp_path),
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
    assert "Stopped. What is finished is kept." in capsys.readouterr().err
    assert main([*words, str(tmp_path / "run")]) == 0
    assert f"going on from {tmp_path / 'run' / 'checkpoint-3'}" in capsys.readouterr().out
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]


def test_a_run_that_lacks_its_last_files_completes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: with summary.json a run counted as finished, whatever else was missing."""
    words = [
        *small_run(tmp_path),
        *("--max_steps", "1"),
        *("--hub_token", "hf_secret", "--output_dir", str(tmp_path / "run")),
    ]

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["ragen-trl", *words])  # what the summary records
    with monkeypatch.context() as patch:
        patch.setattr(training_run, "write_report", killed)
        assert main(words) == 130
    assert (tmp_path / "run" / "summary.json").exists() and not (tmp_path / "run" / "report.html").exists()
    assert main(words) == 0
    for name in ("report.html", "config.yaml", "stages.json", "summary.json"):
        assert "hf_secret" not in (tmp_path / "run" / name).read_text(), name
    assert main(words) == 2
    assert "holds a finished run" in capsys.readouterr().err
    run, weights = tmp_path / "run", Path("model/model.safetensors")
    written = {name: (run / name).read_bytes() for name in ("summary.json", "history.json", "report.html", weights)}
    for name, content in written.items():
        for half in (None, b"", content[:-9], b"?" * len(content)):
            (run / name).unlink() if half is None else (run / name).write_bytes(half)
            assert lost_files(run) == [Path(name).parts[0]]
        (run / name).write_bytes(content)
    for name in written:
        (run / name).unlink()
    assert main(words) == 0
    assert (run / weights).read_bytes() == written[weights] and lost_files(run) == []
