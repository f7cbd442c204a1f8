"""Which variant learns, how fast, and which one keeps what it learnt? Side by side, from one warm start a task.

    python benchmarks/learning_curves.py                  # at most 90 minutes on two cores; goes on where it stopped
    python benchmarks/learning_curves.py --tasks frozenlake --variants starpo_s astar_po --seeds 0
    python benchmarks/learning_curves.py --smoke          # two rollouts of everything, written to runs/ only

Every run (task, variant, seed) is a process of its own with one thread; its result in ``runs/learning_curves`` is used
again as long as its settings (``learning/tasks.py``) stay; a run that was killed begins anew. Options choose what is
run. ``results/learning_curves.json`` and a picture a task are written from all results that are there, each with the
commit that it was made with.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from learning.plots import draw
from learning.run import finished, prepare_settings, run_settings
from learning.summary import Run, equal_success, summary
from learning.tasks import TASKS, VARIANTS, Task, small, training_options

from ragen_trl.atomic import write_atomically
from ragen_trl.provenance import provenance

HERE = Path(__file__).parent
SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        task: Name of the task.
        variants: Runs of these variants; without any, the warm start alone.
        seed: Of the runs.
    """

    task: str
    variants: tuple[str, ...] = ()
    seed: int = 0

    @property
    def name(self) -> str:
        """For progress and for the log's file."""
        if len(self.variants) == 1:
            return f"{self.task}/{self.variants[0]}/seed{self.seed}"
        return f"{self.task}/all" if self.variants else f"{self.task}/warm_start"


@dataclass
class Progress:
    """Prints a line when a job ends: how long it took, and how long the others may take.

    Attributes:
        total: How many jobs there are.
        jobs: How many run at a time.
    """

    total: int
    jobs: int
    _spent: list[float] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def report(self, job: Job, seconds: float, outcome: str) -> None:
        """Called by the threads that wait for the processes."""
        with self._lock:
            self._spent.append(seconds)
            mean = sum(self._spent) / len(self._spent)
            left = (self.total - len(self._spent)) * mean / self.jobs / 60
            print(
                f"[{len(self._spent)}/{self.total}] {job.name}: {outcome}, {seconds:.0f} s; about {left:.0f} min left",
                flush=True,
            )


def main() -> int:
    """Run what is missing, collect what is there."""
    options = parse()
    tasks = {name: small(TASKS[name]) if options.smoke else TASKS[name] for name in options.tasks}
    variants = {
        name: [variant for variant in task.variants if variant in options.variants] for name, task in tasks.items()
    }
    failed = run_all(tasks, variants, options)
    everything = {name: small(task) if options.smoke else task for name, task in TASKS.items()}
    content = collect(everything, options)
    write_atomically(options.output / "learning_curves.json", json.dumps(content, indent=1))
    print(f"written: {options.output / 'learning_curves.json'}")
    for name, task in everything.items():
        runs = results(name, task, options)
        if runs:
            target = options.output / f"learning_curves_{name}.png"
            draw(picture_title(content["tasks"][name]), labelled(runs), baselines(content["tasks"][name]), target)
            print(f"written: {target}")
    missing = [
        f"{name}/{variant}/seed{seed}"
        for name, task in tasks.items()
        for variant in variants[name]
        for seed in options.seeds or task.seeds
        if result(name, task, variant, seed, options) is None
    ]
    if missing:
        print(f"missing: {', '.join(missing)}; the same command goes on with them", file=sys.stderr)
    return int(bool(failed or (missing and not options.smoke)))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", help="of all tasks; three, each task its own")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, with one thread each")
    parser.add_argument("--budget-minutes", type=float, default=90.0, help="no run begins after that")
    parser.add_argument("--smoke", action="store_true", help="two rollouts of everything with a seed, in runs/ only")
    parser.add_argument("--folder", type=Path, help="of the single results; runs/learning_curves")
    parser.add_argument("--output", type=Path, help="of the JSON and the pictures; benchmarks/results")
    options = parser.parse_args()
    if options.smoke:
        options.seeds = [0]
    default = Path("runs") / ("learning_curves_smoke" if options.smoke else "learning_curves")
    options.folder = options.folder or default
    options.output = options.output or (options.folder if options.smoke else HERE / "results")
    return options


def run_all(
    tasks: Mapping[str, Task], variants: Mapping[str, Sequence[str]], options: argparse.Namespace
) -> list[str]:
    """Carry out what has no result yet: warm starts first, then runs, the first seed of everything before the second.

    Returns:
        Names of the jobs that failed.
    """
    first = [
        Job(name)
        for name, task in tasks.items()
        if finished(options.folder / name / "warm_start.json", prepare_settings(task)) is None
    ]
    seeds = [(at, name, seed) for name in tasks for at, seed in enumerate(options.seeds or tasks[name].seeds)]
    runs = [
        Job(name, (variant,), seed)
        for _, name, seed in sorted(seeds, key=lambda each: each[0])  # one seed of everything before the next one
        for variant in variants[name]
        if result(name, tasks[name], variant, seed, options) is None
    ]
    if options.smoke:  # most of so short a run is its process's start, so all of a task share one
        first, runs = [], [Job(name, tuple(variants[name])) for name in dict.fromkeys(job.task for job in runs)]
    progress = Progress(len(first) + len(runs), options.jobs)
    deadline = time.monotonic() + 60 * options.budget_minutes
    failed: list[str] = []
    for jobs in (first, runs):
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                outcomes = list(pool.map(lambda job: carry_out(job, options, deadline, progress), jobs))
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise
        failed += [job.name for job, done in zip(jobs, outcomes, strict=True) if not done]
    return failed


def carry_out(job: Job, options: argparse.Namespace, deadline: float, progress: Progress) -> bool:
    """Run a process and wait for it, unless time is up. Whether nothing went wrong."""
    if time.monotonic() > deadline:
        return True
    command = [sys.executable, "-m", "learning.run", job.task, str(options.folder.resolve()), "--seeds", str(job.seed)]
    command += ["--variants", *job.variants] if job.variants else []
    command += ["--smoke"] if options.smoke else []
    log = options.folder / f"{job.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        surroundings = {**os.environ, **SURROUNDINGS}
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=surroundings, cwd=HERE)
    progress.report(job, time.monotonic() - began, f"failed, see {log}" if done.returncode else outcome(job, options))
    return done.returncode == 0


def outcome(job: Job, options: argparse.Namespace) -> str:
    """A run's success before and after, for the progress line."""
    if len(job.variants) != 1:
        return "done"
    path = options.folder / job.task / job.variants[0] / f"seed{job.seed}.json"
    curve = json.loads(path.read_text(encoding="utf-8"))["curve"]
    return f"success {curve[0]['success']:.2f} -> {curve[-1]['success']:.2f}"


def result(name: str, task: Task, variant: str, seed: int, options: argparse.Namespace) -> Run | None:
    """The finished run with these settings, if there is one."""
    return finished(options.folder / name / variant / f"seed{seed}.json", run_settings(task, variant, seed))


def results(name: str, task: Task, options: argparse.Namespace) -> dict[str, list[Run]]:
    """All finished runs of a task by variant, in the order of their seeds, for the variants that have any."""
    found = {}
    for variant in task.variants:
        files = (options.folder / name / variant).glob("seed*.json")
        seeds = sorted(int(file.stem.removeprefix("seed")) for file in files)
        found[variant] = [run for seed in seeds if (run := result(name, task, variant, seed, options)) is not None]
    return {variant: runs for variant, runs in found.items() if runs}


def collect(tasks: Mapping[str, Task], options: argparse.Namespace) -> dict[str, Any]:
    """The content of ``learning_curves.json``."""
    content: dict[str, Any] = {
        **provenance(),
        "command": " ".join(["python benchmarks/learning_curves.py", *sys.argv[1:]]),
        "tasks": {},
    }
    for name, task in tasks.items():
        prepared = finished(options.folder / name / "warm_start.json", prepare_settings(task))
        runs = results(name, task, options)
        if prepared is None or not runs:
            continue
        content["tasks"][name] = {
            "prepared": prepared,
            "trajectories": task.trajectories,
            "level": task.level,
            "variants": {variant: collected(task, variant, found) for variant, found in runs.items()},
            "astar_po_to_starpo": compared(runs),
        }
    every = [run for task in content["tasks"].values() for run in each_run(task)]
    content["seeds"] = sorted({run["seed"] for run in every})
    content["commits"] = sorted({run["commit"] for run in every})
    spent = [run["final"]["cpu_seconds"] for run in every]
    content["cpu_minutes"] = sum(spent) / 60
    return content


def collected(task: Task, variant: str, runs: Sequence[Run]) -> dict[str, Any]:
    """A variant's runs without what each update logged, and their summary."""
    shown = ("seed", "commit", "curve", "final")
    return {
        "label": VARIANTS[variant].label,
        "options": training_options(task, variant),
        "summary": summary(runs, task.level),
        "runs": [{name: value for name, value in flat(run).items() if name in shown} for run in runs],
    }


def flat(run: Run) -> dict[str, Any]:
    """A run with its seed beside the rest."""
    return {"seed": run["settings"]["seed"], **run}


def compared(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any] | None:
    """A*-PO at equal success with the group form of StarPO, where both were run."""
    return equal_success(runs["astar_po"], runs["starpo"]) if {"astar_po", "starpo"} <= runs.keys() else None


def each_run(task: Mapping[str, Any]) -> list[Run]:
    """All runs of a task in the collected content."""
    return [run for variant in task["variants"].values() for run in variant["runs"]]


def labelled(runs: Mapping[str, Sequence[Run]]) -> dict[str, Sequence[Run]]:
    """Runs by the label of their variant."""
    return {VARIANTS[variant].label: found for variant, found in runs.items()}


def baselines(task: Mapping[str, Any]) -> dict[str, float]:
    """Success of random play and of the oracle in the curve's evaluation."""
    first = next(iter(task["prepared"]["results"].values()))
    return {name: first[name]["success"] for name in ("random", "oracle")}


def picture_title(task: Mapping[str, Any]) -> str:
    """What is seen, in a line."""
    settings = task["prepared"]["settings"]
    evaluation = next(iter(settings["evaluations"]))
    seeds = sorted({run["seed"] for run in each_run(task)})
    return (
        f"{settings['env']}, {evaluation}: n = {settings['episodes']} at temperature 1; mean and range of seeds "
        f"{', '.join(map(str, seeds))}; other variants in grey"
    )


if __name__ == "__main__":
    sys.exit(main())
