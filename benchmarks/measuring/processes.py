"""Processes of their own, with one thread, and virtual environments for peers that want other packages.

Only the standard library is imported here: what measures memory must not load more than it measures.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent.parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def answer_of(command: Sequence[str], **variables: str) -> Any:
    """What a process prints as its last line, which is JSON.

    Args:
        command: Program and arguments.
        variables: Of its environment, over those of this process and over one thread.

    Raises:
        SystemExit: If it fails, with what it wrote to its error stream.
    """
    surroundings = {**os.environ, **ONE_THREAD, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def answer_of_module(module: str, *words: str, **variables: str) -> Any:
    """What ``python -m module words`` prints as its last line; it can import what this process can.

    Args:
        module: Under ``benchmarks/``.
        words: Its arguments.
        variables: As `answer_of` takes them.

    Raises:
        SystemExit: If it fails, with what it wrote to its error stream.
    """
    path = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent), *sys.path])
    return answer_of([sys.executable, "-W", "ignore", "-m", module, *words], PYTHONPATH=path, **variables)


def resident(process: int | str) -> float:
    """Resident memory of a process in MiB, by its id or ``"self"``; Linux only."""
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[0]) / 1024


def memory_of(process: int | str) -> dict[str, float]:
    """Resident memory of a process in MiB, and the part that is in no file, as a mapped search index is; Linux only."""
    status = Path(f"/proc/{process}/status").read_text()
    sizes = {name: int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024 for name in ("VmRSS", "RssAnon")}
    return {"rss_mib": sizes["VmRSS"], "anonymous_mib": sizes["RssAnon"]}


def peer_python(name: str) -> Path:
    """The interpreter of a peer's virtual environment, whether or not it is there."""
    return Path("runs") / f"peer-{name}" / "bin" / "python"


def install_peer(name: str, packages: Sequence[str]) -> None:
    """Make the virtual environment of a peer, unless it is there, and install its packages."""
    python = peer_python(name)
    if not python.exists():
        print(f"installing {name}", flush=True)
        venv.create(python.parent.parent, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)


def missing_peer(name: str) -> str | None:
    """Why a peer cannot be measured; None if it can."""
    python = peer_python(name)
    return None if python.exists() else f"{python.parent.parent} is missing; --install makes it"


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median over the rounds of each figure."""
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def median_and_rounds(rounds: Sequence[float]) -> dict[str, Any]:
    """The median of the rounds, and each of them."""
    return {"median": statistics.median(rounds), "rounds": list(rounds)}
