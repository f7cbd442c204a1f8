"""What a beginner types first, and the line that says what to do instead."""

from pathlib import Path

import pytest

from ragen_trl.cli.main import main
from tests.support.ragen_trl.reports import success_only, write_run


def test_a_report_of_all_runs_leaves_evaluations_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``report runs/*`` is the example of the help; an ``eval`` there ended it with "history.json does not exist"."""
    trained, played, empty = write_run(tmp_path / "a", history=success_only(3)), tmp_path / "eval", tmp_path / "empty"
    for folder in (played, empty):
        folder.mkdir()
    for name in ("summary.json", "evaluation.json"):
        (played / name).write_text("{}")
    assert main(["report", *map(str, (trained, played, empty)), "--output", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"left out: {played} holds an evaluation; its tables are in results.md",
        f"left out: {empty} holds no finished run (no summary.json)",
    ]
    assert (tmp_path / "page.html").exists()
