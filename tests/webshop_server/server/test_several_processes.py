"""A parent and its workers, with an application that takes no time to make and workers that fail as they are told."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from flask import Flask

from tests.support.project import ROOT
from tests.support.webshop_server.running import QUICK, Server, running
from webshop_server.server.command import serve
from webshop_server.server.serving import Serving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="several workers need fork")
# The command, but the n-th start of a worker does what the n-th word says; those after the last word are "ok".
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from webshop_server.server import several_processes
from webshop_server.server.command import main

folder, plan, several_processes._PAUSE = Path(sys.argv[1]), sys.argv[2].split(), float(sys.argv[3])
start, fork = several_processes._Worker.init_process, os.fork

def next_word(*words):
    number = len(list(folder.iterdir()))
    word = plan[number] if number < len(plan) else "ok"
    if word in words:
        (folder / str(number)).touch()
    return word

def starts_as_planned(worker):
    how = next_word("ok", "die", "slow", "fail")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "slow":
        time.sleep(60)
    if how == "fail":
        raise ValueError("no such file")
    start(worker)

def forks_as_planned():
    time.sleep(0.1)  # the start before has taken its word
    if next_word("full") == "full":
        raise BlockingIOError("no more processes")
    return fork()

several_processes._Worker.init_process = starts_as_planned
os.fork = forks_as_planned
sys.exit(main(sys.argv[4:]))
"""


class Planned:
    """A server with two workers whose starts go as planned."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.workers = server.workers

    def starts(self) -> int:
        return len(list(self.folder.iterdir()))

    def answers(self) -> bool:
        with httpx.Client(transport=httpx.HTTPTransport(retries=2), timeout=20) as client:
            return bool(client.get(f"{self.server.client.base_url}/healthz").json() == {"ready": True})


Start = Callable[..., Planned]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as servers:

        def starts(plan: str, pause: float = 0.0) -> Planned:
            program = (sys.executable, "-c", QUICK + PROGRAM, str(tmp_path), plan, str(pause))
            planned = Planned(servers.enter_context(running("--workers", "2", program=program)), tmp_path)
            until(lambda: planned.starts() >= 2, "the workers did not start")
            return planned

        yield starts


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_a_replacement_that_dies_or_fails_while_it_starts_is_tried_again(start: Start) -> None:
    """The whole server ended, with status 3."""
    planned = start("ok ok die fail full", pause=0.3)
    token = planned.server.client.post("/api/sessions", json={"goal": 4}).json()["session"]
    began = time.monotonic()
    os.kill(planned.workers()[0], signal.SIGKILL)
    until(lambda: planned.starts() == 6, "the worker was not started again")
    assert time.monotonic() - began >= 0.9  # three pauses
    until(lambda: len(planned.workers()) == 2, "a worker is missing")
    assert planned.answers()
    with httpx.Client(base_url=planned.server.client.base_url) as client:
        assert client.get(f"/api/sessions/{token}").json()["goal"] == 4
    status, said = planned.server.stop()
    assert status == 0
    assert "was sent SIGKILL" in said and "no such file" in said
    assert "A worker cannot be started: no more processes" in said


def test_a_death_is_seen_while_another_worker_starts(start: Start) -> None:
    planned = start("ok ok slow")
    first, second = planned.workers()
    os.kill(first, signal.SIGKILL)
    until(lambda: planned.starts() == 3, "the first worker was not replaced")
    os.kill(second, signal.SIGKILL)
    until(lambda: planned.starts() == 4, "the second worker was not replaced")
    until(planned.answers, "nobody answers")
    # A worker that starts for a minute does not hold up the end either.
    began = time.monotonic()
    assert planned.server.stop()[0] == 0
    assert time.monotonic() - began < 5


def test_too_many_deaths_end_the_server(start: Start) -> None:
    """Workers that died again and again were replaced without end."""
    planned = start("ok ok")
    for death in range(6):
        before = planned.workers()
        os.kill(before[0], signal.SIGKILL)
        if death < 5:
            until(lambda death=death: planned.starts() == 3 + death, "the worker was not replaced")
            until(lambda before=before: before[0] not in planned.workers() and len(planned.workers()) == 2, "not two")
    status, said = planned.server.wait()
    assert status == 2
    assert said.splitlines()[-1] == "webshop-server: workers died 6 times in 20 seconds; giving up"
    assert said.count("was sent SIGKILL") == 6


def test_workers_that_never_start_end_the_server(start: Start) -> None:
    status, said = start(" ".join(["fail"] * 6)).server.wait()
    assert status == 2
    assert said.splitlines()[-1] == "webshop-server: workers died 6 times in 20 seconds; giving up"


def test_the_file_of_the_sessions_is_there_and_closed_before_a_worker_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers made it at once: one of 300 found the database locked, and the server ended."""
    from webshop_server.server import several_processes  # gunicorn needs fork to load

    seen: list[tuple[list[str], bytes]] = []

    class Parent:
        def __init__(self, application: object, ready: Callable[[], None]) -> None:
            """Takes what the real one takes."""

        def run(self) -> None:
            """Looks at the folder."""
            (folder,) = tmp_path.iterdir()
            header = (folder / "sessions.sqlite").read_bytes()
            seen.append((sorted(path.name for path in folder.iterdir()), header[18:20]))

    monkeypatch.setattr(several_processes, "_Parent", Parent)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    serving = Serving("127.0.0.1", 0, 2, 2, 10, 60.0)
    serve(serving, lambda sessions, tokens, metrics: Flask("small"), lambda address: None)
    # No "-wal" beside it: nobody has it open. 2 and 2 say that it is written ahead (the format of SQLite's files).
    assert seen == [(["sessions.sqlite"], b"\x02\x02")]


# In a process of its own: a server that did start would fork the tests.
FULL_DISK = """
import sqlite3, sys
from webshop_server.server.command import main
from webshop_server.server.shared_sessions import SharedSessions

def fails(self):
    raise sqlite3.OperationalError("database or disk is full")

SharedSessions.open = fails
sys.exit(main(["--catalog", "toy", "--port", "0", "--workers", "2"]))
"""


def test_a_file_of_sessions_that_cannot_be_made_is_one_line_and_status_2() -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK], cwd=ROOT, capture_output=True, text=True, timeout=60)
    said = "the file of the sessions cannot be made: database or disk is full; set TMPDIR to another folder"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"webshop-server: {said}\n")
