"""The command `webshop-server` in a process of its own, with the toy catalogue."""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.project import ROOT

COMMAND = (sys.executable, "-m", "webshop_server")
WORKERS = pytest.param("2", marks=pytest.mark.skipif(sys.platform == "win32", reason="several workers need fork"))
"""The number of workers that gunicorn serves with; 1 is waitress."""
_CLOSED = (errno.ENOTCONN, errno.EPIPE, errno.ECONNRESET)


class Server:
    """A running server.

    Attributes:
        process: Its parent process.
        line: What it said when it was ready.
        client: Asks it.
        port: Where it listens.
    """

    def __init__(self, *arguments: str, program: Sequence[str] = COMMAND) -> None:
        command = [*program, "--catalog", "toy", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        match = re.search(r"http://\S+:(\d+)", self.line)
        assert match is not None, (self.line, self.process.stderr and self.process.stderr.read())
        self.client = httpx.Client(base_url=match[0], timeout=20)
        self.port = int(match[1])

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in children.read_text().split()]

    def connect(self) -> socket.socket:
        """A connection on which nothing was sent yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

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
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, said

    def clean_up(self) -> None:
        """Kills what still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


@contextmanager
def running(*arguments: str, program: Sequence[str] = COMMAND) -> Iterator[Server]:
    """A server that is killed at the end, if it has not ended."""
    server = Server(*arguments, program=program)
    try:
        yield server
    finally:
        server.clean_up()
