"""Where a number comes from: command, commit, versions, machine. Every JSON file of results has these."""

import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ragen_envs import commit_of
from ragen_trl.system.processes import launched

_PACKAGES = ("ragen-trl", "trl", "transformers", "torch", "gymnasium", "peft", "accelerate", "numpy")


def provenance() -> dict[str, Any]:
    """``command``, ``commit`` (``+changes`` if its code has any), ``created``, ``versions``, ``machine``."""
    command = shlex.join(["python", "-m", "ragen_trl", *sys.argv[1:]])
    return {
        "command": re.sub(r"(--\w*token)[ =]\S+", r"\1 SECRET", command),
        "commit": commit_of(Path(__file__)),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "machine": {
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "processes": launched(),
            "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
            "system": f"{platform.system()} {platform.machine()}",
        },
    }
