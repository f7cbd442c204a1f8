"""What a running server says to bytes that no client library would send."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from tests.support.webshop_server.running import COMMAND, QUICK, WORKERS, Server, running

# What gunicorn reads from the environment. None of it is an option of the command, so none may count.
ENVIRONMENT = {
    "FORWARDED_ALLOW_IPS": "*",
    "GUNICORN_CMD_ARGS": "--workers 5 --forwarded-allow-ips *",
    "GUNICORN_PID": "1",
    "LISTEN_FDS": "many",
    "NOTIFY_SOCKET": "no/socket",
    "PORT": "many",
    "SCRIPT_NAME": "/store",
    "SENDFILE": "no",
    "WEB_CONCURRENCY": "many",
}


@pytest.fixture(scope="module", params=["1", WORKERS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in ENVIRONMENT.items():
                patch.setenv(name, value)
            server = stack.enter_context(running("--workers", request.param))
        yield server
        status, said = server.stop()
        assert status == 0
        assert "Traceback" not in said


def posted(server: Server, body: bytes, *headers: str) -> tuple[int, str, bytes]:
    lines = ("POST /api/sessions HTTP/1.1", "Host: x", "Connection: close", *headers)
    return server.send("\r\n".join((*lines, "", "")).encode("latin-1") + body)


def refused(server: Server) -> int:
    """How many requests were counted as 4xx."""
    text = server.send(b"GET /metrics HTTP/1.0\r\n\r\n")[2].decode()
    return int(
        next(line.split()[1] for line in text.splitlines() if line.startswith('webshop_requests_total{status="4xx"'))
    )


def test_a_body_of_64_kib_is_taken_and_a_longer_one_refused_by_the_application(server: Server) -> None:
    """Waitress refused both, in plain text, and nobody counted it."""
    before = refused(server)
    assert posted(server, b"{}" + b" " * 65_534, "Content-Length: 65536")[0] == 201
    chunk = b"10001\r\n" + b" " * 65_537 + b"\r\n0\r\n\r\n"
    for body, header in ((b" " * 65_537, "Content-Length: 65537"), (chunk, "Transfer-Encoding: chunked")):
        status, head, said = posted(server, body, header)
        assert (status, json.loads(said)["error"]) == (413, "request_entity_too_large")
        assert "Content-Security-Policy: default-src 'self'" in head
    assert refused(server) == before + 2


def test_what_is_not_even_read_is_refused_too(server: Server) -> None:
    assert posted(server, b"", "Content-Length: 1048576")[0] == 413


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "chunked, gzip", "identity", "x" * 500, "\xff"])
def test_an_unknown_transfer_coding_is_the_clients_fault(server: Server, coding: str) -> None:
    """Waitress says 501 to it."""
    assert posted(server, b"", f"Transfer-Encoding: {coding}")[0] == 400


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
def test_hostile_bytes_are_no_fault_of_the_server(server: Server, request_: bytes) -> None:
    status = server.send(request_)[0]
    assert status == 0 or 200 <= status < 500
    assert server.send(b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        ("SCRIPT_NAME: /x",),
        ("SCRIPT_NAME: /",),
        ("SCRIPT_NAME: /healthz",),
        ("PATH_INFO: /x", "REMOTE_USER: x"),
        ("X-Forwarded-Proto: https", "X-Forwarded-Ssl: off"),
        ("X-Forwarded-For: 1.2.3.4", "X-Forwarded-Prefix: /x", "Forwarded: for=1.2.3.4;proto=https"),
    ],
)
def test_headers_of_a_proxy_do_not_count(server: Server, headers: tuple[str, ...]) -> None:
    """Gunicorn trusts clients on the same machine: it answered 500, 404 and 400."""
    request = "\r\n".join(("GET /healthz HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""))
    status, _, body = server.send(request.encode())
    assert (status, json.loads(body)) == (200, {"ready": True})


@pytest.mark.parametrize(
    "headers",
    [
        "".join(f"X-{number}: {number}\r\n" for number in range(5000)),  # gunicorn takes 100
        f"X: {'a' * 200_000}\r\n",  # and 8190 bytes of each
        f"Cookie: {'a' * 100_000}\r\nReferer: {'b' * 100_000}\r\n",
    ],
)
def test_headers_of_less_than_256_kib_are_taken(server: Server, headers: str) -> None:
    assert server.send(f"GET /healthz HTTP/1.0\r\n{headers}\r\n".encode())[0] == 200


@pytest.mark.parametrize("headers", [f"X: {'a' * 270_000}\r\n", f"X: {'a' * 900}\r\n" * 300, "a_:\r\n" * 100_000])
def test_headers_of_more_than_256_kib_are_refused(server: Server, headers: str) -> None:
    assert server.send(f"GET /healthz HTTP/1.0\r\n{headers}\r\n".encode())[0] in (0, 431)  # 0: closed while it sends


def test_a_body_that_breaks_off_makes_no_session(server: Server) -> None:
    """Werkzeug took what had come of it for all, where the server handed over the connection."""

    def made() -> list[str]:
        return re.findall(r"sessions_created_total \d+", server.client.get("/metrics").text)

    before = made()
    assert posted(server, b"  ", "Content-Length: 10")[0] in (0, 400)
    assert posted(server, b"2\r\n{}\r\n5\r\nab", "Transfer-Encoding: chunked")[0] in (0, 400)
    assert made() == before


def test_the_longest_search_of_the_form_is_no_longer_than_an_address_may_be(server: Server) -> None:
    words = quote("\U0001f600" * 1000)
    assert server.client.get("/visitor").status_code == 200
    assert server.client.get(f"/search_results/visitor/{words}/1").status_code == 200


STALLED = (b"", b"GET / HTTP/1.1\r\nHo", b"POST /api/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
# Gunicorn's workers wait for the rest of a request for a shorter time than usual, so that the test is quick.
IMPATIENT = """
import sys
from webshop_server.server import several_processes
from webshop_server.server.command import main
several_processes._REQUEST_SECONDS = 0.1
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("workers", ["1", WORKERS])
def test_a_client_that_stops_in_the_middle_of_a_request_does_not_hold_up_others_for_ever(workers: str) -> None:
    """A thread of gunicorn's waited for the rest for ever, and for the first byte five seconds."""
    program = COMMAND if workers == "1" else (sys.executable, "-c", QUICK + IMPATIENT)
    with running("--workers", workers, "--threads", "1", program=program) as server, ExitStack() as connections:
        for start in STALLED * 2:
            connections.enter_context(server.connect()).sendall(start)
        for _ in range(4):  # a connection each, so that both workers are asked
            assert server.send(b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 200
        assert server.stop() == (0, "")
