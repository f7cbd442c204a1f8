"""What every script shares: where a result comes from, how it is written, and measurements in processes of their own.

A result is JSON with command, commit, versions and machine. Its ``table`` (columns, rows, note) is what `tables.py`
pastes into pages.
"""

import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

_found = find_spec("ragen_trl")
if _found is None or Path(str(_found.origin)).resolve().parent != HERE.parent / "ragen_trl":
    raise ImportError(f"these scripts would measure another ragen_trl; pip install -e {HERE.parent}, or set PYTHONPATH")


def write(path: Path, command: str, /, **content: Any) -> None:
    """Write a result with its origin, whole or not at all.

    Args:
        path: A JSON file; its folder is made.
        command: That measures it again.
        content: What was measured.
    """
    from ragen_trl.system.atomic import write_atomically  # loads torch, which measured processes must not
    from ragen_trl.system.provenance import provenance

    write_atomically(path, json.dumps({**provenance(), "command": command, **content}, indent=1) + "\n")
    print(f"written: {path}")


def place(name: str, smoke: bool, out: Path | None) -> Path:
    """Where a script writes: the committed result, or a file in ``runs/`` with ``--smoke``."""
    return out or (Path("runs") / f"smoke-{name}.json" if smoke else RESULTS / f"{name}.json")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str) -> dict[str, Any]:
    """A table for pages; numbers are written as they are."""
    return {"columns": list(columns), "rows": [[str(cell) for cell in row] for row in rows], "note": note}


def interval(result: Mapping[str, Any], digits: int = 2) -> str:
    """A success rate with its 95 % interval, ``0.80 [0.76, 0.83]``."""
    rate, low, high = (f"{result[name]:.{digits}f}" for name in ("success", "success_low", "success_high"))
    return f"{rate} [{low}, {high}]"


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the rounds' ratios: rounds take turns, so a slow minute of the machine slows both sides."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def answer_of(command: Sequence[str], **variables: str) -> Any:
    """What a process prints as its last line, which is JSON; it has one thread.

    Raises:
        SystemExit: If it fails, with what it wrote to its error stream.
    """
    path = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    surroundings = {**os.environ, **ONE_THREAD, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def memory_of(process: int | str = "self") -> dict[str, float]:
    """Resident memory of a process in MiB, its peak, and the part that is in no file; Linux only."""
    status = Path(f"/proc/{process}/status").read_text()
    sizes = {name: int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024 for name in ("VmRSS", "VmHWM", "RssAnon")}
    return {"rss_mib": sizes["VmRSS"], "peak_mib": sizes["VmHWM"], "anonymous_mib": sizes["RssAnon"]}


def reset_peak() -> None:
    """Let the peak of `memory_of` begin again; Linux only."""
    Path("/proc/self/clear_refs").write_text("5")


def sampled(config: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> int:
    """Trajectories that a run has sampled, refills included, from its ``config`` in the summary and its history."""
    updates = config["steps_per_generation"] * config.get("num_iterations", 1) // config["gradient_accumulation_steps"]
    rollouts = math.ceil(max(int(row["step"]) for row in history if "step" in row) / max(1, updates))
    key = "filter/trajectories_sampled"
    return round(statistics.mean(row[key] for row in history if key in row) * rollouts)
