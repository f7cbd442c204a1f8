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
from ragen_trl.system.atomic import write_atomically


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


class RunState:
    """The settings that a run's results depend on, and the ``seconds`` that its parts took, kept in ``stages.json``.

    With them the same command goes on. A folder with a finished run or other settings raises `OptionError` and is left
    as it is; ``overwrite`` deletes a run folder first, and nothing else. All processes know the content, and the main
    one reads and writes it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
        self._path = folder / "stages.json"
        self._content: dict[str, Any] = on_main(lambda: self._opened(folder, settings, overwrite))
        self.seconds: dict[str, float] = self._content["seconds"]

    def _opened(self, folder: Path, settings: Mapping[str, Any], overwrite: bool) -> dict[str, Any]:
        if overwrite and folder.exists():
            if any(folder.iterdir()) and not self._path.exists():
                raise OptionError(f"{folder} holds no run, so it is not replaced; choose another --output_dir")
            shutil.rmtree(folder)
        new: dict[str, Any] = json.loads(json.dumps(dict(settings), default=str))
        advice = "pass --overwrite true to start again, or choose another --output_dir"
        if is_finished(folder):
            raise OptionError(f"{folder} holds a finished run, see {folder / 'report.html'}; {advice}")
        stored: dict[str, Any] = {"settings": new, "seconds": {}}
        if self._path.exists():
            stored = _read(self._path)
        old = stored["settings"]
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if changed := "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys):
            raise OptionError(f"{folder} holds a run with other settings ({changed}); {advice}")
        write_atomically(self._path, json.dumps(stored, indent=2))
        return stored

    def add(self, part: str, seconds: float) -> None:
        """Add to the time that a part took."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self._write()

    def finish(self) -> None:
        """Say that every file is written; before that, the same command writes those that are missing."""
        self._content["finished"] = True
        self._write()

    def _write(self) -> None:
        if is_main():
            write_atomically(self._path, json.dumps(self._content, indent=2))


def is_finished(folder: Path) -> bool:
    """Whether a folder holds results that nothing is missing of, of a run or of something else."""
    path = folder / "stages.json"
    if not path.exists():
        return (folder / "summary.json").exists()
    return "finished" in _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored["settings"], dict) or not isinstance(stored["seconds"], dict):
            raise TypeError("settings and seconds are mappings")
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"{path} is damaged ({error}); pass --overwrite true to start again, or choose another --output_dir"
        ) from error
    return stored
