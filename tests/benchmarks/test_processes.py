"""measuring/processes.py: what a process of a measurement can import, and what is said when it fails."""

from pathlib import Path

import pytest
from measuring.processes import answer_of_module


def test_a_measurement_finds_what_is_installed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its process had its own PYTHONPATH, and lacked what a campaign installs beside the libraries."""
    text = "import json, os, sys, measuring\nprint(1)\nprint(json.dumps([sys.argv[1], os.environ['X']]))"
    (tmp_path / "installed_elsewhere.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert answer_of_module("installed_elsewhere", "word", X="set") == ["word", "set"]


def test_a_measurement_that_fails_is_named_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_here.py").write_text("raise ValueError('what went wrong')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match=r"(?s)-m fails_here word failed:.*ValueError: what went wrong"):
        answer_of_module("fails_here", "word")
