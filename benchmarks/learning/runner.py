"""Ask a question: run what has no result yet, collect what is there, draw it.

    python benchmarks/QUESTION.py                # goes on where it stopped
    python benchmarks/QUESTION.py --tasks frozenlake --variants starpo_s --seeds 0
    python benchmarks/QUESTION.py --list         # what is there, what is missing, and its minutes
    python benchmarks/QUESTION.py --smoke        # two rollouts of everything, written to runs/ only
    python benchmarks/QUESTION.py --paper --model Qwen/Qwen2.5-0.5B-Instruct      # at the paper's scale, on a GPU

Every run (task, variant, seed) is a process of its own with one thread. Its result in ``runs/experiments`` is used
again as long as its settings stay the same; a run that was killed starts again. Options choose what is run.
``results/QUESTION.json`` and the pictures are written from all results that are there, each with the commit that it was
made with. What that JSON, or another question's, already holds counts as there, whichever machine made it.
``results/logged/QUESTION.json`` has what the warning signs read of the logs.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from records.committed import LOGGED, as_text, kept_logs, logged_elsewhere, read
from records.locks import locked

from learning.collect import NOTHING, collect, dropped, logged, missing, other_starts
from learning.plots import draw_question
from learning.spec import Question, expected_minutes, lesson_minutes
from learning.store import Finished, baselines_file, finished, model_folder
from ragen_trl.system.atomic import write_atomically

HERE = Path(__file__).parent.parent
SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        tasks: Names of the tasks.
        variants: Runs of these variants; without any, only the warm starts.
        seed: Of the runs.
    """

    tasks: tuple[str, ...]
    variants: tuple[str, ...] = ()
    seed: int = 0

    @property
    def name(self) -> str:
        """For progress and for the log's file."""
        task = self.tasks[0] if len(self.tasks) == 1 else f"{self.tasks[0]}-and-{len(self.tasks) - 1}-more"
        if len(self.variants) == 1:
            return f"{task}/{self.variants[0]}/seed{self.seed}"
        return f"{task}/all" if self.variants else f"{task}/warm_start"


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


def ask(question: Question, command_line: Sequence[str] | None = None) -> int:
    """Run what is missing, collect and draw what is there; returns the exit status."""
    options = parse(question, command_line)
    question = question.scaled(options.smoke, options.model)
    name = f"{question.name}_paper" if options.paper else question.name
    output = options.output / f"{name}.json"
    found = Finished(options.folder, read(options.output))
    if options.list:
        print("\n".join(listed(question, options, found)))
        return 0
    failed: list[str] = []
    with ExitStack() as held:
        if options.smoke or missing(question, options, found):
            try:
                lock = held.enter_context(locked(options.folder / "lock"))
            except BlockingIOError:
                text = f"another process trains in {options.folder}; wait for it, stop it, or name another --folder"
                print(text, file=sys.stderr)
                return 1
            if options.smoke and options.fresh:
                _empty(options.folder)  # a smoke run that does nothing shows nothing
            failed = run_all(question, options, found, lock)
        else:
            print("nothing to train: no run is missing")
    earlier = json.loads(output.read_text(encoding="utf-8")) if output.exists() else NOTHING
    content = collect(question, options, found, earlier)
    if changed := dropped(question, earlier):
        print(f"left out, as their settings have changed: {', '.join(changed)}", file=sys.stderr)
    write_atomically(output, as_text(content))
    log = kept_logs(options.output, output.name) | logged(question, content, found)
    others = logged_elsewhere(options.output, output.name)
    log = {digest: each for digest, each in log.items() if digest not in others}
    write_atomically(options.output / LOGGED / output.name, as_text(log, depth=1))
    print(f"written: {output}")
    for path in draw_question(content, options.output, name):
        print(f"written: {path}")
    lacking = [f"{task}/{variant}/seed{seed}" for task, variant, seed in missing(question, options, found)]
    if lacking:
        print(f"missing: {', '.join(lacking)}; the same command goes on with them", file=sys.stderr)
    return int(bool(failed or (lacking and not options.smoke)))


def _empty(folder: Path) -> None:
    """Delete all that earlier calls left in a folder, but its lock, which this one holds."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def listed(question: Question, options: argparse.Namespace, found: Finished) -> list[str]:
    """A line for each task and variant, and the sum of what is missing; see `missing_minutes`."""
    lacking = Counter((task, variant) for task, variant, _ in missing(question, options, found))
    lines = []
    for name in options.tasks:
        task = question.tasks[name]
        for variant in (each for each in task.variants if each in options.variants):
            seeds = len(options.seeds or task.seeds_of(variant))
            each, there = expected_minutes(task, variant, question.variants[variant]), seeds - lacking[name, variant]
            lines.append(f"{question.name}: {name}, {variant}: {there} of {seeds} runs, {each:.1f} CPU min each")
    total = missing_minutes(question, options, found)
    lines += other_starts(question, found)
    return [*lines, f"{question.name}: {sum(lacking.values())} runs are missing, about {total:.0f} CPU min in all"]


def missing_minutes(question: Question, options: argparse.Namespace, found: Finished) -> float:
    """Expected CPU minutes of the runs that are missing, and of the warm starts that this machine lacks for them."""
    runs = missing(question, options, found)
    tasks = {name: question.tasks[name] for name, _, _ in runs}
    models = {model_folder(options.folder, task): task for task in tasks.values()}
    lessons = sum(lesson_minutes(task) for folder, task in models.items() if task.model is None and not folder.exists())
    each = (expected_minutes(tasks[name], variant, question.variants[variant]) for name, variant, _ in runs)
    return lessons + sum(each)


def parse(question: Question, command_line: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser(
        description=f"{question.title}\n\nWhat is published, and what came out: docs/experiments/{question.name}.md",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", nargs="+", choices=question.tasks, default=list(question.tasks))
    parser.add_argument("--variants", nargs="+", choices=question.variants, default=list(question.variants))
    parser.add_argument("--seeds", type=int, nargs="+", help="of all tasks; three, each task its own")
    parser.add_argument("--list", action="store_true", help="say what is there and what is missing, and do nothing")
    parser.add_argument("--jobs", type=int, help="processes at a time (default: 2 of one thread each; 1 with --paper)")
    parser.add_argument("--budget-minutes", type=float, help="no run begins after them (default: 90; --paper: none)")
    parser.add_argument("--smoke", action="store_true", help="two rollouts of everything with a seed, in runs/ only")
    parser.add_argument("--paper", action="store_true", help="RAGEN's scale: needs --model, a GPU, and days")
    parser.add_argument("--model", help="folder or hub id of a pretrained model, for --paper")
    parser.add_argument("--folder", type=Path, help="of the single results (default: runs/experiments)")
    parser.add_argument("--output", type=Path, help="of the JSON and the pictures (default: benchmarks/results)")
    options = parser.parse_args(command_line)
    if options.paper != (options.model is not None):
        parser.error("--paper and --model NAME go together: the embedded model is too small for the paper's settings")
    if options.smoke:
        options.seeds = [0]
    options.jobs = options.jobs or (1 if options.paper else 2)
    if options.budget_minutes is None:
        options.budget_minutes = math.inf if options.paper else 90.0
    default = Path("runs") / ("experiments-smoke" if options.smoke else "experiments")
    options.fresh = options.folder is None
    options.folder = (options.folder or default).resolve()
    options.output = options.output or (options.folder if options.smoke else HERE / "results")
    return options


def run_all(question: Question, options: argparse.Namespace, found: Finished, lock: int) -> list[str]:
    """Carry out what has no result yet: warm starts first, then runs, the first seed of everything before the second.

    Args:
        question: What is asked.
        options: The command line.
        found: Where finished runs are.
        lock: Of the folder; all processes inherit it.

    Returns:
        Names of the jobs that failed.
    """
    runs = [Job((task,), (variant,), seed) for task, variant, seed in missing(question, options, found)]
    unprepared = [
        name
        for name in dict.fromkeys(job.tasks[0] for job in runs)
        if finished(baselines_file(options.folder, question.tasks[name])) is None
    ]
    # Tasks may share a model: the first of them teaches it, and the others wait.
    folders = {model_folder(options.folder, question.tasks[name]): name for name in reversed(unprepared)}
    teachers = list(folders.values())
    first = [Job((name,)) for name in teachers]
    second = [Job((name,)) for name in unprepared if name not in teachers]
    if options.smoke:  # most of so short a run is its process's start, so that few share many
        names = list(dict.fromkeys(job.tasks[0] for job in runs))
        shares = [tuple(names[start :: options.jobs]) for start in range(options.jobs)]
        first, second, runs = [], [], [Job(share, tuple(options.variants)) for share in shares if share]
    logs = options.folder / "logs" / question.name
    print(f"{len(first) + len(second)} warm starts and {len(runs)} processes of runs to do; logs: {logs}", flush=True)
    progress = Progress(len(first) + len(second) + len(runs), options.jobs)
    deadline = time.monotonic() + 60 * options.budget_minutes
    failed: list[str] = []
    for jobs in (first, second, runs):
        if jobs is runs:  # the warm starts are there
            for line in other_starts(question, found):
                print(line, file=sys.stderr, flush=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                carried = pool.map(lambda job: carry_out(question, job, options, found, deadline, progress, lock), jobs)
                outcomes = list(carried)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise
        failed += [job.name for job, done in zip(jobs, outcomes, strict=True) if not done]
    return failed


def carry_out(
    question: Question,
    job: Job,
    options: argparse.Namespace,
    found: Finished,
    deadline: float,
    progress: Progress,
    lock: int,
) -> bool:
    """Run a process, which inherits the lock, and wait for it, unless time is up. Whether nothing went wrong."""
    if time.monotonic() > deadline:
        return True
    command = [sys.executable, "-m", "learning.run", question.name, str(options.folder), "--seeds", str(job.seed)]
    command += ["--tasks", *job.tasks]
    command += ["--variants", *job.variants] if job.variants else []
    command += ["--smoke"] if options.smoke else []
    command += ["--model", options.model] if options.paper else []
    log = options.folder / "logs" / question.name / f"{job.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        offline = {} if options.paper else {"HF_HUB_OFFLINE": "1"}
        surroundings = {**os.environ, **SURROUNDINGS, **offline, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=surroundings, pass_fds=[lock])
    outcome = f"failed, see {log}" if done.returncode else success_of(question, job, found)
    progress.report(job, time.monotonic() - began, outcome)
    return done.returncode == 0


def success_of(question: Question, job: Job, found: Finished) -> str:
    """A run's success before and after, for the progress line."""
    if len(job.variants) != 1:
        return "done"
    task, variant = question.tasks[job.tasks[0]], job.variants[0]
    run = found.run(task, variant, question.variants[variant], job.seed)
    if run is None:
        return "no result"
    return f"success {run['curve'][0]['success']:.2f} -> {run['curve'][-1]['success']:.2f}"
