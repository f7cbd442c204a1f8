"""Does a model that is divided over processes take the steps of one process?

    python benchmarks/sharded.py                              # what make test-sharded compares; some minutes
    python benchmarks/sharded.py --updates 200 --kills 10     # and a run that is killed at random

It runs the tests of ``tests/sharded`` that fill the table, and keeps what they wrote. It needs DeepSpeed, which ``make
test-sharded`` installs. Writes ``results/sharded.json``.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from ragen_trl.system.atomic import write_atomically

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run them and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=0, help="of the run that is killed; 0: none")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--engine", default="FSDP2, sharded state", help="of the run that is killed")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "sharded.json")
    options = parser.parse_args()
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "RAGEN_TEST_SHARDED": "1"}
    test = "tests/sharded/test_updates.py"
    status = subprocess.run([sys.executable, "-m", "pytest", test], cwd=ROOT, env=environment).returncode
    if status:
        return status
    content = json.loads((ROOT / "runs" / "sharded.json").read_text(encoding="utf-8"))
    content["command"] = " ".join(["python", "benchmarks/sharded.py", *map(shlex.quote, sys.argv[1:])])
    if options.updates:
        module = "tests.support.ragen_trl.sharded_killed"
        asked = [options.engine, str(options.updates), str(options.kills)]
        said = subprocess.run(
            [sys.executable, "-m", module, *asked],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        content["killed"] = json.loads(said.stdout.splitlines()[-1])
    write_atomically(options.output, json.dumps(content, indent=1))
    print(f"written: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
