"""Scripts on two processes, as a user launches them."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.project import ROOT

SAID = "said.txt"


def on_two_processes(module: str, folder: Path, timeout: float = 240, processes: int = 2) -> None:
    """Run a module with a folder as its argument on two processes; an assertion fails with what they said.

    Processes that wait for each other run into the time limit.
    """
    started = start(module, folder, processes)
    try:
        status = started.wait(timeout)
    finally:
        kill(started)
    assert status == 0, (folder / SAID).read_text(encoding="utf-8")[-3000:]


def start(module: str, folder: Path, processes: int = 2) -> subprocess.Popen[bytes]:
    """Begin such a launch; what they say is in the folder."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    with (folder / SAID).open("wb") as said:
        return subprocess.Popen(
            [*launch, "-m", module, str(folder)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def kill(started: subprocess.Popen[bytes]) -> None:
    """End all processes of a launch at once, as ``kill -9`` does, and wait until none is left.

    torch puts each of its workers into a session of its own, so that a signal to the launcher's group spares them: they
    would train on beside the run that goes on in their folder.
    """
    processes: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        launcher = psutil.Process(started.pid)
        processes = [launcher, *launcher.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    started.wait()
    psutil.wait_procs(processes)
