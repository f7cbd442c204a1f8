"""Run every benchmark, one after the other, and say which failed.

    python benchmarks/everything.py --smoke        # seconds to a minute each, written to runs/ only (make bench-smoke)
    python benchmarks/everything.py --questions    # the training questions, at most three hours on two cores
    python benchmarks/everything.py --list

A script that goes on where it stopped does not repeat what is finished. Left out: comparisons with peers and with
recorded data, which need options of their own (``--install``, ``--data``).
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SHARED = Path("runs") / "experiments-smoke"
# Scripts in this folder that measure nothing.
_NO_BENCHMARK = {"claims", "environment_pages", "everything", "plot", "tables"}
_MARK = "\nQUESTION = "
# How scripts call their short form.
_SHORT = ("--smoke", "--rehearse")


def main() -> int:
    """Run them; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="each in a minute at most")
    parser.add_argument("--questions", action="store_true", help="only the training questions")
    parser.add_argument("--list", action="store_true", help="name them and do nothing")
    options = parser.parse_args()
    if not (options.smoke or options.questions or options.list):
        parser.error("say --smoke or --questions; all benchmarks at full length take many hours")
    scripts = [path for path in benchmarks() if is_question(path) or not options.questions]
    if options.smoke and not options.list:
        shutil.rmtree(SHARED, ignore_errors=True)
    failed = []
    for number, path in enumerate(scripts, start=1):
        print(f"[{number}/{len(scripts)}] {path.name}", flush=True)
        if not options.list and not succeeds(path, arguments(path, options.smoke)):
            failed.append(path.name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


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


def arguments(path: Path, smoke: bool) -> list[str]:
    """What a script is called with; in a smoke run questions share what they train."""
    short = short_form(path)
    return [*([short] if smoke and short else []), *(["--folder", str(SHARED)] if smoke and is_question(path) else [])]


def succeeds(path: Path, arguments: list[str]) -> bool:
    """Run one; its output is shown."""
    began = time.monotonic()
    status = subprocess.run([sys.executable, str(path), *arguments]).returncode
    outcome = "done" if status == 0 else f"exit status {status}"
    print(f"    {outcome} after {time.monotonic() - began:.0f} s", flush=True)
    return status == 0


if __name__ == "__main__":
    sys.exit(main())
