"""Is the memory that `--dry-run` estimates the memory that a rollout and an update take?

    python benchmarks/rollout_memory.py            # ten minutes on the CPU, a model of 10 million parameters
    python benchmarks/rollout_memory.py --smoke    # two small cases, written to runs/ only
    python benchmarks/rollout_memory.py --estimate # estimate again what was measured, after a change of the arithmetic

Every case is a process of its own (``measuring/memory.py``), with one thread. Freed memory goes back to the system at
once (``MALLOC_MMAP_THRESHOLD_``), so that the resident memory is that of the tensors. Writes
``results/rollout_memory.json``.
"""

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from measuring.memory import SHAPE, Case, estimate
from measuring.processes import answer_of_module
from records.results import write_result

from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

HERE = Path(__file__).parent
ROLLOUT: dict[str, Any] = {"phase": "rollout", "rows": 16, "tokens": 1024}
UPDATE: dict[str, Any] = {"phase": "update", "rows": 4, "tokens": 512}
CASES = [
    Case(**ROLLOUT),
    Case(**ROLLOUT, at_once=6),
    Case(**ROLLOUT, mixed=True),
    Case(**ROLLOUT, key_value_heads=1),
    Case(**ROLLOUT, words=64_000),
    Case(**UPDATE),
    Case(**UPDATE, checkpointing=True),
    Case(**UPDATE, rank=16),
    Case(**UPDATE, rank=16, checkpointing=True),
    Case(**UPDATE, critic=True),
    Case(**UPDATE, critic=True, rank=16),
]
SMOKE = [Case("rollout", rows=4, tokens=200), Case("update", rows=4, tokens=80)]


def main() -> None:
    """Measure every case and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--estimate", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "rollout_memory.json")
    options = parser.parse_args()
    if options.smoke:
        options.output = Path("runs/benchmark-rollout-memory-smoke.json")
    if options.estimate:
        estimate_again(options.output)
        return
    rows: list[dict[str, Any]] = []
    for case in SMOKE if options.smoke else CASES:
        rows.append(measured(case))
        print(case, f"{rows[-1]['peak_mib']:.0f} MiB, estimated {rows[-1]['estimate_mib']:.0f}", flush=True)
    command = "python benchmarks/rollout_memory.py" + " --smoke" * options.smoke
    write_result(options.output, command, shape=SHAPE, rows=rows)


def estimate_again(path: Path) -> None:
    """Put the present estimates beside the old measurements."""
    known = json.loads(path.read_text(encoding="utf-8"))
    for row in known["rows"]:
        case = Case(**{field.name: row[field.name] for field in fields(Case)})
        row |= estimate(case, row["longest"], row["prompt"])
    write_atomically(path, json.dumps({**known, "estimated_at": provenance()["commit"]}, indent=1))


def measured(case: Case) -> dict[str, Any]:
    """One case in a process of its own."""
    asked = json.dumps(asdict(case))
    found: dict[str, Any] = answer_of_module("measuring.memory", asked, MALLOC_MMAP_THRESHOLD_="65536")
    return found


if __name__ == "__main__":
    main()
