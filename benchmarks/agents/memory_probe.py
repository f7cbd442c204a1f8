"""The most memory that a training command holds, in a process of its own: ``python -m agents.memory_probe OPTIONS``.

Writes ``memory.json`` beside the run's summary: the peak of the resident memory in MiB, what the libraries alone held
before, and with a GPU the peak of what torch allocated there.
"""

import json
import sys
from pathlib import Path

import torch
from learning.measure import peak_memory, reset_peak_memory
from measuring.processes import resident

from ragen_trl.cli import training_run  # noqa: F401  (the libraries, before anything is measured)
from ragen_trl.cli.main import main
from ragen_trl.system.atomic import write_atomically


def probe(options: list[str]) -> int:
    """Run ``train`` with these options and write what it held; returns its exit status."""
    reset_peak_memory()
    libraries = resident("self")
    status = main(["train", *options])
    if status == 0:
        found = {"peak_mib": peak_memory(), "libraries_mib": libraries}
        if torch.cuda.is_available():
            found["gpu_peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        folder = Path(options[options.index("--output_dir") + 1])
        write_atomically(folder / "memory.json", json.dumps(found))
    return status


if __name__ == "__main__":
    sys.exit(probe(sys.argv[1:]))
