"""Do the warning signs come before success drops, and do they stay silent where it does not?

    python benchmarks/warning_signs.py           # seconds: reads the finished runs of all questions
    python benchmarks/warning_signs.py --smoke   # of the smoke runs

Every run in ``runs/experiments`` that logged what the signs read is judged twice: by its evaluations on held-out start
states (``drop_step``: when did success fall for good?) and by the rows it logged (``find_alerts``). The thresholds were
chosen on runs with seeds 0 to 2 and 10 of Sokoban and the bandit, and 42 to 44 of ToyShop; the seeds of ``collapse.py``
are others, and the table counts them apart.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from everything import benchmarks, is_question
from learning.store import finished, run_file

from ragen_trl.monitoring.alerts import drop_step, find_alerts
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

HERE = Path(__file__).parent
# Seeds of collapse.py, which nobody looked at when thresholds were chosen.
FRESH = (11, 12, 13)


def main() -> None:
    """Judge what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="of the smoke runs, written to runs/ only")
    options = parser.parse_args()
    folder = Path("runs") / ("experiments-smoke" if options.smoke else "experiments")
    found = list(finished_runs(folder.resolve(), options.smoke))
    rows = [{**names, **judged(run)} for names, run in found if "history" in run]
    content = {
        **provenance(),
        "command": " ".join(["python benchmarks/warning_signs.py", *sys.argv[1:]]),
        "seeds": sorted({row["seed"] for row in rows}),
        "not_judged": len(found) - len(rows),
        "runs": rows,
    }
    target = (folder if options.smoke else HERE / "results") / "warning_signs.json"
    write_atomically(target, json.dumps(content, indent=1))
    print(f"{len(rows)} runs; written: {target}")


def finished_runs(folder: Path, smoke: bool) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """What each run is called, and the run; one that several questions share comes once."""
    seen: set[Path] = set()
    for script in filter(is_question, benchmarks()):
        question = import_module(script.stem).QUESTION.scaled(smoke, None)
        for task_name, task in question.tasks.items():
            for name in task.variants:
                for seed in task.seeds:
                    path = run_file(folder, task, name, question.variants[name], seed)
                    run = finished(path)
                    if run is not None and path not in seen:
                        seen.add(path)
                        names = {"question": question.name, "task": task_name, "variant": name}
                        yield {**names, "label": question.variants[name].label}, run


def judged(run: Mapping[str, Any]) -> dict[str, Any]:
    """When success dropped, and which signs fired when."""
    steps, success = ([row[name] for row in run["curve"]] for name in ("step", "success"))
    fired = find_alerts(row for row in run["history"] if "train_runtime" not in row)
    drop = drop_step(steps, success)
    early = [sign.step for sign in fired if sign.rule.kind == "early"]
    seed = run["settings"]["seed"]
    return {
        "seed": seed,
        "calibrated": seed not in FRESH,
        "steps": steps[-1],
        "success": [success[0], max(success), success[-1]],
        "drop": drop,
        "signs": [{"name": sign.rule.name, "kind": sign.rule.kind, "step": sign.step} for sign in fired],
        "first_early": min(early, default=None),
        "lead": drop - min(early) if drop is not None and early else None,
    }


if __name__ == "__main__":
    main()
