"""The index file: it is whole or not there, and what is wrong with it is noticed."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from webshop_server.catalog.product import Product
from webshop_server.search import index as search
from webshop_server.search.index import SearchIndex, index_path


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

    def __len__(self) -> int:
        return 2

    def one_builder(self) -> AbstractContextManager[None]:
        return nullcontext()


def test_an_index_is_built_once_and_read_afterwards(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    first = SearchIndex.open(shelf)
    second = SearchIndex.open(shelf)
    assert shelf.reads == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["search-cafecafecafecafe.index"]
    assert first.scores("red shoes") == second.scores("red shoes") == SearchIndex.build(shelf).scores("red shoes")
    assert second.search(["red", "shoes"]) == ["B", "A"]
    assert list(second.search(["<q>", "shirts"])) == ["A"]
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


def test_a_folder_in_the_index_s_place_is_no_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(tmp_path)
    search.index_path(tmp_path, shelf.hash).mkdir()
    assert SearchIndex.open(shelf).search(["shirt"]) == ["A"]
    assert "cannot be written" in caplog.text
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    """Regression: beside a read-only catalogue, and under a new `--cache`, the index was built at every start."""
    shelf = Shelf(tmp_path / "new" / "folder")
    SearchIndex.open(shelf)
    assert SearchIndex.open(shelf).search(["shirt"]) == ["A"]
    assert shelf.reads == 1


def test_processes_that_build_at_the_same_time_agree(tmp_path: Path) -> None:
    code = (
        "import contextlib, sys; from pathlib import Path; from webshop_server.catalog.product import Product\n"
        "from webshop_server.search.index import SearchIndex\n"
        "class Shelf:\n"
        "    hash = 'cafe' * 16; folder = Path(sys.argv[1])\n"
        "    one_builder = staticmethod(contextlib.nullcontext)\n"
        "    def __len__(self): return 2000\n"
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
