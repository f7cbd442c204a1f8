"""Servers: `webshop-server` and gunicorn start, answer, survive hostile bytes and the death of a worker, and stop."""

import errno
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
_CLOSED = (errno.ENOTCONN, errno.EPIPE, errno.ECONNRESET)


class Server:
    """A running server: its process, a client, its address and port."""

    def __init__(self, command: Sequence[str], is_ready: bool = True) -> None:
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        if not is_ready:
            return
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

    def connect(self) -> socket.socket:
        """A connection on which nothing was sent yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    @staticmethod
    def can_hold(connections: int) -> bool:
        """Whether this process and the server may have so many open."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < connections + 200:
            return False
        resource.setrlimit(resource.RLIMIT_NOFILE, (connections + 200, hard))
        return True

    def send(self, request: bytes) -> tuple[int, str, bytes]:
        """Sends bytes. Returns status, head and body of the first answer; (0, "", b"") where there is none."""
        answer = b""
        with self.connect() as connection:
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    answer += part
            except OSError as error:  # it may close while there is more to read
                if error.errno not in _CLOSED:
                    raise
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split()[1]), head.decode("latin-1"), body) if answer else (0, "", b"")

    def stop(self) -> tuple[int, str]:
        """Ends the server. Returns its exit status and what it wrote to stderr."""
        self.client.close()
        self.process.terminate()
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Exit status and what was written to stderr, once it has ended."""
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


Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as servers:
        yield lambda *arguments: servers.enter_context(running(*arguments))


@pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork")
def test_several_workers_share_sessions_and_the_death_of_one_loses_nothing(start: Start) -> None:
    server = start(GUNICORN)
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
    assert server.stop()[0] == 0


def test_a_second_start_on_a_port_says_so(start: Start) -> None:
    server = start(WAITRESS)
    second = Server([*WAITRESS[:-1], str(server.port)], is_ready=False)
    status, said = second.wait()
    assert status == 2
    assert said == (
        f"webshop-server: cannot serve at 127.0.0.1:{server.port}: Address already in use; is a server running there? "
        "Choose another --port or --host\n"
    )
    assert server.stop()[0] == 0


@pytest.fixture(scope="module", params=[WAITRESS, GUNICORN], ids=["waitress", "gunicorn"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as server:
        yield server
        status, said = server.stop()
        assert status == 0
        assert "Traceback" not in said


def test_a_body_of_64_kib_is_taken_and_a_longer_one_refused(server: Server) -> None:
    form = b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    for size, statuses in ((65_536, {200}), (65_537, {413, 0})):  # 0: it closed while the rest was on its way
        body = b"x=" + b"y" * (size - 2)
        assert server.send(form + b"Content-Length: %d\r\n\r\n" % size + body)[0] in statuses


HOSTILE = (
    *(b"\x00" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET /\r\n\r\n", b"\xff\xfe / HTTP/1.1\r\n\r\n"),
    *(b"GET / HTTP/9.9\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"BREW /x HTTP/1.1\r\n\r\n", b"GET * HTTP/1.1\r\n\r\n"),
    *(b"GET //x HTTP/1.1\r\n\r\n", b"GET http://[x/ HTTP/1.1\r\n\r\n", b"GET /%ff%00 HTTP/1.1\r\n\r\n"),
    b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nNo colon\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\n\n",
    b"POST /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /x HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n\r\n",
    b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nx",
    b"POST /x HTTP/1.1\r\nExpect: 200-maybe\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    b"POST /x HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}",
)


def test_hostile_bytes_are_no_fault_of_the_server(server: Server) -> None:
    for request in HOSTILE:
        status = server.send(request)[0]
        assert status in (0, 501) or 200 <= status < 500, request[:100]  # 501 is HTTP's answer to an unknown coding
    assert server.send(b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 200


def test_quiet_connections_do_not_stop_the_server(start: Start) -> None:
    """Regression: from 1000 of them on nobody else was answered, without a word."""
    server = start(WAITRESS)
    quiet = [server.connect() for _ in range(1100 if server.can_hold(1100) else 300)]
    try:
        for _ in range(5):
            assert httpx.get(f"{server.address}/healthz", timeout=20).status_code == 200
    finally:
        for connection in quiet:
            connection.close()
