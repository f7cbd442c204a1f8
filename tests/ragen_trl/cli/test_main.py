"""The commands as a user types them: a whole small run, stopping and going on, and every mistake we know of."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import Trainer

from ragen_trl import StarPOTrainer
from ragen_trl.cli import training_run
from ragen_trl.cli.main import main
from ragen_trl.evaluation.folder import read_episodes
from ragen_trl.evaluation.tables import result_table
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

SMALL_RUN = [
    *("--demonstrations", "32", "--demo_batch_size", "16", "--eval_episodes", "8", "--max_turns", "2"),
    *("--per_device_train_batch_size", "8", "--num_generations", "4", "--max_steps", "4", "--save_steps", "1"),
]


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """For runs whose report nobody looks at: to draw it takes a third of their time."""
    monkeypatch.setattr(training_run, "write_report", lambda folders, page: page.write_text(""))


def train(folder: Path, *more: str) -> int:
    return main(["train", *SMALL_RUN, "--output_dir", str(folder), *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole small run, never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train(folder) == 0
    return folder


def test_a_run_leaves_model_summary_history_and_report(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert list(summary["results"]) == ["random", "oracle", "before", "trained"]
    assert all(result["n"] == 8 for result in summary["results"].values())
    assert summary["results"]["oracle"]["success"] > summary["results"]["random"]["success"]
    assert summary["config"]["filter_ratio"] == 0.25
    assert summary["config"]["env_kwargs"] == summary["env_kwargs"]
    assert summary["seed"] == 42
    rows = [row for row in json.loads((finished / "history.json").read_text()) if "success" in row]
    assert [row["filter/trajectories_sampled"] for row in rows] == [8, 8, 8, 8]
    assert (finished / "report.html").read_text().startswith("<!doctype html>")
    assert (finished / "model" / "model.safetensors").exists()
    assert result_table(summary)[-2][0] == "trained"


def test_a_run_keeps_the_episodes_of_its_evaluations_and_compares_by_start_state(finished: Path) -> None:
    results = json.loads((finished / "summary.json").read_text())["results"]
    for name, result in results.items():
        rows = read_episodes(finished / "episodes" / f"{name}.jsonl.gz")
        assert [row["seed"] for row in rows] == list(range(8))
        for row in rows:  # every word of every turn, also of the policies that are scripts
            assert row["return"] == pytest.approx(sum(turn["reward"] for turn in row["transcript"]))
            assert len(row["transcript"]) == row["turns"]
            assert "G" in row["transcript"][0]["observation"] and "<" in row["transcript"][0]["reply"]
        assert sum(row["success"] for row in rows) / 8 == result["success"]
        assert {row["policy"] for row in rows} == {name}
    assert list(results["trained"]["differences"]) == ["random", "before"]
    for other, difference in results["trained"]["differences"].items():
        assert difference["value"] == pytest.approx(results["trained"]["success"] - results[other]["success"])
        assert difference["low"] < difference["value"] < difference["high"] and difference["starts"] == 8
    assert "paired by start state" in (finished / "report.html").read_text()


def test_other_settings_are_not_mixed_into_an_unfinished_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that is back at TRL's default was overlooked once."""
    folder = tmp_path / "run"
    folder.mkdir()
    stages = json.loads((finished / "stages.json").read_text())
    del stages["finished"]
    (folder / "stages.json").write_text(json.dumps(stages))
    assert train(folder, "--num_generations", "8", "--loss_type", "dapo") == 2
    error = capsys.readouterr().err
    assert "num_generations was 4, now 8" in error
    assert "loss_type was 'grpo', now 'dapo'" in error


def test_the_ppo_form_with_options_from_yaml_and_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The critic of the embedded model needs a learning rate of its size: at a big model's 1e-5 it stays at 0."""
    config = tmp_path / "run.yaml"
    config.write_text("env: ragen/Bandit-v0\nmax_steps: 1\nlearning_rate: 1.0e-3\n")
    options = ["--config", str(config), "--max_steps", "4", "--per_device_train_batch_size", "16"]
    options += ["--algo", "starpo", "--advantage", "gae", "--save_steps", "4"]
    assert train(tmp_path / "run", *options) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["env"] == "ragen/Bandit-v0"
    assert summary["config"]["learning_rate"] == 1e-3
    assert summary["config"]["max_steps"] == 4  # the command line wins
    assert summary["config"]["critic_learning_rate"] == 1e-3
    rows = [row for row in json.loads((tmp_path / "run" / "history.json").read_text()) if "success" in row]
    assert rows[0]["filter/trajectories_used"] == 64  # one rollout: four updates of 16
    assert (tmp_path / "run" / "critic.pt").is_file()
    assert not list((tmp_path / "run" / "model").glob("*critic*"))
    config.write_text("learning_rte: 1.0e-3\n")
    assert train(tmp_path / "other", "--config", str(config)) == 2
    assert "learning_rte" in capsys.readouterr().err


def test_eval_reads_the_saved_model(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder says how it plays, so the same seeds give the number that the run itself reported."""
    model = str(finished / "model")
    assert main(["eval", "--model", model, "--episodes", "8", "--output_dir", str(tmp_path)]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["env"], summary["environment"]) == ("ragen/FrozenLake-v0", {})  # FrozenLake has nothing to say
    results = summary["results"]
    reported = json.loads((finished / "summary.json").read_text())["results"]["trained"]
    assert results[model]["mean_return"] == reported["mean_return"]
    assert "oracle: success 0.875" in capsys.readouterr().out  # one of eight goals is more than four moves away


@pytest.mark.usefixtures("no_page")
def test_warm_start_then_train_from_it_without_naming_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers replaces an output_dir of None by "trainer_output", which hid the default folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["warm-start", "--demonstrations", "16", "--seed", "7"]) == 0
    start = tmp_path / "runs" / "warm-start-seed7"
    options = ["--model", str(start), "--algo", "starpo", "--max_steps", "1", "--seed", "7"]
    assert main(["train", *SMALL_RUN, *options]) == 0
    run = tmp_path / "runs" / "frozenlake-warm-start-seed7-starpo-seed7"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["algo"], summary["warm_started"], summary["config"]["filter_ratio"]) == ("starpo", False, 1.0)
    assert summary["config"]["learning_rate"] == 3e-4  # its recipe goes with the embedded model, not that of large ones
    assert main(["eval", "--episodes", "4"]) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]


@pytest.mark.usefixtures("no_page")
def test_lora_run_is_evaluated_from_its_folder(tmp_path: Path) -> None:
    small_model().save_pretrained(tmp_path / "base")
    TOKENIZER.save_pretrained(tmp_path / "base")
    options = ["--think", "false", "--max_reply_length", "8", "--bf16", "false"]
    run = [*options, "--gradient_accumulation_steps", "1", "--lora_r", "4", "--max_steps", "1"]
    assert train(tmp_path / "run", "--model", str(tmp_path / "base"), *run) == 0
    adapter = tmp_path / "run" / "model"
    assert (adapter / "adapter_model.safetensors").exists()
    played = ["--max_turns", "2", "--episodes", "8", "--output_dir", str(tmp_path / "eval")]
    assert main(["eval", "--model", str(adapter), *options, *played]) == 0
    results = json.loads((tmp_path / "eval" / "summary.json").read_text())["results"]
    reported = json.loads((tmp_path / "run" / "summary.json").read_text())["results"]["trained"]
    assert results[str(adapter)]["mean_return"] == reported["mean_return"]
    again = [*options, "--gradient_accumulation_steps", "1", "--max_steps", "1", "--learning_rate", "0"]
    assert train(tmp_path / "again", "--model", str(adapter), *again) == 0  # the adapter goes on learning
    assert main(["train", *SMALL_RUN, "--model", str(adapter), *run, "--output_dir", str(tmp_path / "no")]) == 2
    weights = [(folder / "adapter_model.safetensors").read_bytes() for folder in (adapter, tmp_path / "again/model")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--env", "ragen/FrozenPond-v0"], ["FrozenPond"]),
        (["--env_kwargs", '{"slippery": false}'], ["slippery", "ragen/FrozenLake-v0"]),
        (["--num_generations", "3"], ["8", "divisible", "3"]),
        (["--model", "./no/such/folder"], ["./no/such/folder", "hub"]),
    ],
)
def test_a_mistake_gets_one_line_with_the_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    assert train(tmp_path / "run", *options) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert all(word in error for word in words), error


def start_run(folder: Path, wait_for: str) -> subprocess.Popen[str]:
    """Start a run in a process of its own and wait until a file of it appears."""
    command = [sys.executable, "-m", "ragen_trl", "train", *SMALL_RUN, "--output_dir", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
    deadline = time.monotonic() + 120
    while not (folder / wait_for).exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.usefixtures("python_handles_interrupts", "no_page")
def test_a_run_that_was_stopped_and_then_killed_ends_where_an_unbroken_one_does(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C leaves a checkpoint and no trace; the killed process could leave half of one."""
    folder = tmp_path / "run"
    save = Trainer._save_checkpoint

    def save_and_interrupt(trainer: Trainer, *given: Any) -> None:
        save(trainer, *given)
        if trainer.state.global_step == 1 and isinstance(trainer, StarPOTrainer):  # not in the warm start
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save_checkpoint", save_and_interrupt)
        assert train(folder) == 130
    said, error = capsys.readouterr()
    assert "Traceback" not in error
    phases = ("evaluating random play", "warm start:", "evaluating the model, 8 episodes", "training: 4 updates")
    assert [phase for phase in phases if phase not in said] == []  # off a terminal, each when it begins
    reached = max(int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*"))
    assert error.strip().splitlines()[-1] == (
        f"Stopped after step {reached} of 4. The checkpoint is {folder}/checkpoint-{reached}. "
        "To go on, run the same command again."
    )
    process = start_run(folder, f"checkpoint-{min(reached + 1, 4)}/trainer_state.json")
    process.kill()
    process.communicate()
    assert not (folder / "summary.json").exists()
    assert train(folder) == 0
    model = "model/model.safetensors"
    assert (folder / model).read_bytes() == (finished / model).read_bytes()


@pytest.mark.usefixtures("no_page")
def test_a_finished_run_is_repeated_from_its_folder(finished: Path, tmp_path: Path) -> None:
    """Its config.yaml says all that was chosen, so the same weights come out."""
    assert main(["train", "--config", str(finished / "config.yaml"), "--output_dir", str(tmp_path / "again")]) == 0
    model = "model/model.safetensors"
    assert (tmp_path / "again" / model).read_bytes() == (finished / model).read_bytes()
