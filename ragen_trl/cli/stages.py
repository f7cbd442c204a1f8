"""What a run has done so far, so the same command goes on after it; and what only one of several processes does.

``accelerate launch`` and ``torchrun`` set the variables of a launch (``WORLD_SIZE``, ``RANK``). The main process alone
writes files and prints; all play evaluations, warm-start and train.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragen_trl.errors import OptionError
from ragen_trl.system.atomic import read_object, write_atomically

_ADVICE = "pass --overwrite true to start again, or choose another --output_dir"


def is_main() -> bool:
    """Whether this is the process that writes and speaks; also before Accelerate knows of the others."""
    return os.environ.get("RANK", "0") == "0"


def launched() -> int:
    """How many processes this command was launched as."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def on_main(make: Callable[[], Any]) -> Any:
    """What ``make`` returns in the main process, in all processes. If it fails, the others end without a word."""
    if launched() == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    found: list[Any] = [None, "it was interrupted"]  # result, error
    try:
        if is_main():
            found = [make(), None]
    finally:
        broadcast_object_list(found)
    if found[1] is not None:
        raise SystemExit(2)
    return found[0]


def open_run(folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
    """Keep the settings that a run's results depend on in ``stages.json``; with them the same command goes on.

    A folder with a finished run or other settings raises `OptionError` and is left as it is; ``overwrite`` deletes a
    run folder first, and nothing else.
    """
    path = folder / "stages.json"
    if overwrite and folder.exists():
        if any(folder.iterdir()) and not path.exists():
            raise OptionError(f"{folder} holds no run, so it is not replaced; choose another --output_dir")
        shutil.rmtree(folder)
    stored = read_object(path, _ADVICE) if path.exists() else None
    if "finished" in stored if stored is not None else (folder / "summary.json").exists():  # or an evaluation
        raise OptionError(f"{folder} holds a finished run, see {folder / 'report.html'}; {_ADVICE}")
    new: dict[str, Any] = json.loads(json.dumps(dict(settings), default=str))
    old = new if stored is None else stored.get("settings")
    if not isinstance(old, dict):
        raise OptionError(f"{path} is damaged (it holds no settings); {_ADVICE}")
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if changed := "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys):
        raise OptionError(f"{folder} holds a run with other settings ({changed}); {_ADVICE}")
    write_atomically(path, json.dumps({"settings": new}, indent=2))


def finish_run(folder: Path) -> None:
    """Say that every file is written; before that, the same command writes those that are missing."""
    path = folder / "stages.json"
    write_atomically(path, json.dumps({**read_object(path, _ADVICE), "finished": True}, indent=2))
