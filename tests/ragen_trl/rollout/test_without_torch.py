"""Episodes can be played without torch: no module that a rollout needs loads it."""

import pkgutil
import subprocess
import sys
from pathlib import Path

from ragen_trl import rollout


def test_no_module_of_a_rollout_loads_torch(root: Path) -> None:
    names = [f"ragen_trl.rollout.{module.name}" for module in pkgutil.iter_modules(rollout.__path__)]
    assert "ragen_trl.rollout.loop" in names
    names += ["ragen_trl.trajectory", "ragen_trl.policies.scripted"]
    code = f"import sys, {', '.join(names)}; print(sorted({{'torch', 'transformers', 'trl'}} & sys.modules.keys()))"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout == "[]\n"
