"""How a run of a pretrained model is carried out: step by step, once, and on from where it was killed."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from agents import carry_out as carrying
from agents import runs

from tests.support.project import ROOT

MODEL = "models/SmolLM2-135M-Instruct"


def run_of(*writes: str) -> runs.Run:
    steps = tuple(runs.Step(name, "eval", {"output_dir": f"{runs.HERE}/{name}"}) for name in writes)
    return runs.Run("game", "stage", 0, steps, 1, "model")


class Fake:
    """Does a command by writing its result, and stops like a killed process where it is told to."""

    def __init__(self, stop_at: str = "") -> None:
        self.done: list[str] = []
        self._stop_at = stop_at

    def __call__(self, words: Sequence[str], log: IO[str]) -> int:
        folder = Path(words[words.index("--output_dir") + 1])
        self.done.append(folder.name)
        if folder.name == self._stop_at:
            raise KeyboardInterrupt
        folder.mkdir(parents=True, exist_ok=True)
        played = {"episodes": int(words[words.index("--episodes") + 1])} if "--episodes" in words else {}
        (folder / "summary.json").write_text(json.dumps({"environments": {}, **played}))
        return 0


def test_a_run_goes_on_after_the_last_step_that_was_finished(tmp_path: Path) -> None:
    run, killed, again = run_of("first", "second", "third"), Fake(stop_at="second"), Fake()
    with pytest.raises(KeyboardInterrupt):
        carrying.carry_out(run, tmp_path, MODEL, killed)
    assert (killed.done, carrying.state(run, tmp_path)) == (["first", "second"], "begun, done: first")
    result = carrying.carry_out(run, tmp_path, MODEL, again)
    assert again.done == ["second", "third"]
    assert (result["name"], carrying.state(run, tmp_path)) == ("game/stage-seed0", "finished")
    assert carrying.carry_out(run, tmp_path, MODEL, Fake(stop_at="first")) == result  # nothing is done again


def test_more_episodes_are_added_to_those_that_were_played(tmp_path: Path) -> None:
    """The folder, and the time by which runs that began with its model name it, stay; and training is not repeated."""
    few = replace(run_of("first", "second"), steps=tuple(map(with_episodes, run_of("first", "second").steps)))
    more = replace(few, steps=(few.steps[0], with_episodes(few.steps[1], 500)))
    assert few.digest == more.digest and few.settings != more.settings
    assert few.digest != replace(few, steps=few.steps[:1]).digest
    before = carrying.carry_out(few, tmp_path, MODEL, Fake())
    assert (carrying.state(few, tmp_path), carrying.state(more, tmp_path)) == ("finished", "begun, done: first")
    fake = Fake()
    result = carrying.carry_out(more, tmp_path, MODEL, fake)
    assert fake.done == ["second"] and carrying.state(more, tmp_path) == "finished"
    assert (result["created"], result["settings"]) == (before["created"], json.loads(json.dumps(more.settings)))
    assert carrying.carry_out(few, tmp_path, MODEL, Fake(stop_at="first")) == result  # more than enough


def with_episodes(step: runs.Step, count: int = 256) -> runs.Step:
    return replace(step, options={**step.options, "episodes": count})


def test_what_a_run_needs_is_done_first(tmp_path: Path) -> None:
    needed, fake = replace(run_of("model"), stage="warm_start", seed=None), Fake()
    result = carrying.carry_out(replace(run_of("train"), needs=needed), tmp_path, MODEL, fake)
    assert fake.done == ["model", "train"]
    assert result["began_with"] == carrying.carry_out(needed, tmp_path, MODEL, fake)["created"]


def waits_for(needed: runs.Run, folder: Path, fake: Fake, meanwhile: Callable[[], object]) -> dict[str, Any]:
    """The result of a run that waits for another process to do ``needed``, which ends ``meanwhile``."""
    needed.folder(folder).mkdir(parents=True)
    run = replace(run_of("train"), needs=needed)
    with (needed.folder(folder) / "lock").open("w") as lock, ThreadPoolExecutor() as others:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = others.submit(carrying.carry_out, run, folder, MODEL, fake)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.2)
        assert fake.done == []
        meanwhile()
        fcntl.flock(lock, fcntl.LOCK_UN)
        return waiting.result(timeout=60)


def test_a_run_waits_for_what_it_needs_while_another_process_does_it(tmp_path: Path) -> None:
    needed, fake = replace(run_of("model"), stage="warm_start", seed=None), Fake()
    assert waits_for(needed, tmp_path, fake, lambda: None)["name"] == "game/stage-seed0"
    assert fake.done == ["model", "train"]


def test_who_waited_for_a_run_takes_its_result(tmp_path: Path) -> None:
    """Regression: it was written a second time, and runs of the first result named one that was no longer there."""
    needed, fake = replace(run_of("model"), stage="warm_start", seed=None), Fake()
    result = carrying.result_file(needed, tmp_path)
    found = waits_for(needed, tmp_path, fake, lambda: result.write_text(json.dumps({"created": "before"})))
    assert found["began_with"] == "before"
    assert fake.done == ["train"]


def test_training_begins_before_the_evaluations_of_what_it_begins_with(tmp_path: Path) -> None:
    """On a GPU both go on at once; the result waits for both, since it names the warm start's."""
    needed, fake = replace(run_of("model", "sampled"), stage="warm_start", seed=None), Fake()
    result = carrying.carry_out(replace(run_of("train"), needs=needed), tmp_path, MODEL, fake)
    assert fake.done == ["model", "train", "sampled"]
    assert result["began_with"] == carrying.carry_out(needed, tmp_path, MODEL, fake)["created"]


def test_a_command_that_fails_names_its_log(tmp_path: Path) -> None:
    run = run_of("first")
    with pytest.raises(carrying.StepFailed, match=r"game/stage-seed0: eval ended with status 2; see .*log\.txt"):
        carrying.carry_out(run, tmp_path, MODEL, lambda words, log: 2)
    assert not carrying.result_file(run, tmp_path).exists()


def test_two_processes_do_not_do_one_run(tmp_path: Path) -> None:
    run = run_of("first")
    run.folder(tmp_path).mkdir(parents=True)
    with (run.folder(tmp_path) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(carrying.AlreadyRunning, match="being done by another process"):
            carrying.carry_out(run, tmp_path, MODEL, Fake())
    carrying.carry_out(run, tmp_path, MODEL, Fake())


PARENT = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from agents import carry_out, runs
sys.executable = {child!r}
step = runs.Step("first", "eval", {{"output_dir": "{{here}}/first"}})
carry_out.carry_out(runs.Run("game", "stage", 0, (step,), 1, "model"), Path({root!r}), "m")
"""


def test_the_command_of_a_killed_process_keeps_its_run_to_itself(tmp_path: Path) -> None:
    """After ``kill -9`` of the script its command lives on, and a second one would write to the same folder."""
    child, pid_file = tmp_path / "child", tmp_path / "pid"
    child.write_text(f"#!/bin/sh\necho $$ > {pid_file}.part\nmv {pid_file}.part {pid_file}\nexec sleep 60\n")
    child.chmod(0o755)
    paths = [str(ROOT / "benchmarks"), str(ROOT)]
    code = PARENT.format(paths=paths, child=str(child), root=str(tmp_path))
    parent = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 60
    while not pid_file.exists() and time.monotonic() < until:
        time.sleep(0.02)
    command = int(pid_file.read_text())
    try:
        parent.kill()
        parent.wait()
        with pytest.raises(carrying.AlreadyRunning):
            carrying.carry_out(run_of("first"), tmp_path, "m", Fake())
    finally:
        os.kill(command, signal.SIGKILL)
    while True:  # the lock is free as soon as the process is gone
        try:
            assert carrying.carry_out(run_of("first"), tmp_path, "m", Fake())["name"] == "game/stage-seed0"
            break
        except carrying.AlreadyRunning:
            assert time.monotonic() < until
            time.sleep(0.02)
