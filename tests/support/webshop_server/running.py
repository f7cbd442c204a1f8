"""Servers in processes of their own, with the toy catalogue."""

import errno
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

from tests.support.project import ROOT

WAITRESS = [sys.executable, "-m", "webshop_server", "--catalog", "toy", "--port", "0"]
GUNICORN = [
    *(sys.executable, "-m", "gunicorn", "-w", "2", "--threads", "8", "--worker-connections", "4000"),
    *("-b", "127.0.0.1:0", "webshop_server:create_app('toy')"),
]
_CLOSED = (errno.ENOTCONN, errno.EPIPE, errno.ECONNRESET)


class Server:
    """A running server.

    Attributes:
        process: Its parent process.
        client: Asks it.
        address: Its URL.
        port: Where it listens.
    """

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

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ends the server with a signal. Returns its exit status and what it wrote to stderr."""
        self.client.close()
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Exit status and what was written to stderr, once it has ended."""
        _, said = self.process.communicate(timeout=40)
        return self.process.returncode, said

    def clean_up(self) -> None:
        """Kills what still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


@contextmanager
def running(command: Sequence[str]) -> Iterator[Server]:
    """A server that is killed at the end, if it has not ended."""
    server = Server(command)
    try:
        yield server
    finally:
        server.clean_up()
