"""What a run has done so far, so the same command continues after it instead of starting again."""

import json
import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen_trl.cli.processes import is_main, on_main
from ragen_trl.errors import OptionError, UserError
from ragen_trl.system.atomic import write_atomically


def check_output_folder(folder: Path, marker: str | None = None) -> None:
    """Raise `OptionError` for a folder that cannot be written to, or is not empty and lacks the file ``marker``."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise OptionError(f"{there} is a file, so {folder} can be no folder; choose another --output_dir")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OptionError(f"{there} may not be written to; choose another --output_dir")
    if marker and folder.exists() and any(folder.iterdir()) and not (folder / marker).exists():
        raise OptionError(f"{folder} is not empty and holds no {marker}, so it is not replaced; choose another")


class RunExistsError(UserError, FileExistsError):
    """The run folder holds a finished run, or one with other settings."""


class RunState:
    """What a run has done so far, kept in ``stages.json``, so the same command continues after it.

    Of several processes, all know the stages and the main one reads and writes the file.

    Args:
        folder: The run folder.
        settings: The settings that results depend on. A folder with other settings is refused and left as it is.
        overwrite: Delete the folder first, if it is a run folder.

    Raises:
        RunExistsError: If the folder holds a finished run or one with other settings, or if it must be overwritten and
            holds something else.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
        self._path = folder / "stages.json"
        self._content: dict[str, Any] = on_main(lambda: self._opened(folder, settings, overwrite))

    def _opened(self, folder: Path, settings: Mapping[str, Any], overwrite: bool) -> dict[str, Any]:
        if overwrite:
            _delete_run(folder)
        advice = "pass --overwrite true to start again, or choose another --output_dir"
        if (folder / "summary.json").exists():
            raise RunExistsError(f"{folder} holds a finished run, see {folder / 'report.html'}; {advice}")
        content: dict[str, Any] = {"settings": _as_json(settings), "values": {}}
        if self._path.exists():
            stored = _read(self._path)
            new, old = content["settings"], stored["settings"]
            keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            changed = [f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys]
            if changed:
                raise RunExistsError(f"{folder} holds a run with other settings ({'; '.join(changed)}); {advice}")
            content = stored
        self._write(content)
        return content

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        """The stored result of a stage; computed by ``make``, in all processes, and stored if there is none."""
        if name not in self._content["values"]:
            made = make()
            self._content["values"][name] = on_main(lambda: made)
            self._write(self._content)
        return self._content["values"][name]

    def add(self, name: str, amount: float) -> None:
        """Add to a total, such as the time that a resumed run spends in several pieces."""
        self._content["values"][name] = self._content["values"].get(name, 0.0) + amount
        self._write(self._content)

    def seconds(self, history: Sequence[Mapping[str, Any]], evaluation: float) -> dict[str, float]:
        """Seconds of each stage; stopped and resumed parts are added up. ``evaluation`` counts all evaluations."""
        steps = [row["step_time"] for row in history if row.get("step_time")]
        spent = {
            "warm_start": self.value("seconds_warm_start", float),
            "training": self.value("seconds_training", float),
            "evaluation": evaluation,
        }
        return {**spent, "total": sum(spent.values()), "step_median": statistics.median(steps) if steps else 0.0}

    def _write(self, content: dict[str, Any]) -> None:
        if is_main():
            write_atomically(self._path, json.dumps(content, indent=2))


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(dict(settings), default=str))
    return content


def finished_stages(folder: Path) -> list[str]:
    """Names of the stages that a run folder has results of; empty if ``stages.json`` is missing or cannot be read."""
    try:
        return list(_read(folder / "stages.json")["values"])
    except (OSError, RunExistsError):  # the command itself says what is wrong with it
        return []


def _delete_run(folder: Path) -> None:
    """Delete a run folder, and no other folder that a mistyped ``--output_dir`` names."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / "stages.json").exists():
        raise RunExistsError(
            f"{folder} is not empty and holds no run (no stages.json), so it is not deleted; "
            "choose another --output_dir"
        )
    shutil.rmtree(folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {"settings": dict(stored["settings"]), "values": dict(stored["values"])}
    except (ValueError, KeyError, TypeError) as error:
        raise RunExistsError(f"{path} cannot be read ({error}); delete the run folder and start again") from error
