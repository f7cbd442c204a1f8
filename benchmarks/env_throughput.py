"""How fast do the environments step and reset, next to others?

    python benchmarks/env_throughput.py            # ours, and the peers that are installed; some minutes
    python benchmarks/env_throughput.py --install  # first makes a virtual environment for each peer under runs/
    python benchmarks/env_throughput.py --smoke    # one short round of ours, written to runs/ only

Peers live in virtual environments of their own, because they want old packages: ``runs/peer-gym-sokoban`` (with
``gym-sokoban==0.0.6``) and ``runs/peer-gem`` (with ``gem-llm==0.1.0``). One that is missing is skipped, and the result
says why. Every workload (``measuring/env_workloads.py``) runs in a process of its own, on one core. The rounds take
turns, so that a slower minute of a shared machine slows all alike. Writes ``results/env_throughput.json`` with every
round.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from measuring.env_workloads import WORKLOADS
from measuring.processes import answer_of, install_peer, median_and_rounds, missing_peer, peer_python
from records.results import write_result

HERE = Path(__file__).parent
PEERS = {
    "gym-sokoban": ["gym-sokoban==0.0.6", "numpy<2"],
    "gem": ["gem-llm==0.1.0"],
}


def main() -> int:
    """Run all rounds; exit status 1 if a workload of ours fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each workload in each round")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "env_throughput.json")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds, options.output = 1, 0.02, Path("runs/benchmark-env-throughput-smoke.json")
    for peer, packages in PEERS.items() if options.install else ():
        install_peer(peer, packages)
    left_out = "left out of the smoke run" if options.smoke else None
    skipped = {peer: reason for peer in PEERS if (reason := left_out or missing_peer(peer))}
    names = [name for name in WORKLOADS if peer_of(name) not in skipped]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for done in range(options.rounds):
        print(f"round {done + 1} of {options.rounds}", flush=True)
        for name in names:
            rounds[name].append(measure(name, options.seconds, options.cpu))
    results = {name: summary(measured) for name, measured in rounds.items()}
    for name, result in results.items():
        print(f"{name:30} {result['median']:>12,.0f} per second")
    for peer, reason in skipped.items():
        print(f"skipped: {peer}: {reason}")
    write_result(options.output, "python benchmarks/env_throughput.py", peers=PEERS, skipped=skipped, results=results)
    return 0


def peer_of(workload: str) -> str | None:
    """Whose workload it is; None for what runs here, Gymnasium's own environments included."""
    return next((peer for peer in PEERS if workload.startswith(peer)), None)


def measure(workload: str, seconds: float, cpu: int) -> dict[str, float]:
    """One round of one workload."""
    peer = peer_of(workload)
    python = sys.executable if peer is None else str(peer_python(peer))
    script = str(HERE / "measuring" / "env_workloads.py")
    found: dict[str, float] = answer_of([python, script, workload, str(seconds), str(cpu)], PYTHONWARNINGS="ignore")
    return found


def summary(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Operations a second: the median of the rounds, and each of them."""
    return median_and_rounds([found["count"] / found["seconds"] for found in rounds])


if __name__ == "__main__":
    sys.exit(main())
