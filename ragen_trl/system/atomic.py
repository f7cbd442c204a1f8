"""Files and folders are written whole or not at all.

They are written as ``<name>.partial`` and get their name when they are on the disk: without the ``fsync`` before the
rename, a power cut leaves empty files under the final name.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragen_trl.errors import OptionError


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file; `OptionError`, with the file's name and the ``remedy``, if there is something else."""
    try:
        return {**json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, TypeError) as error:
        raise OptionError(f"{path} is damaged ({error}); {remedy}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8. A reader sees the old file, the new one or none, and never half of one."""
    with replacing(path) as partial:
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file. After the block it replaces the one at ``path``; after an error it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    yield partial
    _sync(partial)
    os.replace(partial, path)


def partial_of(target: Path) -> Path:
    """Where a file or a folder is written first."""
    return target.with_name(f"{target.name}.partial")


def fresh_partial(target: Path) -> Path:
    """Make an empty folder to fill for `move_into_place`; what a killed process has left there is removed."""
    partial = partial_of(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def move_into_place(target: Path) -> None:
    """Rename ``<name>.partial``, a finished folder, to ``target``; an earlier one is moved aside, then deleted."""
    partial, former = partial_of(target), target.with_name(f"{target.name}.former")
    for path in partial.rglob("*"):
        if path.is_file():
            _sync(path)
    shutil.rmtree(former, ignore_errors=True)
    if target.exists():
        target.rename(former)
    partial.rename(target)
    shutil.rmtree(former, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())
