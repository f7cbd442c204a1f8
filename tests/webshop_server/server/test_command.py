"""Servers: `webshop-server` and gunicorn start, answer, survive quiet clients and the death of a worker, and stop."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ragen_envs import WebShop
from ragen_envs.webshop.shoppers import scripted_shop_action
from tests.support.project import ROOT

WAITRESS = [sys.executable, "-m", "webshop_server", "--catalog", "toy", "--port", "0"]
GUNICORN = [
    *(sys.executable, "-m", "gunicorn", "-w", "2", "--threads", "8", "--worker-connections", "4000"),
    *("-b", "127.0.0.1:0", "webshop_server:create_app('toy')"),
]


class Server:
    """A running server: its process, a client, its address and port."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        told = self.process.stderr if "gunicorn" in command else self.process.stdout
        assert told is not None
        lines = []
        while (match := re.search(r"http://\S+:(\d+)", lines[-1] if lines else "")) is None:
            lines.append(told.readline())
            assert lines[-1], (lines, self.process.stderr and self.process.stderr.read())
        self.address, self.port = match[0], int(match[1])
        self.client = httpx.Client(base_url=self.address, timeout=20)
        deadline = time.monotonic() + 60
        while self.client.get("/healthz").status_code != 200 or ("gunicorn" in command and len(self.workers()) < 2):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in children.read_text().split()]

    def posted(self, size: int) -> int:
        """The status of a form of so many bytes; 0 if the server closed while the rest was on its way."""
        try:
            return self.client.post("/x", data={"x": "y" * (size - 2)}).status_code
        except httpx.TransportError:
            return 0

    def stop(self) -> tuple[int, str]:
        """Ends the server. Returns its exit status and what it wrote to stderr."""
        self.client.close()
        self.process.terminate()
        _, said = self.process.communicate(timeout=40)
        return self.process.returncode, said


@contextmanager
def running(command: Sequence[str]) -> Iterator[Server]:
    """A server that is killed at the end, if it has not ended."""
    server = Server(command)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork")
def test_several_workers_share_sessions_and_the_death_of_one_loses_nothing() -> None:
    with running(GUNICORN) as server:
        env, twin = WebShop(base_url=server.address, max_steps=None), WebShop(catalog="toy", max_steps=None)
        begun = {name: server.client.get(f"/{name}").text for name in ("fixed_1", "other")}
        before = server.workers()
        assert len(before) == 2
        for goal in range(4):
            assert env.reset(options={"goal": goal}) == twin.reset(options={"goal": goal})
            over = False
            for number in range(8):
                if goal == 1 and number == 2:
                    os.kill(before[0], signal.SIGKILL)
                env.close()  # a connection each, so that both workers are asked
                action = f"search[shoe {number}]" if number < 5 else scripted_shop_action(twin)
                step = twin.step(action)
                assert env.step(action) == step
                over = over or step[2]
        deadline = time.monotonic() + 60
        while len(set(server.workers()) - {before[0]}) < 2:
            assert time.monotonic() < deadline, "the dead worker was not replaced"
            time.sleep(0.02)
        assert {name: server.client.get(f"/{name}").text for name in begun} == begun
        assert [server.posted(size) for size in (65_536, 65_537, 1 << 20, 8 << 20, 9)] == [200, 413, 413, 413, 200]
        assert server.stop()[0] == 0


def test_quiet_connections_do_not_stop_the_server_and_a_second_one_on_its_port_says_so() -> None:
    """Regression: from 1000 of them on nobody else was answered, without a word."""
    with running(WAITRESS) as server:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = 1300 if hard == resource.RLIM_INFINITY else min(hard, 1300)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        quiet = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(most - 200)]
        try:
            for _ in range(5):
                assert httpx.get(f"{server.address}/healthz", timeout=20).status_code == 200
        finally:
            for connection in quiet:
                connection.close()
        again = [*WAITRESS[:-1], str(server.port)]
        second = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert (second.returncode, second.stdout) == (2, "")
        assert f"cannot serve at 127.0.0.1:{server.port}: Address already in use" in second.stderr
        assert server.posted(65_536) == 200 and server.posted(65_537) in (413, 0)
        status, said = server.stop()
        assert status == 0 and "Traceback" not in said
