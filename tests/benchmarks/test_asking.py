"""How a question is asked: it goes on where it stopped, beside other machines, other questions and other processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import learning_curves
import pytest
from learning import collect, runner, store
from records import measures
from records.committed import Committed, kept, read
from records.locks import locked

from tests.support.finished_runs import run
from tests.support.project import ROOT

FAKE = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent.parent
with (here / "calls").open("a") as file:
    file.write(" ".join(sys.argv[3:]) + "\\n")
name = "warm_start" if "--variants" not in sys.argv else sys.argv[-1]
if name in (here / "broken").read_text().split():
    sys.exit("broken")
target = pathlib.Path(sys.argv[2]) / (here / f"{name}.path").read_text()
target.parent.mkdir(parents=True, exist_ok=True)
target.write_text((here / f"{name}.json").read_text())
"""
ASKED = "--seeds 0 --tasks frozenlake"
STARPO, ASTAR_PO = f"{ASKED} --variants starpo", f"{ASKED} --variants astar_po"
Call = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Asks for two runs, whose processes write made-up results; returns the exit status and what they were called."""
    question, here = learning_curves.QUESTION, tmp_path / "here"
    task = question.tasks["frozenlake"]
    (here / "learning").mkdir(parents=True)
    (here / "learning" / "__init__.py").touch()
    (here / "learning" / "run.py").write_text(FAKE)
    rates = {"held out": {name: {"success": 0.5} for name in ("random", "oracle", "warm_start", "warm_start_greedy")}}
    paths = {"warm_start": store.baselines_file(Path(), task)}
    prepared = {"settings": store.prepare_settings(task), "commit": "abcdef0123", "results": rates}
    (here / "warm_start.json").write_text(json.dumps(prepared))
    for variant in ("starpo", "astar_po"):
        history = [{"step": 1, "success": 0.123456, "loss": 3.0, "entropy": 2.0}, {"step": 1, "train_runtime": 1.0}]
        finished = {**run([0.1, 0.9], [0, 100]), "history": history}
        (here / f"{variant}.json").write_text(json.dumps(finished))
        paths[variant] = store.run_file(Path(), task, variant, question.variants[variant], 0)
    for name, path in paths.items():
        (here / f"{name}.path").write_text(str(path))
    monkeypatch.setattr(runner, "HERE", here)

    def ask(*variants: str, broken: str = "", folder: str = "runs") -> tuple[int, list[str]]:
        (here / "broken").write_text(broken)
        (here / "calls").write_text("")
        words = ["--tasks", "frozenlake", "--variants", *variants, "--seeds", "0", "--jobs", "1"]
        status = runner.ask(question, [*words, "--folder", str(tmp_path / folder), "--output", str(tmp_path / "out")])
        return status, (here / "calls").read_text().splitlines()

    return ask


def written(tmp_path: Path) -> dict[str, Any]:
    """The task in the JSON that was written."""
    content = json.loads((tmp_path / "out" / "learning_curves.json").read_text(encoding="utf-8"))
    task: dict[str, Any] = content["tasks"]["frozenlake"]
    return task


def test_a_question_repeats_what_failed_and_what_has_other_settings_and_nothing_else(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("starpo", "astar_po")
    assert call(*both, broken="astar_po") == (1, [ASKED, STARPO, ASTAR_PO])
    assert "missing: frozenlake/astar_po/seed0" in capsys.readouterr().err
    assert call(*both) == (0, [ASTAR_PO])
    assert call(*both) == (0, [])
    variants = written(tmp_path)["variants"]
    assert {name: variant["summary"]["success"]["mean"] for name, variant in variants.items()} == {
        "starpo": 0.9,
        "astar_po": 0.9,
    }
    for name in ("learning_curves", "learning_curves_frozenlake"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_in_which_another_process_trains_is_left_alone(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: where only the first call was killed, its run and the next call's wrote one result each."""
    lock = tmp_path / "runs" / "lock"
    child = "import time; print('here', flush=True); time.sleep(60)"
    code = f"""
import subprocess, sys
from pathlib import Path
from records.locks import locked
with locked(Path({str(lock)!r})) as held:
    subprocess.run([sys.executable, "-c", {child!r}], pass_fds=[held])
"""
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")}
    first = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=surroundings, start_new_session=True
    )
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == b"here\n"
        first.kill()
        first.wait()
        assert call("starpo") == (1, [])
        assert f"another process trains in {tmp_path / 'runs'}; wait for it" in capsys.readouterr().err
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.stdout.close()
    while lock_is_held(lock):
        time.sleep(0.01)
    assert call("starpo") == (0, [ASKED, STARPO])


def lock_is_held(path: Path) -> bool:
    try:
        with locked(path):
            return False
    except BlockingIOError:
        return True


def test_runs_of_another_warm_start_are_announced(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a machine with a warm start of its own trained seeds that nothing compares, and did not say so."""

    def here(success: float, **others: float) -> None:
        """What the next warm start is at; the run begins at 0.1, whatever the committed baselines say."""
        made = json.loads((tmp_path / "here" / "warm_start.json").read_text())
        made["results"]["held out"]["warm_start"] |= {"success": success, **others}
        (tmp_path / "here" / "warm_start.json").write_text(json.dumps(made))

    assert call("starpo", folder="first") == (0, [ASKED, STARPO])
    here(0.1)
    assert call("starpo", "astar_po", folder="second") == (0, [ASKED, ASTAR_PO])
    assert "runs begin at" not in capsys.readouterr().err
    (tmp_path / "out" / "learning_curves.json").unlink()
    assert call("starpo", folder="first") == (0, [])
    here(0.4)
    assert call("starpo", "astar_po", folder="third") == (0, [ASKED, ASTAR_PO])
    assert "frozenlake: runs begin at 0.400 here, committed ones at 0.100 (commit " in capsys.readouterr().err


def test_a_second_machine_goes_on_with_what_is_missing_and_keeps_what_the_first_one_made(
    call: Call, tmp_path: Path
) -> None:
    """Regression: the JSON held only the runs of the machine that wrote it, and machines come and go."""
    assert call("starpo", folder="first") == (0, [ASKED, STARPO])
    assert call("starpo", "astar_po", folder="second") == (0, [ASKED, ASTAR_PO])
    assert call("starpo", "astar_po", folder="third") == (0, [])
    assert not (tmp_path / "third" / "models").exists()
    variants = written(tmp_path)["variants"]
    found = {name: [run["digest"] for run in variant["runs"]] for name, variant in variants.items()}
    paths = {name: Path((tmp_path / "here" / f"{name}.path").read_text()) for name in ("starpo", "astar_po")}
    assert found == {name: [path.stem] for name, path in paths.items()}
    logged = json.loads((tmp_path / "out" / "logged" / "learning_curves.json").read_text(encoding="utf-8"))
    assert set(logged) == {path.stem for path in paths.values()}
    log = measures.rows(logged[paths["starpo"].stem])
    assert log == [{"step": 1, "success": 0.1235, "entropy": 2.0}]


def test_a_committed_run_counts_before_another_result_of_the_same_settings_on_this_machine(tmp_path: Path) -> None:
    """Regression: a question that was asked again on a second machine showed other results than those it shares."""
    curves = learning_curves.QUESTION
    asked = (curves.tasks["frozenlake"], "starpo", curves.variants["starpo"], 0)
    path = store.run_file(tmp_path, *asked)
    path.parent.mkdir(parents=True)
    here = {**run([0.1, 0.9], [0, 100]), "history": [{"step": 1, "entropy": 2.0}]}
    path.write_text(json.dumps(here))
    alone = store.Finished(tmp_path, Committed())
    assert alone.run(*asked) == kept(here, path.stem) and alone.measures(*asked) is not None
    there = {**kept(here, path.stem), "commit": "other"}
    assert store.Finished(tmp_path, Committed({path.stem: there})).run(*asked) == there
    # The log of a run with another curve is not that of the committed one.
    different = {**there, "curve": run([0.1, 0.8], [0, 100])["curve"]}
    both = store.Finished(tmp_path, Committed({path.stem: different}, measures={path.stem: {"series": []}}))
    assert both.run(*asked) == different and both.measures(*asked) == {"series": []}


def test_a_run_whose_settings_have_changed_is_made_again_and_said_to_be_left_out(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("starpo", folder="first")[0] == 0
    path = tmp_path / "out" / "learning_curves.json"
    path.write_text(path.read_text().replace(Path((tmp_path / "here" / "starpo.path").read_text()).stem, "0" * 16))
    assert call("starpo", folder="second") == (0, [ASKED, STARPO])
    assert "left out, as their settings have changed: frozenlake/starpo/seed0" in capsys.readouterr().err
    assert "0" * 16 not in path.read_text()


def test_the_log_of_a_run_that_another_question_shares_stays_when_the_first_one_drops_it(
    call: Call, tmp_path: Path
) -> None:
    """Regression: a file of logs held its own question's runs only, and the log of a shared run was in one file."""
    assert call("starpo")[0] == 0
    out, digest = tmp_path / "out", Path((tmp_path / "here" / "starpo.path").read_text()).stem
    other = out / "other.json"
    other.write_text((out / "learning_curves.json").read_text())
    question = learning_curves.QUESTION
    fewer = replace(question, tasks={"frozenlake": replace(question.tasks["frozenlake"], variants=("astar_po",))})
    words = ["--folder", str(tmp_path / "a"), "--output", str(out), "--budget-minutes", "0", "--variants", "astar_po"]
    assert runner.ask(fewer, words) == 1 and digest in read(out).measures
    other.unlink()
    assert runner.ask(fewer, words) == 1 and digest not in read(out).measures


def test_a_warm_start_of_equal_success_is_told_by_its_other_figures() -> None:
    """Regression: two models of Sokoban have 0.4375, and pay 4.1250 and 4.1281."""
    assert collect._is_the_same((0.4375, 4.125, 17.875), (0.4375, 4.125, 17.875001))
    assert not collect._is_the_same((0.4375, 4.125, 17.875), (0.4375, 4.1281, 17.781))
    assert collect._is_the_same((0.4375, 4.125, 17.875), (0.4375, None, None))  # an older result
