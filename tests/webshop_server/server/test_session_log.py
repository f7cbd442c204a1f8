"""Logs of sessions: a file for each, under a name that tells nothing."""

import json
from pathlib import Path

import pytest

from webshop_server.server.session_log import SessionLog


def test_lines_are_added_to_the_file_of_the_session(tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "new" / "logs", clock=lambda: 12.3456)
    log.write("a", {"action": "search[mügs]"})
    log.write("a", {"action": "\ud800"})
    log.write("../../b", {"action": None})
    assert [json.loads(line) for line in log.path("a").read_text(encoding="utf-8").splitlines()] == [
        {"time": 12.346, "action": "search[mügs]"},
        {"time": 12.346, "action": "\ud800"},
    ]
    assert sorted(path.parent for path in (tmp_path / "new").rglob("*.jsonl")) == [tmp_path / "new" / "logs"] * 2
    # The first 32 digits of SHA-256 of "a".
    assert log.path("a").name == "ca978112ca1bbdcafac231b39a23dc4d.jsonl"


def test_a_folder_that_cannot_be_had_is_named_with_the_remedy(tmp_path: Path) -> None:
    """The command said "[Errno 2] No such file or directory" and nothing else."""
    (tmp_path / "file").touch()
    for folder in ("/proc/x", str(tmp_path / "file")):
        with pytest.raises(OSError, match=r"^cannot write logs to .*; choose a folder for --log that can be written$"):
            SessionLog(folder)
