"""agents/command.py: several runs at once wait for each other's models, and what they have when they are stopped."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
import webshop_gpu
from agents import command, results, runs
from agents.runs import DATA, Run, Step
from pages.pretrained import pretrained_tables

MODEL = "model"


def run_of(*names: str, stage: str = "stage", needs: Run | None = None) -> Run:
    steps = tuple(Step(name, "train", {"output_dir": f"{runs.HERE}/{name}"}) for name in names)
    return Run("game", stage, None, steps, 1, MODEL, needs)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a run are its name, whatever its steps wrote."""
    monkeypatch.setattr(
        "agents.carry_out.result_of", lambda run, root, seconds, began: {"name": run.name, "created": "now"}
    )
    monkeypatch.setattr(command, "outcome", lambda result: result["name"])


def working(does: Callable[[str], int | None]) -> Callable[[Sequence[str], IO[str]], int]:
    """A command that does something by the name of its step, and writes what a step writes if that returns nothing."""

    def execute(words: Sequence[str], log: IO[str]) -> int:
        folder = Path(words[words.index("--output_dir") + 1])
        if status := does(folder.name):
            return status
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text("{}")
        return 0

    return execute


@pytest.mark.usefixtures("written")
def test_training_goes_on_beside_the_evaluations_of_its_warm_start(tmp_path: Path) -> None:
    """Regression: who made the model for others kept its own run from going on, which was then said to have failed."""
    warm = run_of("model", "sampled", stage="warm_start")
    trained = [run_of(name, stage=name, needs=warm) for name in ("first", "second")]
    at_once = threading.Barrier(3, timeout=30)
    done: list[str] = []

    def does(name: str) -> None:
        if name != "model":
            at_once.wait()
        done.append(name)

    assert command.do_all([*trained, warm], tmp_path, MODEL, working(does), at_once=3) == []
    assert done[0] == "model" and sorted(done) == ["first", "model", "sampled", "second"]


@pytest.mark.usefixtures("written")
def test_a_model_that_cannot_be_made_is_tried_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after Ctrl-C, which ends the command that made it: regression, the next run that waited began it again."""
    warm = run_of("model", stage="warm_start")
    waiting = [run_of(name, stage=name, needs=warm) for name in ("first", "second")]
    done: list[str] = []
    failed = command.do_all([warm, *waiting], tmp_path, MODEL, working(lambda name: done.append(name) or 1), at_once=3)
    assert failed == ["game/warm_start", "game/first", "game/second"] and done == ["model"]
    assert "train failed before; see" in capsys.readouterr().err


@pytest.mark.usefixtures("written")
def test_what_nobody_expects_ends_the_others_too(tmp_path: Path) -> None:
    def does(name: str) -> None:
        raise MemoryError(name)

    every = [run_of(name, stage=name) for name in ("first", "second", "third")]
    with pytest.raises(MemoryError):
        command.do_all(every, tmp_path, MODEL, working(does), at_once=2)


@pytest.mark.usefixtures("written")
def test_one_at_a_time_stays_in_the_main_thread(tmp_path: Path) -> None:
    """A smoke run trains in this process, which another thread would take for a rollout beside training."""
    seen: list[bool] = []
    does = working(lambda _: seen.append(threading.current_thread() is threading.main_thread()))
    assert command.do_all([run_of("first")], tmp_path, MODEL, does) == []
    assert seen == [True]


@pytest.mark.parametrize("options", [["--at-once", "0"], ["--smoke", "--at-once", "2"]])
def test_numbers_that_make_no_sense_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        webshop_gpu.main(options)
    assert f"--at-once is {options[-1]}; give at least 1" in capsys.readouterr().err


ROWS = [
    {"step": 1, "loss": 0.1, "rollout/seconds": 8.0, "step_time": 10.0, "success": 0.25},
    {"step": 2, "loss": 0.1, "step_time": 2.0},
]


def begun(folder: Path, rows: Sequence[dict[str, Any]], whole: bool = True) -> Run:
    """A training run with a checkpoint of these rows, and one that was being written when it was stopped."""
    run = run_of("train")
    checkpoint = run.folder(folder) / "train" / f"checkpoint-{rows[-1]['step']}"
    checkpoint.mkdir(parents=True)
    state = json.dumps({"log_history": rows, "global_step": rows[-1]["step"]})
    (checkpoint / "trainer_state.json").write_text(state if whole else state[:20])
    half = checkpoint.with_name("checkpoint-9")
    half.mkdir()
    (half / "trainer_state.json").write_text('{"log_hi')
    end = {"n": 64, "success": 0.5, "success_low": 0.4, "success_high": 0.6, "turns": 3.0}
    (run.folder(folder) / "train" / "stages.json").write_text(json.dumps({"values": {"before": end}}))
    return run


def test_a_stopped_run_shows_what_its_last_whole_checkpoint_logged(tmp_path: Path) -> None:
    run = begun(tmp_path, ROWS)
    found = results.stopped([run, replace(run, stage="not_begun")], tmp_path)
    assert list(found) == ["game/stage"]
    told = found["game/stage"]
    assert (told["updates"], told["success_in_training"]) == (2, [0.25])
    assert told["seconds"] == {"step": 6.0, "rollout": 8.0}  # means over both updates, and over the rollout
    assert told["ends"] == {"before": {"n": 64, "success": 0.5, "success_low": 0.4, "success_high": 0.6}}
    (run.folder(tmp_path) / "result.json").touch()
    assert results.stopped([run], tmp_path) == {}


def test_a_run_without_a_whole_checkpoint_shows_nothing(tmp_path: Path) -> None:
    assert results.stopped([begun(tmp_path, ROWS, whole=False)], tmp_path) == {}


def test_the_table_of_stopped_runs_has_both_ends(root: Path) -> None:
    content = json.loads((root / "benchmarks" / "results" / "webshop_gpu.json").read_text(encoding="utf-8"))
    end = {"n": 64, "success": 0.5, "success_low": 0.4, "success_high": 0.6}
    told = {"updates": 3, "ends": {"before": end}, "success_in_training": [0.1, 0.3, 0.5]}
    table = pretrained_tables({**content, "stopped": {"webshop/x": told}})
    assert "| webshop/x | 3 | 0.50 [0.40, 0.60] |  | 0.20 → 0.40 |" in table
    assert "the first 64 of the held-out start states" in table


def test_episodes_on_the_real_products_are_read_with_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the name in its place was asked for, and a run of hours ended with an error after its evaluation."""
    monkeypatch.setenv("RAGEN_WEBSHOP_DATA", str(tmp_path / "products"))
    folder = tmp_path / "sampled"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({"environments": {"label": {}}}))
    options = {"env": [f"ragen/WebShop-v0:{json.dumps({'catalog': DATA})}"]}
    ((name, described, episodes),) = results._played(Step("sampled", "eval", options, evaluations=("other",)), folder)
    assert (name, episodes) == ("other", [])
    assert json.loads(described.partition(":")[2]) == {"catalog": str(tmp_path / "products")}
