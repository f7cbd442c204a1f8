"""Modules that several connected processes run, as a launcher starts them."""

import importlib
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.prepared import run
from tests.support.project import ROOT


def on_two_processes(module: str, folder: Path, timeout: float = 240, processes: int = 2) -> None:
    """Let two processes call ``main`` of a module with a folder; an assertion fails with what they said.

    They are forked from the server that has the heavy libraries imported. Processes that wait for each other run into
    the time limit.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def launched(rank: int) -> tuple[int | None, str]:
        return run(_begin, module, folder, rank, processes, port, folder=ROOT, seconds=timeout)

    with ThreadPoolExecutor(processes) as pool:
        ended = list(pool.map(launched, range(processes)))
    assert [status for status, _ in ended] == [0] * processes, "\n".join(said[-3000:] for _, said in ended)


def _begin(module: str, folder: Path, rank: int, processes: int, port: int) -> None:
    """What a launcher tells a process, and then the module."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in told.items()})
    importlib.import_module(module).main(folder)
