"""Who waits for a large catalogue sees how far it is."""

import io
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from webshop_server.catalog import open_catalog, progress, sqlite
from webshop_server.catalog.progress import counted


class Terminal(io.StringIO):
    """Standard error on a screen."""

    def isatty(self) -> bool:
        return True


def test_short_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(counted(range(5000), "reading", 5000)) == list(range(5000))
    assert capsys.readouterr() == ("", "")


def test_lines_in_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert list(counted(range(5000), "reading", 8192)) == list(range(5000))
    list(counted(range(5000), "indexing"))
    out, lines = capsys.readouterr()
    assert out == ""
    assert lines.splitlines() == [
        "webshop: reading: 3,072 of 8,192 products in 30 s, 50 s to go",
        "webshop: indexing: 3,072 products in 30 s",
    ]


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "BAR_AFTER", 0.0)
    assert list(counted(range(2000), "reading", 2000)) == list(range(2000))
    assert "reading: " in screen.getvalue() and "/2.00k" in screen.getvalue()
    assert screen.getvalue().rsplit("\r", 1)[-1].strip() == ""  # it is gone afterwards
    assert capsys.readouterr().out == ""


def test_a_large_catalogue_shows_its_building_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    monkeypatch.setattr(progress, "_LOOK_EVERY", 200)
    open_catalog("synthetic:300", cache_dir=tmp_path, max_in_memory=0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("webshop: reading synthetic:300: 200 of 300 products in 0 s, ")
    open_catalog("synthetic:300", cache_dir=tmp_path, max_in_memory=0)
    assert capsys.readouterr().err == ""


def test_who_waits_for_another_process_is_told(tmp_path: Path) -> None:
    path = tmp_path / "synthetic-300-0.catalog.sqlite"
    code = (
        "import sys; from webshop_server.catalog import open_catalog, sqlite; sqlite.IMPATIENCE = 0.05\n"
        "print(len(open_catalog('synthetic:300', cache_dir=sys.argv[1], max_in_memory=0)))"
    )
    with closing(sqlite3.connect(f"{path}.lock", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        waiting = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes)  # type: ignore[call-overload]
        assert waiting.stderr.readline() == f"webshop: another process makes the files of {path.name}; waiting for it\n"
        assert not path.exists()
    assert waiting.communicate(timeout=60) == ("300\n", "")
    assert sqlite.PATIENCE == 3600
