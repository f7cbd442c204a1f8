"""What is written whole or not at all: files and folders, whatever stops the process."""

import hashlib
import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from ragen_trl.errors import UserError
from ragen_trl.system.atomic import damage, read_manifest, seal, unseal, write_atomically
from ragen_trl.system.processes import one_writer


@pytest.mark.parametrize("failing", ["write", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, "old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*(os, "fsync", full) if failing == "write" else (os, "replace", full))
    with pytest.raises(UserError, match=f"{path} could not be written .*No space left"):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"


def test_a_folder_is_whole_when_all_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after a power cut a warm start or a conversion could have had its name and empty weights."""
    folder, sync = tmp_path / "model", os.fsync
    (folder / "inner").mkdir(parents=True)
    (folder / "former").write_text("weights")
    unseal(folder, {"learnt": "somehow"})
    assert os.listdir(folder) == ["manifest.json"] and damage(folder) == "it was not written to its end"
    states: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: states.append(damage(folder)) or sync(number))
    for name in ("one", "inner/two"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    seal(folder, {"learnt": "well"})
    assert states == ["it was not written to its end"] * 3 and damage(folder, contents=True) == ""
    digest = hashlib.sha256(b"one").hexdigest()
    files = {"one": {"size": 3, "sha256": digest}, "inner/two": {"size": 9, "sha256": ANY}}
    assert read_manifest(folder) == {"learnt": "well", "files": files}


def test_a_run_folder_has_one_writer_whose_lock_dies_with_it(tmp_path: Path) -> None:
    held, other = os.pipe()
    child = os.fork()
    if child == 0:
        with one_writer(tmp_path):
            os.write(other, b"!")
            signal.pause()
    os.read(held, 1)
    with pytest.raises(UserError, match=f"another process writes to {tmp_path}; wait for it"), one_writer(tmp_path):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with one_writer(tmp_path), one_writer(tmp_path):  # a command, and the trainer in it
        pass
