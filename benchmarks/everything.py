"""Run every benchmark, one after the other, and say which failed.

    python benchmarks/everything.py --smoke        # seconds to a minute each, written to runs/ only (make bench-smoke)
    python benchmarks/everything.py --questions    # the training questions, at most three hours on two cores
    python benchmarks/everything.py --papers       # those about RAGEN's findings, in order of worth, eleven CPU hours
    python benchmarks/everything.py --papers --list

A script that goes on where it stopped does not repeat what is finished, so that the same command can be stopped and
called again. ``--jobs`` and ``--budget-minutes`` are for the training questions; no run begins after the budget, which
is for all of them together. Left out: comparisons with peers and with recorded data, which need options of their own
(``--install``, ``--data``).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
SHARED = Path("runs") / "experiments-smoke"
# The questions about RAGEN and RAGEN-2; first the two headline claims, then what decides other claims.
PAPERS = (
    *("collapse", "starpo_s", "filtering", "kl_and_clip", "variance_filter", "step_credit", "reasoning"),
    *("responses_per_prompt", "freshness", "actions_per_turn", "generalisation"),
)
# Scripts in this folder that measure nothing.
_NO_BENCHMARK = {"claims", "environment_pages", "everything", "plot", "tables"}
_MARK = "\nQUESTION = "
# How scripts call their short form.
_SHORT = ("--smoke", "--rehearse")


def main(command_line: Sequence[str] | None = None) -> int:
    """Run them; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="each in a minute at most")
    parser.add_argument("--questions", action="store_true", help="only the training questions")
    parser.add_argument("--papers", action="store_true", help="only those about RAGEN's findings, in order of worth")
    parser.add_argument("--list", action="store_true", help="name them and do nothing; papers: with expected minutes")
    parser.add_argument("--jobs", type=int, help="of training questions: processes at a time")
    parser.add_argument("--budget-minutes", type=float, help="of all training questions together")
    options = parser.parse_args(command_line)
    if not (options.smoke or options.questions or options.papers or options.list):
        parser.error("say --smoke, --questions or --papers; all benchmarks at full length take many hours")
    every = papers() if options.papers else benchmarks()
    scripts = [path for path in every if is_question(path) or not options.questions]
    if options.smoke and not options.list:
        shutil.rmtree(SHARED, ignore_errors=True)
    budget = options.budget_minutes
    deadline = None if budget is None else time.monotonic() + 60 * budget
    if options.list and options.papers:
        print("\n".join(lacking(scripts)))
        return 0
    failed = []
    for number, path in enumerate(scripts, start=1):
        print(f"[{number}/{len(scripts)}] {path.name}", flush=True)
        left = deadline and max(0.0, (deadline - time.monotonic()) / 60)
        if not options.list and not succeeds(path, arguments(path, options.smoke, options.jobs, left)):
            failed.append(path.name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def lacking(scripts: Sequence[Path]) -> list[str]:
    """What the questions say is missing, without what is complete, and the sum of it."""
    said, runs, minutes = [], 0, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        listed = list(pool.map(list_missing, scripts))
    for path, done in zip(scripts, listed, strict=True):
        said += [line for line in done.stdout.splitlines() if not re.search(r": (\d+) of \1 runs, ", line)]
        if found := re.search(r": (\d+) runs are missing, about (\d+) CPU min", done.stdout):
            runs, minutes = runs + int(found[1]), minutes + int(found[2])
        else:
            said.append(f"failed: {path.name}")
    return [*said, f"of all: {runs} runs are missing, about {minutes} CPU min; runs that questions share count in each"]


def list_missing(path: Path) -> subprocess.CompletedProcess[str]:
    """What a question says is there and missing."""
    return subprocess.run([sys.executable, str(path), "--list"], stdout=subprocess.PIPE, text=True)


def papers() -> list[Path]:
    """The scripts that ask what RAGEN asks, in order of worth."""
    return [HERE / f"{name}.py" for name in PAPERS]


def benchmarks() -> list[Path]:
    """The scripts that have a short form, training questions first."""
    scripts = sorted(path for path in HERE.glob("*.py") if path.stem not in _NO_BENCHMARK)
    return sorted((path for path in scripts if short_form(path)), key=lambda path: not is_question(path))


def is_question(path: Path) -> bool:
    """Whether it trains, and goes on where it stopped."""
    return _MARK in path.read_text(encoding="utf-8")


def short_form(path: Path) -> str | None:
    """The option that asks for its short form, if it has one."""
    text = path.read_text(encoding="utf-8")
    if is_question(path):
        return "--smoke"
    # Where the parser is in another module, the docstring shows the call.
    return next((option for option in _SHORT if f'"{option}"' in text or f"{path.name} {option}" in text), None)


def arguments(path: Path, smoke: bool, jobs: int | None = None, minutes: float | None = None) -> list[str]:
    """What a script is called with; in a smoke run questions share what they train."""
    short = short_form(path)
    words = [short] if smoke and short else []
    if is_question(path):
        words += ["--folder", str(SHARED)] if smoke else []
        words += [] if jobs is None else ["--jobs", str(jobs)]
        words += [] if minutes is None else ["--budget-minutes", f"{minutes:.1f}"]
    return words


def succeeds(path: Path, arguments: list[str]) -> bool:
    """Run one; its output is shown."""
    began = time.monotonic()
    status = subprocess.run([sys.executable, str(path), *arguments]).returncode
    outcome = "done" if status == 0 else f"exit status {status}"
    print(f"    {outcome} after {time.monotonic() - began:.0f} s", flush=True)
    return status == 0


if __name__ == "__main__":
    sys.exit(main())
