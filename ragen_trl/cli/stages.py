"""What a run has done so far, so the same command goes on after it; and what only one of several processes does.

``accelerate launch`` and ``torchrun`` set the variables of a launch (``WORLD_SIZE``, ``RANK``). The main process alone
writes files and prints; all play evaluations, warm-start and train.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragen_trl.errors import OptionError
from ragen_trl.system.atomic import write_atomically


class ToldByMainError(SystemExit):
    """Another process raised the error and prints it; this one ends without a word."""


def is_main() -> bool:
    """Whether this is the process that writes and speaks; also before Accelerate knows of the others."""
    return os.environ.get("RANK", "0") == "0"


def launched() -> int:
    """How many processes this command was launched as."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def said_once() -> Iterator[None]:
    """For checks that fail alike in all processes: one says what is wrong, the others raise `ToldByMainError`."""
    try:
        yield
    except Exception as error:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            raise ToldByMainError(2) from error
        raise


def on_main(make: Callable[[], Any]) -> Any:
    """What ``make`` returns in the main process, in all processes; `ToldByMainError` in the others if it fails."""
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
        raise ToldByMainError(2)
    return found[0]


def check_output_folder(folder: Path, marker: str | None = None) -> None:
    """Raise `OptionError` for a folder that cannot be written to, or is not empty and lacks the file ``marker``."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise OptionError(f"{there} is a file or may not be written to; choose another --output_dir")
    if marker and folder.exists() and any(folder.iterdir()) and not (folder / marker).exists():
        raise OptionError(
            f"{folder} is not empty and holds no {marker}, so it is not replaced; choose another --output_dir"
        )


class RunState:
    """What a run has done so far, kept in ``stages.json``, so the same command continues after it.

    Of several processes, all know the stages and the main one reads and writes the file.

    Args:
        folder: The run folder.
        settings: The settings that results depend on. A folder with other settings is refused and left as it is.
        overwrite: Delete the folder first, if it is a run folder.

    Raises:
        OptionError: If the folder holds a finished run or one with other settings, or if it must be overwritten and
            holds something else.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
        self._path = folder / "stages.json"
        self._content: dict[str, Any] = on_main(lambda: self._opened(folder, settings, overwrite))

    def _opened(self, folder: Path, settings: Mapping[str, Any], overwrite: bool) -> dict[str, Any]:
        if overwrite and folder.exists():
            check_output_folder(folder, self._path.name)
            shutil.rmtree(folder)
        new: dict[str, Any] = json.loads(json.dumps(dict(settings), default=str))
        advice = "pass --overwrite true to start again, or choose another --output_dir"
        stored = read_stages(folder)
        if is_finished(folder):
            raise OptionError(f"{folder} holds a finished run, see {folder / 'report.html'}; {advice}")
        old = stored["settings"] if self._path.exists() else new
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if changed := "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys):
            raise OptionError(f"{folder} holds a run with other settings ({changed}); {advice}")
        content = {**stored, "settings": old}
        write_atomically(self._path, json.dumps(content, indent=2))
        return content

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        """The stored result of a stage; computed by ``make``, in all processes, and stored if there is none."""
        if name not in self._content["values"]:
            made = make()
            self._store(name, on_main(lambda: made))
        return self._content["values"][name]

    def add(self, name: str, amount: float) -> None:
        """Add to a total, such as the time that a resumed run spends in several pieces."""
        self._store(name, self._content["values"].get(name, 0.0) + amount)

    def finish(self) -> None:
        """Say that every file is written; before that, the same command writes those that are missing."""
        self._store("finished", True)

    def _store(self, name: str, value: Any) -> None:
        self._content["values"][name] = value
        if is_main():
            write_atomically(self._path, json.dumps(self._content, indent=2))


def is_finished(folder: Path) -> bool:
    """Whether a folder holds results that nothing is missing of, of a run or of something else."""
    foreign = (folder / "summary.json").exists() and not (folder / "stages.json").exists()
    return foreign or "finished" in read_stages(folder)["values"]


def read_stages(folder: Path) -> dict[str, Any]:
    """Settings and values of ``stages.json``, both empty without one; `OptionError` if it cannot be read."""
    path = folder / "stages.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"settings": {}, "values": {}}
        return {"settings": dict(stored["settings"]), "values": dict(stored["values"])}
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{path} cannot be read ({error}); delete the run folder and start again") from error
