"""What is written whole or not at all: files and folders, whatever stops the process."""

import os
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.system.atomic import fresh_partial, move_into_place, write_atomically


@pytest.mark.parametrize("failing", ["write", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, "old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*(os, "fsync", full) if failing == "write" else (os, "replace", full))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"


def filled(target: Path, text: str) -> None:
    (fresh_partial(target) / "inner").mkdir()
    (target.with_name("model.partial") / "inner" / "weights").write_text(text)


def test_a_folder_replaces_an_earlier_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "new" / "model"
    for text in ("first", "second"):
        filled(target, text)
        move_into_place(target)
        assert (target / "inner" / "weights").read_text() == text
        assert os.listdir(target.parent) == ["model"]


def test_files_are_on_the_disk_before_their_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after a power cut a warm start or a conversion could have had its name and empty weights."""
    target, named = tmp_path / "model", []
    filled(target, "weights")
    (target.with_name("model.partial") / "config.json").write_text("{}")
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: named.append(target.exists()) or sync(number))
    move_into_place(target)
    assert named == [False, False]
    assert target.exists()


@pytest.mark.parametrize("stopped_at", [1, 2])
def test_an_earlier_folder_is_never_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_at: int
) -> None:
    """Moving it aside fails, or giving the new one its name does: one folder holds it, whole."""
    target, rename, moves = tmp_path / "model", Path.rename, []
    filled(target, "old")
    move_into_place(target)
    filled(target, "new")

    def stops(path: Path, to: Path) -> Path:
        moves.append(path)
        if len(moves) == stopped_at:
            raise KeyboardInterrupt
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", stops)
    with pytest.raises(KeyboardInterrupt):
        move_into_place(target)
    held = target if stopped_at == 1 else target.with_name("model.former")
    assert (held / "inner" / "weights").read_text() == "old"
    assert (target.with_name("model.partial") / "inner" / "weights").read_text() == "new"
