"""What is gained by computing what rows begin with in common once: updates, a critic, a warm start, and memory.

    python benchmarks/shared_prefixes.py            # an hour on one core; wants `make smollm2`
    python benchmarks/shared_prefixes.py --gpu      # SmolLM2 only, 128 trajectories; written to runs/
    python benchmarks/shared_prefixes.py --smoke    # the embedded model only, some seconds, written to runs/ only

Every measurement is a process of its own with one thread (``measuring/prefixes.py``); with and without sharing take
turns. Seconds are CPU time of that thread, so that other processes of the machine hardly matter. Writes
``results/shared_prefixes.json``.
"""

import argparse
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from measuring.prefixes import Case
from measuring.processes import answer_of_module
from records.results import write_result

HERE = Path(__file__).parent
SMOLLM2 = "models/SmolLM2-135M-Instruct"
EMBEDDED = [
    Case("update", None, rows=128, batch_size=128),
    Case("critic", None, rows=128, batch_size=128),
    Case("warm start", None, rows=160, batch_size=16),
]
PRETRAINED = [
    Case("update", SMOLLM2, rank=32),
    Case("update", SMOLLM2, rank=32, checkpointing=True),
    Case("update", SMOLLM2),
    Case("critic", SMOLLM2, rank=32),
    Case("warm start", SMOLLM2),
]
ON_GPU = [
    Case("update", SMOLLM2, rows=128, batch_size=32, gpu=True),
    Case("update", SMOLLM2, rank=32, rows=128, batch_size=32, gpu=True),
]


def main() -> None:
    """Measure every case with and without sharing, in turns, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="a round of updates on a GPU")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each case, with and without sharing")
    parser.add_argument("--model", default=SMOLLM2, help=f"folder of the pretrained model (default: {SMOLLM2})")
    parser.add_argument("--output", type=Path, help="default: the committed result, of the CPU; otherwise in runs/")
    asked = parser.parse_args()
    pretrained = [replace(case, model=asked.model) for case in (ON_GPU if asked.gpu else PRETRAINED)]
    cases = pretrained if asked.gpu else [*EMBEDDED, *pretrained]
    rounds, repeats = (1, 3) if asked.gpu else (asked.rounds, 2)
    elsewhere = Path(f"runs/benchmark-shared-prefixes-{'smoke' if asked.smoke else 'gpu'}.json")
    output = asked.output or (elsewhere if asked.smoke or asked.gpu else HERE / "results" / "shared_prefixes.json")
    if asked.smoke:
        cases, rounds, repeats = [Case("update", None), Case("warm start", None, rows=16)], 1, 1
    elif not Path(asked.model).is_dir():
        parser.error(f"there is no {asked.model}; `make smollm2` makes it, --model names another folder")
    found: dict[tuple[Case, bool], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for case in cases:
            for shares in (False, True):
                found.setdefault((case, shares), []).append(measured(case, shares, repeats))
                print(case, "shared" if shares else "apart", found[case, shares][-1], flush=True)
        rows = [row_of(case, found[case, False], found[case, True]) for case in cases]
        command = f"python benchmarks/shared_prefixes.py{' --gpu' * asked.gpu} --rounds {rounds}"
        write_result(output, command, rows=rows)


def measured(case: Case, shares: bool, repeats: int) -> dict[str, Any]:
    """One measurement in a process of its own, with one thread."""
    task = json.dumps({"case": asdict(case), "shares": shares, "repeats": repeats})
    answer: dict[str, Any] = answer_of_module("measuring.prefixes", task)
    return answer


def row_of(case: Case, apart: list[dict[str, Any]], shared: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over all repetitions of all processes, and the ratios of with sharing over without."""
    figures: dict[str, Any] = {"case": {**asdict(case), "model": case.model and Path(case.model).name}}
    for name, results in (("apart", apart), ("shared", shared)):
        seconds = [value for result in results for value in result["seconds"]]
        peak = statistics.median(result["peak_mib"] for result in results)
        figures[name] = {"seconds": statistics.median(seconds), "peak_mib": peak, "repetitions": len(seconds)}
    for name in ("seconds", "peak_mib"):
        figures[f"{name}_ratio"] = figures["shared"][name] / figures["apart"][name]
    return figures


if __name__ == "__main__":
    main()
