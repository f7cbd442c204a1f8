"""From single results to what a question's JSON holds: pure, except that it reads files."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from learning.spec import Question, Task, Variant, training_options
from learning.store import baselines_file, finished, run_file
from learning.summary import Run, equal_success, summary
from ragen_trl.system.provenance import provenance

_SHOWN = ("seed", "commit", "curve", "final", "signs")


def result(
    question: Question, task: str, variant: str, seed: int, options: argparse.Namespace
) -> Run | None:
    """The finished run with these settings, if there is one."""
    return finished(run_file(options.folder, question.tasks[task], variant, question.variants[variant], seed))


def results(question: Question, task: str, options: argparse.Namespace) -> dict[str, list[Run]]:
    """All finished runs of a task by variant, in the order of their seeds, for the variants that have any."""
    found = {
        variant: [
            run
            for seed in sorted({*question.tasks[task].seeds, *(options.seeds or ())})
            if (run := result(question, task, variant, seed, options)) is not None
        ]
        for variant in question.tasks[task].variants
    }
    return {variant: runs for variant, runs in found.items() if runs}


def missing(question: Question, options: argparse.Namespace) -> list[str]:
    """What the command asked for and is not there."""
    return [
        f"{task}/{variant}/seed{seed}"
        for task in options.tasks
        for variant in question.tasks[task].variants
        if variant in options.variants
        for seed in options.seeds or question.tasks[task].seeds
        if result(question, task, variant, seed, options) is None
    ]


def collect(question: Question, options: argparse.Namespace) -> dict[str, Any]:
    """The content of the question's JSON."""
    content: dict[str, Any] = {
        **provenance(),
        "command": " ".join([f"python benchmarks/{question.name}.py", *sys.argv[1:]]),
        "question": {name: getattr(question, name) for name in ("name", "title", "curves")},
        "tasks": {},
    }
    for name, task in question.tasks.items():
        prepared = finished(baselines_file(options.folder, task))
        runs = results(question, name, options)
        if prepared is None or not runs:
            continue
        content["tasks"][name] = {
            "prepared": prepared,
            "trajectories": task.trajectories,
            "level": task.level,
            "variants": {
                variant: collected(task, variant, question.variants[variant], found) for variant, found in runs.items()
            },
            "astar_po_to_starpo": compared(runs),
        }
    every = each_run(content)
    content["seeds"] = sorted({run["seed"] for run in every})
    content["commits"] = sorted({run["commit"] for run in every})
    spent = [run["final"]["cpu_seconds"] for run in every]
    content["cpu_minutes"] = sum(spent) / 60
    return content


def collected(task: Task, name: str, variant: Variant, runs: Sequence[Run]) -> dict[str, Any]:
    """A variant's runs without what each update logged, and their summary."""
    return {
        "label": variant.label,
        "options": training_options(task, name, variant),
        "summary": summary(runs, task.level),
        "runs": [
            {key: value for key, value in {"seed": run["settings"]["seed"], **run}.items() if key in _SHOWN}
            for run in runs
        ],
    }


def compared(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any] | None:
    """A*-PO at equal success with the group form of StarPO, where both were run."""
    return equal_success(runs["astar_po"], runs["starpo"]) if {"astar_po", "starpo"} <= runs.keys() else None


def each_run(content: Mapping[str, Any]) -> list[Run]:
    """All runs in the collected content."""
    variants = [variant for task in content["tasks"].values() for variant in task["variants"].values()]
    return [run for variant in variants for run in variant["runs"]]
