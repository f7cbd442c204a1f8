"""What a running server says to bytes that no client library would send."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, "-m", "webshop_server", "--catalog", "toy", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r":(\d+),", process.stdout.readline())
        assert match is not None
        yield int(match[1])
        process.terminate()
        _, said = process.communicate(timeout=20)
        assert "Traceback" not in said


def sent(port: int, request: bytes) -> tuple[int, str, bytes]:
    """Status, head and body of the first answer to some bytes; (0, "", b"") where there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        answer = b""
        with suppress(ConnectionError):  # it may close while there is more to read
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]), head.decode("latin-1"), body) if answer else (0, "", b"")


def posted(port: int, body: bytes, *headers: str) -> tuple[int, str, bytes]:
    lines = ("POST /api/sessions HTTP/1.1", "Host: x", "Connection: close", *headers)
    return sent(port, "\r\n".join((*lines, "", "")).encode("latin-1") + body)


def refused(port: int) -> int:
    """How many requests were counted as 4xx."""
    text = sent(port, b"GET /metrics HTTP/1.0\r\n\r\n")[2].decode()
    return int(
        next(line.split()[1] for line in text.splitlines() if line.startswith('webshop_requests_total{status="4xx"'))
    )


def test_a_body_of_64_kib_is_taken_and_a_longer_one_refused_by_the_application(port: int) -> None:
    """Waitress refused both, in plain text, and nobody counted it."""
    before = refused(port)
    assert posted(port, b"{}" + b" " * 65_534, "Content-Length: 65536")[0] == 201
    chunk = b"10001\r\n" + b" " * 65_537 + b"\r\n0\r\n\r\n"
    for body, header in ((b" " * 65_537, "Content-Length: 65537"), (chunk, "Transfer-Encoding: chunked")):
        status, head, said = posted(port, body, header)
        assert (status, json.loads(said)["error"]) == (413, "request_entity_too_large")
        assert "Content-Security-Policy: default-src 'self'" in head
    assert refused(port) == before + 2


def test_what_is_not_even_read_is_refused_too(port: int) -> None:
    assert posted(port, b"", "Content-Length: 1048576")[0] == 413


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "chunked, gzip", "identity", "x" * 500, "\xff"])
def test_an_unknown_transfer_coding_is_the_clients_fault(port: int, coding: str) -> None:
    """Waitress says 501 to it."""
    assert posted(port, b"", f"Transfer-Encoding: {coding}")[0] == 400


@pytest.mark.parametrize(
    "request_",
    [
        *(b"\x00" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET /\r\n\r\n", b"\xff\xfe / HTTP/1.1\r\n\r\n"),
        *(b"GET / HTTP/9.9\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"BREW /x HTTP/1.1\r\n\r\n", b"GET * HTTP/1.1\r\n\r\n"),
        *(b"GET //x HTTP/1.1\r\n\r\n", b"GET http://[x/ HTTP/1.1\r\n\r\n", b"GET /%ff%00 HTTP/1.1\r\n\r\n"),
        b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nNo colon\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"POST /api/sessions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /api/sessions HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /api/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nx",
        b"POST /api/sessions HTTP/1.1\r\nExpect: 200-maybe\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"POST /api/sessions HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}",
    ],
)
def test_hostile_bytes_are_no_fault_of_the_server(port: int, request_: bytes) -> None:
    status = sent(port, request_)[0]
    assert status == 0 or 200 <= status < 500
    assert sent(port, b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 200
