"""A file of arrays: it is whole or not there, and what is wrong with it is noticed."""

import os
from pathlib import Path

import numpy as np
import pytest

from webshop_server.catalog.array_file import ArrayFileError, new_file, open_file

SHAPES = {"small": ("<i4", 3), "none": ("<f4", 0), "large": ("<i8", 1000)}


def write(path: Path) -> None:
    with new_file(path, {"name": "caf\u00e9"}, SHAPES) as arrays:
        arrays["small"][:] = [1, 2, 3]
        arrays["large"][:] = np.arange(1000) * 10**12


def test_arrays_come_back(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    write(path)
    facts, arrays = open_file(path)
    assert facts == {"name": "caf\u00e9"}
    assert arrays["small"].tolist() == [1, 2, 3]
    assert arrays["none"].tolist() == []
    assert arrays["large"][999] == 999 * 10**12
    assert all(array.ctypes.data % 64 == 0 for array in arrays.values() if array.size)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.index"]
    with pytest.raises(ValueError, match="read-only"):
        arrays["small"][0] = 7


@pytest.mark.parametrize("kept", [0, 7, 12, 16, 100, -8, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "x.index"
    write(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ArrayFileError, match="x.index.*delete it"):
        open_file(path)


@pytest.mark.parametrize(("place", "message"), [(0, "no file of arrays"), (9, "no file|damaged"), (20, "damaged")])
def test_a_damaged_header_is_refused(tmp_path: Path, place: int, message: str) -> None:
    path = tmp_path / "x.index"
    write(path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ArrayFileError, match=message):
        open_file(path)


def test_a_failure_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    write(path)
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="power"), new_file(path, {}, SHAPES) as arrays:
        arrays["small"][:] = 9
        raise RuntimeError("power")
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.index"]


def test_what_a_killed_process_has_left_is_swept_up(tmp_path: Path) -> None:
    old, new = tmp_path / "x.index.old.partial", tmp_path / "x.index.new.partial"
    for partial in (old, new):
        partial.write_bytes(b"half")
    os.utime(old, (0, 0))
    write(tmp_path / "x.index")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.index", "x.index.new.partial"]
