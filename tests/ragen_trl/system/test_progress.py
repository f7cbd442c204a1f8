"""Progress where nobody watches: whole lines, seldom, and none for short work; a bar on a terminal."""

import sys
import time

import pytest

from ragen_trl.system import progress, terminal
from ragen_trl.system.progress import progress_bar


def test_short_work_writes_nothing_into_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(3, "warm start", "step") as bar:
        bar.update(3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("watched", [(), ("stderr",), ("stdout",)], ids=["nobody", "piped", "errors to a file"])
def test_long_work_writes_whole_lines_with_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, watched: tuple[str, ...]
) -> None:
    """They went to standard error alone, so that `make train | tee log` said nothing for minutes."""
    for name in watched:
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True)
    monkeypatch.setattr(progress, "LINE_EVERY", 0.02)
    with progress_bar(4, "train", "step", initial=1) as bar:
        bar.set_postfix({"success": "0.5"}, refresh=False)
        for _ in range(3):
            time.sleep(0.05)
            bar.update(1)
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert said.err == ""
    assert lines[0] == "train: 2 of 4 steps (50 %) in 00:00, 00:00 to go, success=0.5"
    assert [line.split()[1] for line in lines] == ["2", "3", "4"]
    assert not any("\r" in line or "\x1b" in line for line in lines)


def test_a_terminal_gets_a_bar_that_is_drawn_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (sys.stderr, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    with progress_bar(2, "train", "step") as bar:
        bar.update(1)
    assert "\rtrain:   0%|" in capsys.readouterr().err


def test_a_hidden_bar_shows_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for watched in (False, True):
        for stream in (sys.stderr, sys.stdout):
            monkeypatch.setattr(stream, "isatty", lambda watched=watched: watched)
        with progress_bar(2, "train", "step", hidden=True) as bar:
            bar.update(1)
    assert capsys.readouterr() == ("", "")


def test_colour_is_for_terminals_whose_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.error_line("no") == "error: no"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert terminal.error_line("no") == "\x1b[1;31merror:\x1b[0m no"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.error_line("no") == "error: no"
