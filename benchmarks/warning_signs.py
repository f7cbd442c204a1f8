"""Do the warning signs come before success drops, and do they stay silent where it does not?

    python benchmarks/warning_signs.py                          # seconds: reads the finished runs of all questions
    python benchmarks/warning_signs.py --smoke                  # of the smoke runs
    python benchmarks/warning_signs.py --main_job runs/frozenlake-starpo-s-seed*   # of `make train` as well

Every run of a question whose log was kept, here or in ``results/logged``, is judged twice: by its evaluations on
held-out start states (``drop_step``: when did success fall for good?) and by the rows it logged (``find_alerts``).
The thresholds were chosen on runs with seeds 0 to 2 and 10 of Sokoban and the bandit, and 42 to 44 of ToyShop, and
one was checked on seed 11 of Sokoban. The other seeds of ``collapse.py`` were not looked at, and the table counts
them apart. It counts runs of 18 rollouts and more only, since no early alert can fire before. Runs of the main job
need all their checkpoints, made with ``make train ARGS='--save_steps 20 --save_total_limit 40'``; each is played on
256 held-out start states. The window of 20 rollouts by which a gain is judged was chosen on its seeds 42 and 0.

A run whose log is not here keeps its row of the earlier results, with the commit that judged it, as long as a
question's JSON has that very run.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from everything import benchmarks, is_question
from learning.saved import options_of, saved_policy
from learning.store import Finished, digest, run_settings
from records.committed import read
from records.measures import rounded
from records.measures import rows as logged_rows

from ragen_trl.evaluation.evaluator import evaluate
from ragen_trl.monitoring.alerts import drop_step, find_alerts
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

HERE = Path(__file__).parent
EPISODES = 256
# Seeds of collapse.py and of the main job that nobody looked at when thresholds were chosen; 11 of collapse.py was.
FRESH = (12, 13, 14, 15)
FRESH_MAIN_JOB = (1, 2, 3, 4)
_DIGITS = 5  # of a success rate; committed runs have six
# No early alert fires before: each compares the last 8 rollouts or more with the first ten, or waits for one that does.
FEWEST_ROLLOUTS = 18


def main() -> None:
    """Judge what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="of the smoke runs, written to runs/ only")
    parser.add_argument("--main_job", type=Path, nargs="*", default=[], help="folders of finished runs of make train")
    options = parser.parse_args()
    folder = Path("runs") / ("experiments-smoke" if options.smoke else "experiments")
    target = (folder if options.smoke else HERE / "results") / "warning_signs.json"
    about = provenance()
    committed = read(target.parent)
    there = Finished(folder.resolve(), committed)
    found = [*finished_runs(there, options.smoke), *map(main_job, options.main_job)]
    logged = [(names, run) for names, run in found if "history" in run]
    judged_now = [{**names, **judged(run, names), "commit": about["commit"]} for names, run in logged]
    rows = judged_now
    if not options.smoke and target.exists():
        rows = with_earlier(rows, json.loads(target.read_text(encoding="utf-8")), committed.runs)
    known = {run_name(row) for row in rows}
    content = {
        **about,
        "command": " ".join(["python benchmarks/warning_signs.py", *sys.argv[1:]]),
        "seeds": sorted({row["seed"] for row in rows}),
        "not_judged": sum(run_name({**names, **identity(run)}) not in known for names, run in found),
        "fewest_rollouts": FEWEST_ROLLOUTS,
        "runs": rows,
    }
    write_atomically(target, json.dumps(content, indent=1))
    print(f"{len(judged_now)} runs judged, {len(rows) - len(judged_now)} kept; written: {target}")


def with_earlier(
    rows: list[dict[str, Any]], earlier: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The rows, and those of the earlier results for other runs, if these still are the committed ones.

    Args:
        rows: Judged now.
        earlier: The content of the JSON as it was.
        runs: The committed runs by digest. The main job's are in no question's JSON, and stay.
    """
    known = {run_name(row): row for row in rows}
    before = {
        run_name(row): {"commit": earlier["commit"], **row, "calibrated": is_calibrated(row)}
        for row in earlier["runs"]
        if row["question"] == "train" or is_of(row, runs.get(row.get("digest")))
    }
    return list({**before, **known}.values())


def is_of(row: Mapping[str, Any], run: Mapping[str, Any] | None) -> bool:
    """Whether that run was judged, and not another one with the same settings that it has replaced."""
    return run is not None and rounded(row["success"], _DIGITS) == rounded(first_best_last(run), _DIGITS)


def first_best_last(run: Mapping[str, Any]) -> list[float]:
    """Success at these evaluations."""
    success = [row["success"] for row in run["curve"]]
    return [success[0], max(success), success[-1]]


def identity(run: Mapping[str, Any]) -> dict[str, Any]:
    """The seed, and the digest of the settings of a question's run."""
    return {name: run[name] for name in ("seed", "digest") if name in run}


def run_name(row: Mapping[str, Any]) -> Any:
    """What tells a run from all others: its digest; of the main job, what it is called."""
    return row.get("digest") or tuple(row[key] for key in ("question", "task", "variant", "seed"))


def is_calibrated(row: Mapping[str, Any]) -> bool:
    """Whether runs with this seed were looked at when a threshold was chosen."""
    return row["seed"] not in (FRESH_MAIN_JOB if row["question"] == "train" else FRESH)


def main_job(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """What a run of `make train` is called, and the run: what it logged, and how its checkpoints play.

    The evaluations are kept in the run folder as ``held_out.json``.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    stored = folder / "held_out.json"
    if not stored.exists():
        write_atomically(stored, json.dumps(held_out(folder, summary), indent=1))
    names = {"question": "train", "task": "make train", "variant": "starpo_s", "label": "StarPO-S, group"}
    names["env"] = summary["env"]
    run = {
        "seed": summary["seed"],
        "curve": json.loads(stored.read_text(encoding="utf-8")),
        "history": json.loads((folder / "history.json").read_text(encoding="utf-8")),
    }
    return names, run


def held_out(folder: Path, summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Success of the warm start and of every checkpoint on the same held-out start states."""
    steps = {int(path.name.removeprefix("checkpoint-")): path for path in folder.glob("checkpoint-*")}
    args = options_of(folder)
    rows = []
    for step, model in sorted({0: folder / "warm_start", **steps}.items()):
        result = evaluate(saved_policy(model, summary["env"], args), summary["env"], args, EPISODES)
        rows.append({"step": step, "success": result.success})
        print(f"{folder} step {step}: {result.in_words()}", flush=True)
    return rows


def finished_runs(found: Finished, smoke: bool) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """What each run is called, and the run; one that several questions share comes once."""
    seen: set[str] = set()
    for script in filter(is_question, benchmarks()):
        question = import_module(script.stem).QUESTION.scaled(smoke, None)
        for task_name, task in question.tasks.items():
            for name in task.variants:
                for seed in task.seeds_of(name):
                    settings = (task, name, question.variants[name], seed)
                    run, made_with = found.run(*settings), digest(run_settings(*settings))
                    if run is not None and made_with not in seen:
                        seen.add(made_with)
                        names = {"question": question.name, "task": task_name, "variant": name, "env": task.env}
                        yield {**names, "label": question.variants[name].label}, {**run, **log_of(found, *settings)}


def log_of(found: Finished, *settings: Any) -> dict[str, Any]:
    """The run's log, as far as it was kept."""
    measured = found.measures(*settings)
    return {} if measured is None else {"history": logged_rows(measured)}


def judged(run: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """When success dropped, and which signs fired when."""
    steps, success = ([row[name] for row in run["curve"]] for name in ("step", "success"))
    history = [row for row in run["history"] if "train_runtime" not in row]
    fired = find_alerts(history)
    drop = drop_step(steps, success)
    early = [sign.step for sign in fired if sign.rule.kind == "early"]
    return {
        **identity(run),
        "calibrated": is_calibrated({**names, "seed": run["seed"]}),
        "steps": steps[-1],
        "rollouts": sum("success" in row for row in history),  # logged once a rollout
        "success": first_best_last(run),
        "drop": drop,
        "signs": [{"name": sign.rule.name, "kind": sign.rule.kind, "step": sign.step} for sign in fired],
        "first_early": min(early, default=None),
        "lead": drop - min(early) if drop is not None and early else None,
    }


if __name__ == "__main__":
    main()
