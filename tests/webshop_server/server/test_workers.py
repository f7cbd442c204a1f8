"""A parent and its workers, with an application that takes no time to make and fails as it is told."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="several workers need fork")
ROOT = Path(__file__).resolve().parents[3]
# The n-th start of a worker does what the n-th word says; those behind the last word are "ok".
PROGRAM = """
import logging, os, signal, sys, time
from pathlib import Path
from flask import Flask
from webshop_server.server.listening import ServeError, Serving
from webshop_server.server.workers import serve

folder, plan = Path(sys.argv[1]), sys.argv[2:]
logging.basicConfig(format="%(message)s")

def make_app(sessions, tokens, metrics):
    number = len(list(folder.iterdir()))
    (folder / str(number)).touch()
    how = plan[number] if number < len(plan) else "ok"
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "slow":
        time.sleep(60)
    if how == "fail":
        raise ValueError("no such file")
    app = Flask("small")
    app.add_url_rule("/", view_func=lambda: str(os.getpid()))
    return app

try:
    serve(Serving("127.0.0.1", 0, 2, 2, 10, 60.0), make_app, lambda address, app: print(address, flush=True))
except ServeError as error:
    sys.exit(f"gave up: {error}")
"""


class Server:
    """The program, started."""

    def __init__(self, folder: Path, *plan: str) -> None:
        command = [sys.executable, "-c", PROGRAM, str(folder), *plan]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        self.folder = folder
        self.address = self.process.stdout.readline().strip()

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in children.read_text().split()]

    def starts(self) -> int:
        return len(list(self.folder.iterdir()))

    def answers(self) -> bool:
        with httpx.Client(transport=httpx.HTTPTransport(retries=2), timeout=20) as client:
            return int(client.get(self.address).text) in self.workers()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, said


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def starts(*plan: str) -> Server:
        servers.append(Server(tmp_path, *plan))
        return servers[-1]

    yield starts
    for server in servers:
        if server.process.poll() is None:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.communicate()


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_a_replacement_that_dies_or_fails_while_it_starts_is_tried_again(start: Callable[..., Server]) -> None:
    """The whole server ended, with status 2."""
    server = start("ok", "ok", "die", "fail")
    began = time.monotonic()
    os.kill(server.workers()[0], signal.SIGKILL)
    until(lambda: server.starts() == 5, "the worker was not started again")
    assert time.monotonic() - began >= 1.0  # two pauses
    until(lambda: len(server.workers()) == 2, "a worker is missing")
    assert server.answers()
    status, said = server.end()
    assert (status, said.splitlines()) == (
        0,
        [
            "worker 0 ended (-9); starting another",
            "worker 0 ended (-9, while it was starting); starting another",
            "worker 0 ended (no such file, while it was starting); starting another",
        ],
    )


def test_a_death_is_seen_while_another_worker_starts(start: Callable[..., Server]) -> None:
    """The parent waited for the start alone, and served with no worker at all."""
    server = start("ok", "ok", "slow")
    first, second = server.workers()
    os.kill(first, signal.SIGKILL)
    until(lambda: server.starts() == 3, "the first worker was not replaced")
    os.kill(second, signal.SIGKILL)
    until(lambda: server.starts() == 4, "the second worker was not replaced")
    until(server.answers, "nobody answers")
    # A worker that starts for a minute does not hold up the end either.
    began = time.monotonic()
    assert server.end()[0] == 0
    assert time.monotonic() - began < 10


def test_too_many_deaths_end_the_server(start: Callable[..., Server]) -> None:
    server = start()
    for death in range(6):
        before = server.workers()
        os.kill(before[0], signal.SIGKILL)
        if death < 5:
            until(lambda death=death: server.starts() == 3 + death, "the worker was not replaced")
            until(lambda before=before: before[0] not in server.workers() and len(server.workers()) == 2, "not two")
    _, said = server.process.communicate(timeout=20)
    assert server.process.returncode == 1
    assert said.splitlines()[-1] == "gave up: workers died 6 times in 20 seconds; giving up"
    assert len(re.findall("starting another", said)) == 5


@pytest.mark.parametrize(
    ("plan", "said"),
    [(("fail",), "no such file"), (("ok", "die"), "a worker died while it was starting; see the log")],
)
def test_a_first_start_that_fails_ends_the_server(
    start: Callable[..., Server], plan: tuple[str, ...], said: str
) -> None:
    server = start(*plan)
    assert server.address == ""
    assert server.process.communicate(timeout=20)[1] == f"gave up: {said}\n"
    assert server.starts() == len(plan)
