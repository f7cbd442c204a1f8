"""Carries out a run: its steps one after the other, each a process that can be killed and goes on where it stopped.

A step that is finished is not done again. A step that was killed is given to its command again: ``train`` goes on from
its last checkpoint, ``warm-start`` too, and ``eval`` from its last block of episodes. A lock that the step's
process inherits keeps two processes from writing to one folder, also where only the first one's parent was killed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from measuring.real_products import real_folder
from records.locks import locked

from agents.games import BF16
from agents.results import read_json, result_of
from agents.runs import DATA, HERE, MODEL, NEEDED, Run, Step, arguments
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.precision import is_bfloat16_faster

BENCHMARKS = Path(__file__).parent.parent
_PATIENCE = 1.0  # seconds between looks at what another process makes
_QUIET = {"TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}

Execute = Callable[[Sequence[str], IO[str]], int]
"""Does a command (its name, then its options) and writes what it says to a log; returns the exit status."""


class AlreadyRunning(RuntimeError):
    """Another process carries out the run."""


class StepFailed(RuntimeError):
    """A command of a run ended with an error; the message names the log."""


def result_file(run: Run, root: Path) -> Path:
    """What a finished run leaves."""
    return run.folder(root) / "result.json"


def carry_out(
    run: Run,
    root: Path,
    model: str,
    execute: Execute | None = None,
    failures: set[Path] | None = None,
    wait: bool = False,
) -> dict[str, Any]:
    """Do what is missing of a run and of the run that it needs; where another process does that one, wait for it.

    A run begins once the first step of the one that it needs has made a model; that one's evaluations may go on.

    Args:
        run: The run.
        root: Folder of all runs.
        model: Folder or hub id of the pretrained model.
        execute: How a command is done; unset: in a process of its own.
        failures: Where several are carried out at once: steps that failed for one, which others do not try again.
        wait: Whether to wait for who does this run, too; so do those that are carried out at once.

    Returns:
        The content of its ``result.json``.

    Raises:
        AlreadyRunning: If another process does it, and nobody waits.
        StepFailed: If a command fails.
    """
    path = result_file(run, root)
    if not is_finished(run, root):
        if run.needs is not None:
            _make_model(run.needs, root, model, execute, failures)
        with _only_here(run, root, wait or failures is not None) as lock:
            if not is_finished(run, root):  # who held the lock may have finished it
                for step in run.steps:
                    _do(step, run, root, model, execute or partial(in_own_process, lock=lock), failures)
                needed = {} if run.needs is None else carry_out(run.needs, root, model, execute, failures, wait=True)
                found = result_of(run, root, _spent(run, root), needed.get("created"))
                found |= {"bf16": _in_bf16(run, root)} if _asks_for_faster(run) else {}
                if path.exists():  # of fewer episodes; runs that began with its model name it by this time
                    found["created"] = read_json(path)["created"]
                write_atomically(path, json.dumps(found, indent=1))
    result: dict[str, Any] = read_json(path)
    return result


def _make_model(run: Run, root: Path, model: str, execute: Execute | None, failures: set[Path] | None) -> None:
    """Do the first step of a run, or wait until another process has done it."""
    if run.needs is not None:
        _make_model(run.needs, root, model, execute, failures)
    first = run.steps[0]
    while not (is_finished(run, root) or _is_done(first, run, root)):
        try:
            with _only_here(run, root, wait=False) as lock:
                _do(first, run, root, model, execute or partial(in_own_process, lock=lock), failures)
        except AlreadyRunning:
            time.sleep(_PATIENCE)


def is_finished(run: Run, root: Path) -> bool:
    """Whether its result is there, and no evaluation has fewer episodes than it is to have now."""
    return result_file(run, root).exists() and not any(_is_too_short(step, run, root) for step in run.steps)


def state(run: Run, root: Path) -> str:
    """``finished``, the steps that are done, or ``not begun``."""
    if is_finished(run, root):
        return "finished"
    done = [step.name for step in run.steps if _is_done(step, run, root)]
    return f"begun, done: {', '.join(done) or 'nothing'}" if run.folder(root).exists() else "not begun"


def in_own_process(words: Sequence[str], log: IO[str], lock: int) -> int:
    """Do a command in a process that holds the lock as long as it lives."""
    module = ["agents.memory_probe"] if words[0] == "memory" else ["ragen_trl", words[0]]
    freed = {"MALLOC_MMAP_THRESHOLD_": "65536"} if words[0] == "memory" else {}  # goes back to the system at once
    paths = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", *module, *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, **_QUIET, **freed, "PYTHONPATH": paths},
        pass_fds=[lock],
    )
    return process.wait()


def _do(step: Step, run: Run, root: Path, model: str, execute: Execute, failures: set[Path] | None) -> None:
    """One step, unless it is done."""
    if _is_done(step, run, root):
        return
    here = run.folder(root) / step.name
    if failures is not None and here in failures:
        raise StepFailed(f"{run.name}: {step.command} failed before; see {run.folder(root) / 'log.txt'}")
    needed = "" if run.needs is None else str(run.needs.folder(root))
    folders = {MODEL: model, HERE: str(run.folder(root)), NEEDED: needed}
    folders |= {DATA: str(real_folder(None))}
    folders |= {BF16: json.dumps(_in_bf16(run, root))} if _asks_for_faster(run) else {}
    words = [step.command, *arguments(step.options, folders)]
    path = run.folder(root) / "log.txt"
    began = time.perf_counter()
    with path.open("a", encoding="utf-8") as log:
        log.write(f"\n$ python -m ragen_trl {' '.join(words)}\n")
        log.flush()
        status = execute(words, log)
    _add_time(run, root, step.name, time.perf_counter() - began)
    if status or not _is_done(step, run, root):
        if failures is not None:
            failures.add(here)
        raise StepFailed(f"{run.name}: {step.command} ended with status {status}; see {path}")


def _asks_for_faster(run: Run) -> bool:
    return any(BF16 in step.options.values() for step in run.steps)


def _in_bf16(run: Run, root: Path) -> bool:
    """Whether bfloat16 is the faster precision: on a GPU, and on some CPUs. Measured once for all steps of a run."""
    import torch

    path = run.folder(root) / "bf16.json"
    if not path.exists():
        faster = torch.accelerator.is_available() or is_bfloat16_faster()
        write_atomically(path, json.dumps(faster))
    return bool(read_json(path))


def _is_done(step: Step, run: Run, root: Path) -> bool:
    """Whether a step has written its file, and an evaluation has played all of its episodes."""
    return (run.folder(root) / step.name / step.writes).exists() and not _is_too_short(step, run, root)


def _is_too_short(step: Step, run: Run, root: Path) -> bool:
    """Whether an evaluation ended with fewer episodes than are asked for now."""
    path, wanted = run.folder(root) / step.name / step.writes, step.options.get("episodes", 0)
    return step.command == "eval" and path.exists() and bool(read_json(path).get("episodes", wanted) < wanted)


def _spent(run: Run, root: Path) -> dict[str, float]:
    """Seconds of each step, those of attempts that failed included and those of killed processes left out."""
    path = run.folder(root) / "seconds.json"
    found: dict[str, float] = read_json(path) if path.exists() else {}
    return found


def _add_time(run: Run, root: Path, step: str, seconds: float) -> None:
    spent: Mapping[str, float] = _spent(run, root)
    total = {**spent, step: spent.get(step, 0.0) + seconds}
    write_atomically(run.folder(root) / "seconds.json", json.dumps(total))


@contextmanager
def _only_here(run: Run, root: Path, wait: bool) -> Iterator[int]:
    """Hold the run's lock, if need be once another process has let it go; yields its file descriptor."""
    folder = run.folder(root)
    message = f"{run.name} is being done by another process; see {folder / 'log.txt'}"
    with ExitStack() as held:
        try:
            lock = held.enter_context(locked(folder / "lock", f"waiting: {message}" if wait else ""))
        except BlockingIOError:
            raise AlreadyRunning(message) from None
        yield lock
