"""Processes that begin with the heavy libraries imported, and with nothing of this project.

Importing TRL takes most of the time of a small program. A server, started with the first such process, does it once
for all processes of a run of the tests; each of them is forked from it. So what they import of this project is new.
"""

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.project import ROOT

_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PREPARED = multiprocessing.get_context(_METHOD)
"""The processes; where a system cannot fork, they begin with nothing imported."""
PREPARED.set_forkserver_preload(["trl.trainer.grpo_trainer", "peft"])


def run(target: Callable[..., Any], *arguments: Any, folder: Path, seconds: float) -> tuple[int | None, str]:
    """Calls a function as if it were a program that was started in a folder, with this checkout to import from.

    Args:
        target: The function; a module holds it.
        *arguments: What it takes.
        folder: Where it works.
        seconds: How long it may take before it is killed.

    Returns:
        The exit status, negative if it was killed, and what it and its children wrote.
    """
    with tempfile.TemporaryDirectory() as beside:
        said = Path(beside, "said")
        process = PREPARED.Process(target=_begin, args=(target, arguments, folder, said, dict(os.environ)))
        process.start()
        process.join(seconds)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.join()
        return process.exitcode, said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""


def _begin(
    target: Callable[..., Any], arguments: tuple[Any, ...], folder: Path, said: Path, environment: dict[str, str]
) -> None:
    os.setsid()
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    gc.freeze()  # each collection would search what the libraries hold
    os.environ.clear()  # the fork server's is that of its start
    os.environ.update(environment)
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    os.environ.update(PYTHONPATH=str(ROOT), PATH=os.pathsep.join(paths))
    # The tests' own additions, such as `benchmarks`, are no part of a program.
    mine = [path for path in sys.path if Path(path).is_relative_to(ROOT) and not Path(path).is_relative_to(sys.prefix)]
    others = [path for path in sys.path if path not in mine]
    sys.path[:] = ["", str(ROOT), *others]
    sys.argv[:] = ["-c"]
    multiprocessing.set_start_method(None, force=True)  # type: ignore[arg-type]  # the default, as in a program
    try:
        status = target(*arguments)
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out; a program does not
    sys.exit(status)
