"""Scripts on two processes, as a user launches them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.project import ROOT


def on_two_processes(module: str, folder: Path, timeout: float = 240) -> None:
    """Run a module with a folder as its argument on two processes; an assertion fails with what they said.

    Processes that wait for each other run into the time limit.
    """
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, "-m", module, str(folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
