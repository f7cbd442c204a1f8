"""Draw any logged measure of finished runs: a panel a measure and task, a line a run and a mean a variant.

    python benchmarks/plot.py runs/frozenlake-starpo-s-seed* --measure entropy grad_norm     # of `ragen_trl train`
    python benchmarks/plot.py benchmarks/results/collapse.json --measure entropy --against trajectories --smooth 9
    python benchmarks/plot.py benchmarks/results/collapse.json --task sokoban --measure in_group_std held_out

A run folder of ``ragen_trl train`` has ``history.json``; a question's JSON has the evaluations and, where they are
kept, the logs. A name that no run logged is answered with the list of those that were.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claims import add_logs, is_question
from findings.looks import MOST
from findings.measures import Run
from findings.series_pictures import AXES, by_task, draw_measures
from records.committed import every_log

from ragen_trl.errors import UserError
from ragen_trl.reporting.run_folder import read_run


class NoRunsError(UserError):
    """A path holds no finished runs."""


def main() -> int:
    """Draw; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or results of questions")
    parser.add_argument("--measure", nargs="+", required=True, help="names as logged, with or without their prefix")
    parser.add_argument("--task", help="of a question with several; without it, all of them")
    parser.add_argument("--variants", nargs="*", help="of a question; without it, all of them")
    parser.add_argument("--against", choices=AXES, default="step", help="horizontal axis; run folders: step")
    parser.add_argument("--smooth", type=_points, default=1, metavar="N", help="a running mean over N points")
    parser.add_argument("--output", type=Path, help="the PNG; without it, runs/plots/MEASURES.png")
    options = parser.parse_args()
    target = options.output or Path("runs") / "plots" / f"{'-'.join(options.measure).replace('/', '_')}.png"
    try:
        families = read_families(options.runs, options.task, options.variants)
        title = f"{_names(options.runs)}: {', '.join(options.measure)}"
        empty = draw_measures(options.measure, families, target, title, options.against, options.smooth)
    except (UserError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if empty:
        print(f"logged none of these: {', '.join(empty)}", file=sys.stderr)
    print(f"written: {target}")
    return 0


def _points(text: str) -> int:
    """A number of points, at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of points: give 1 or more")
    return int(text)


def _names(paths: Sequence[Path]) -> str:
    """The questions or run folders, the first three of them."""
    names = [path.name.removesuffix(".json") for path in paths]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def read_families(paths: Sequence[Path], task: str | None, variants: Sequence[str] | None) -> dict[str, list[Run]]:
    """The runs by label: a run folder by its name, runs of a question by task and variant; a second one with its path.

    Raises:
        NoRunsError: If a path is neither, or the question has no such runs.
    """
    found: dict[str, list[Run]] = {}
    for path in paths:
        if not path.exists():
            raise NoRunsError(f"{path} does not exist")
        if inside := [] if (path / "summary.json").exists() else sorted(path.glob("*/summary.json")):
            there = " ".join(str(each.parent) for each in inside[:MOST])
            raise NoRunsError(f"{path} is a folder of run folders; name those: {there}")
        if path.is_dir():
            families: dict[str, list[Run]] = {path.name: [{"history": read_run(path).history}]}
        elif path.suffix == ".json":
            families = of_question(path, task, variants)
        else:
            raise NoRunsError(f"{path} is neither a run folder nor a JSON of results")
        found |= {f"{label} ({path})" if label in found else label: runs for label, runs in families.items()}
    return found


def of_question(path: Path, task: str | None, variants: Sequence[str] | None) -> dict[str, list[Run]]:
    """The runs in a question's JSON, by task and label of the variant."""
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not is_question(content):
        raise NoRunsError(f"{path} is not the result of a training question, such as benchmarks/results/collapse.json")
    add_logs(content, every_log(path.parent))
    chosen = {
        f"{name}: {variant['label']}": variant["runs"]
        for name, each in content["tasks"].items()
        for key, variant in each["variants"].items()
        if task in (None, name) and (variants is None or key in variants)
    }
    crowded = any(len(its) > MOST for its in by_task(chosen).values())
    if not chosen or crowded:
        names = [f"{name} ({', '.join(each['variants'])})" for name, each in content["tasks"].items()]
        what = f"more than {MOST} variants in a task; choose with --variants" if crowded else "no such task or variant"
        raise NoRunsError(f"{path} has {what}; it has {'; '.join(names)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
