"""The index file: it is whole or not there, and what is wrong with it is noticed."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from webshop_server.catalog.product import Product
from webshop_server.search import index as search
from webshop_server.search.files import IndexFileError, new_file, open_file
from webshop_server.search.index import SearchIndex, index_path

SHAPES = {"small": ("<i4", 3), "none": ("<f4", 0), "large": ("<i8", 1000)}


@dataclass
class Shelf:
    """A catalogue of two products that counts how often they are read."""

    folder: Path | None
    hash: str = "cafe" * 16
    reads: int = 0

    def products(self) -> Iterator[Product]:
        self.reads += 1
        yield Product("B", "red shoe", "fashion", "shoes", "")
        yield Product("A", "red shirt", "fashion", "shirts", "")


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
    with pytest.raises(IndexFileError, match="x.index.*delete it"):
        open_file(path)


@pytest.mark.parametrize(("place", "message"), [(0, "no search index"), (9, "no search|damaged"), (20, "damaged")])
def test_a_damaged_header_is_refused(tmp_path: Path, place: int, message: str) -> None:
    path = tmp_path / "x.index"
    write(path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(IndexFileError, match=message):
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


def test_an_index_is_built_once_and_read_afterwards(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    first = SearchIndex.open(shelf)
    second = SearchIndex.open(shelf)
    assert shelf.reads == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["search-cafecafecafecafe.index"]
    assert first.scores("red shoes") == second.scores("red shoes") == SearchIndex.build(shelf).scores("red shoes")
    assert second.search(["red", "shoes"]) == ["B", "A"]
    assert second.search(["<q>", "shirts"]) == ["A"]
    SearchIndex.open(Shelf(tmp_path, hash="beef" * 16))
    assert len(list(tmp_path.iterdir())) == 2  # another content, another file


def test_a_truncated_index_is_built_again_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(tmp_path)
    SearchIndex.open(shelf)
    path = index_path(tmp_path, shelf.hash)
    size = path.stat().st_size
    os.truncate(path, size - 64)
    with caplog.at_level(logging.WARNING):
        assert SearchIndex.open(shelf).search(["red", "shoe"]) == ["B", "A"]
    assert f"has {size - 64} bytes instead of {size}" in caplog.text
    assert shelf.reads == 2
    assert path.stat().st_size == size


def test_an_index_of_another_version_or_catalogue_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(tmp_path)
    SearchIndex.open(shelf)
    monkeypatch.setattr(search, "_VERSION", search._VERSION + 1)
    SearchIndex.open(shelf)
    assert (shelf.reads, "another catalogue or version" in caplog.text) == (2, True)
    # Equal in the part of the hash that names the file.
    other = Shelf(tmp_path, hash="cafe" * 15 + "beef")
    SearchIndex.open(other)
    assert other.reads == 1


def test_without_a_place_the_index_is_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert SearchIndex.open(Shelf(None)).search(["shirt"]) == ["A"]
    assert caplog.text == ""
    (tmp_path / "file").write_text("in the way")
    shelf = Shelf(tmp_path / "file" / "folder")
    assert SearchIndex.open(shelf).search(["shirt"]) == ["A"]
    assert shelf.reads == 1
    assert "cannot be written" in caplog.text
    assert "kept in memory" in caplog.text


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    """Regression: beside a read-only catalogue, and under a new `--cache`, the index was built at every start."""
    shelf = Shelf(tmp_path / "new" / "folder")
    SearchIndex.open(shelf)
    assert SearchIndex.open(shelf).search(["shirt"]) == ["A"]
    assert shelf.reads == 1


def test_processes_that_build_at_the_same_time_agree(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from webshop_server.catalog.product import Product\n"
        "from webshop_server.search.index import SearchIndex\n"
        "class Shelf:\n"
        "    hash = 'cafe' * 16; folder = Path(sys.argv[1])\n"
        "    def products(self):\n"
        "        return iter([Product(f'P{i:04d}', f'red shoe {i % 7}', 'fashion', 'q', '') for i in range(2000)])\n"
        "print(SearchIndex.open(Shelf()).search(['red', '3']))"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(3)]
    answers = {run.communicate(timeout=60)[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(answers) == 1
    assert b"'P0003', 'P0010'" in answers.pop()
    assert len(list(tmp_path.iterdir())) == 1
