"""Results of the scripts that measure, with where they come from."""

import json
from pathlib import Path
from typing import Any

from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance


def write_result(path: Path, command: str, /, **content: Any) -> None:
    """Write what was measured with where it comes from, and say so.

    Args:
        path: A JSON file; its folder is made.
        command: That measures it again.
        content: What was measured.
    """
    write_atomically(path, json.dumps({**provenance(), "command": command, **content}, indent=1))
    print(f"written: {path}")
