"""Plant small faults one at a time and see whether the tests notice: ``python -m tests.mutants [--only TEXT]``.

Each ``*.toml`` beside this file lists faults: a file, a text that stands in it once, what it is replaced with, and the
tests that should notice. ``--tests CHECKOUT`` runs those of another checkout, so two suites can be compared.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ("ragen_envs", "ragen_trl", "webshop_server")


def mutants(only: str) -> list[dict[str, str]]:
    """All faults whose package, file or reason contains a text."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        found += tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [one for one in found if only in f"{one['file']} {one['why']}"]


def run_tests(copy: Path, tests: list[str]) -> int:
    """Pytest's exit status for some tests of a copy of the checkout; 1 after ten minutes."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=600).returncode
    except subprocess.TimeoutExpired:
        return 1


def main() -> None:
    """Run the faults and print one line each and the totals; exit 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only faults whose file or reason contains this")
    parser.add_argument("--tests", type=Path, default=ROOT, help="another checkout whose tests are run")
    parser.add_argument("--folder", default="", help="run this test folder instead of the tests that a fault names")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    asked = parser.parse_args()
    survivors, totals, results = [], defaultdict(lambda: [0, 0]), []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        copy.mkdir()
        for name in (*PACKAGES, "examples", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        shutil.copytree(asked.tests / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "setup.cfg", "README.md"):
            shutil.copy(ROOT / name, copy / name)
        for one in mutants(asked.only):
            path, package = copy / one["file"], one["file"].partition("/")[0]
            text = path.read_text(encoding="utf-8")
            if text.count(one["old"]) != 1:
                sys.exit(f"{one['file']} has {text.count(one['old'])} times {one['old']!r}; once is needed")
            path.write_text(text.replace(one["old"], one["new"]), encoding="utf-8")
            status = run_tests(copy, [asked.folder] if asked.folder else one["tests"].split())
            path.write_text(text, encoding="utf-8")
            if status not in (0, 1, 2):
                sys.exit(f"pytest ended with status {status} for {one['tests']}: no such tests?")
            totals[package][0] += status != 0
            totals[package][1] += 1
            results.append({"file": one["file"], "why": one["why"], "killed": status != 0})
            print("killed  " if status else "SURVIVED", one["file"], "-", one["why"], flush=True)
            if asked.out:
                asked.out.write_text(json.dumps(results, indent=1))
            if not status:
                survivors.append(one["why"])
    for package, (killed, of) in totals.items():
        print(f"{package}: {killed} of {of} killed")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
