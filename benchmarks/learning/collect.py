"""From single runs to what a question's JSON holds: pure, except that it reads files."""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from learning.spec import Question, Task, Variant, training_options
from learning.store import Finished, baselines_file, digest, finished, run_settings
from learning.summary import Run, equal_success, start_of, summary
from ragen_trl.system.provenance import provenance

NOTHING: Mapping[str, Any] = {"tasks": {}}


def results(question: Question, task: str, found: Finished, seeds: Sequence[int]) -> dict[str, list[Run]]:
    """All finished runs of a task by variant, in the order of their seeds, for the variants that have any.

    Args:
        question: What is asked.
        task: Name of the task.
        found: Where finished runs are.
        seeds: Beside those of the task.
    """
    asked = question.tasks[task]
    runs = {
        variant: [
            run
            for seed in sorted({*asked.seeds_of(variant), *seeds})
            if (run := found.run(asked, variant, question.variants[variant], seed)) is not None
        ]
        for variant in asked.variants
    }
    return {variant: each for variant, each in runs.items() if each}


def missing(question: Question, options: argparse.Namespace, found: Finished) -> list[tuple[str, str, int]]:
    """Task, variant and seed of what the command asked for and is not there: the first seed of everything first."""
    wanted = [
        (place, task, variant, seed)
        for task in options.tasks
        for variant in question.tasks[task].variants
        if variant in options.variants
        for place, seed in enumerate(options.seeds or question.tasks[task].seeds_of(variant))
    ]
    return [
        (task, variant, seed)
        for _, task, variant, seed in sorted(wanted, key=lambda each: each[0])
        if found.run(question.tasks[task], variant, question.variants[variant], seed) is None
    ]


def other_starts(question: Question, found: Finished) -> list[str]:
    """A line for each task whose warm start on this machine is none that its committed runs began with.

    Their seeds do not compare with those that are made here (`learning.summary.starts`).
    """
    lines = []
    for name, task in question.tasks.items():
        here, committed = finished(baselines_file(found.folder, task)), _committed(question, name, found)
        if here is None or not committed:
            continue
        measured = next(iter(here["results"].values()))["warm_start"]
        ours = tuple(measured.get(figure) for figure in ("success", "mean_return", "reply_tokens"))
        theirs = {start_of(run): run["commit"][:9] for run in committed}
        if not any(_is_the_same(ours, other) for other in theirs):
            began = " and ".join(f"{_in_words(other)} (commit {commit})" for other, commit in theirs.items())
            lines.append(
                f"{question.name}: {name}: runs begin at {_in_words(ours)} here, committed ones at {began}, with other "
                f"warm starts; they do not compare. Make theirs in {found.folder} with a checkout that made it, or run "
                "both sides of a comparison again"
            )
    return lines


def _is_the_same(ours: tuple[float | None, ...], theirs: tuple[float | None, ...]) -> bool:
    """Whether all figures are, of those that both have; committed ones have six digits."""
    both = [(here, there) for here, there in zip(ours, theirs, strict=True) if here is not None and there is not None]
    return all(math.isclose(here, there, rel_tol=1e-4, abs_tol=1e-5) for here, there in both)


def _in_words(start: tuple[float | None, ...]) -> str:
    success, earned, _ = start
    return f"{success:.3f}" + ("" if earned is None else f" with return {earned:.3f}")


def _committed(question: Question, name: str, found: Finished) -> list[Run]:
    """The committed runs of a task."""
    task, runs = question.tasks[name], found.committed.runs
    digests = (
        digest(run_settings(task, variant, question.variants[variant], seed))
        for variant in task.variants
        for seed in task.seeds_of(variant)
    )
    return [runs[each] for each in digests if each in runs]


def collect(
    question: Question, options: argparse.Namespace, found: Finished, earlier: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """The content of the question's JSON.

    Args:
        question: What is asked.
        options: The command line; seeds that it names are collected, too.
        found: Where finished runs are.
        earlier: The JSON as it was; its runs are collected, whichever seeds they have.
    """
    content: dict[str, Any] = {
        **provenance(),
        "command": " ".join([f"python benchmarks/{question.name}.py", *sys.argv[1:]]),
        "question": {name: getattr(question, name) for name in ("name", "title", "curves")},
        "tasks": {},
    }
    for name, task in question.tasks.items():
        prepared = found.prepared(task)
        before = [run["seed"] for run in each_run({"tasks": {name: earlier["tasks"].get(name, {"variants": {}})}})]
        runs = results(question, name, found, [*(options.seeds or ()), *before])
        if prepared is None or not runs:
            continue
        content["tasks"][name] = {
            "prepared": prepared,
            "trajectories": task.trajectories,
            "level": task.level,
            "variants": {
                variant: collected(task, variant, question.variants[variant], each) for variant, each in runs.items()
            },
            "astar_po_to_starpo": compared(runs),
        }
    every = each_run(content)
    content["seeds"] = sorted({run["seed"] for run in every})
    content["commits"] = sorted({run["commit"] for run in every})
    spent = [run["final"]["cpu_seconds"] for run in every]
    content["cpu_minutes"] = sum(spent) / 60
    return content


def logged(question: Question, content: Mapping[str, Any], found: Finished) -> dict[str, Any]:
    """What is kept of the logs of the runs in the collected content, by digest; old runs have none."""
    log = {}
    for task, asked in content["tasks"].items():
        for name, variant in asked["variants"].items():
            for run in variant["runs"]:
                measured = found.measures(question.tasks[task], name, question.variants[name], run["seed"])
                if measured is not None:
                    log[run["digest"]] = measured
    return log


def dropped(question: Question, earlier: Mapping[str, Any]) -> list[str]:
    """The runs of an earlier JSON whose settings the question does not ask for any more."""
    names = []
    for task, content in earlier["tasks"].items():
        for variant, runs in content["variants"].items():
            asked = task in question.tasks and variant in question.tasks[task].variants
            for run in runs["runs"]:
                settings = (question.tasks[task], variant, question.variants[variant], run["seed"]) if asked else None
                if settings is None or run.get("digest") != digest(run_settings(*settings)):
                    names.append(f"{task}/{variant}/seed{run['seed']}")
    return names


def collected(task: Task, name: str, variant: Variant, runs: Sequence[Run]) -> dict[str, Any]:
    """A variant's runs and their summary."""
    return {
        "label": variant.label,
        "options": training_options(task, name, variant),
        "summary": summary(runs, task.level),
        "runs": list(runs),
    }


def compared(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any] | None:
    """A*-PO at equal success with the group form of StarPO, where both were run."""
    return equal_success(runs["astar_po"], runs["starpo"]) if {"astar_po", "starpo"} <= runs.keys() else None


def each_run(content: Mapping[str, Any]) -> list[Run]:
    """All runs in the collected content."""
    variants = [variant for task in content["tasks"].values() for variant in task["variants"].values()]
    return [run for variant in variants for run in variant["runs"]]
