"""The command `webshop-server`: it starts, answers, survives hostile bytes and the death of a worker, and stops."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.support.webshop_server.running import WORKERS, Server, running

Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as servers:
        yield lambda *arguments: servers.enter_context(running(*arguments))


def step(client: httpx.Client, token: str, action: str) -> httpx.Response:
    return client.post(f"/api/sessions/{token}/step", json={"action": action})


@pytest.mark.skipif(sys.platform == "win32", reason="several workers need fork")
def test_several_workers_share_sessions_and_survive_the_death_of_one(start: Start) -> None:
    server = start("--workers", "2")
    token = server.client.post("/api/sessions", json={"goal": 4}).json()["session"]
    names = [f"fixed_{number}" for number in range(6)]
    instructions = {name: server.client.get(f"/{name}").text for name in names}
    # A connection each, so that both workers are asked.
    for number in range(10):
        with httpx.Client(base_url=server.client.base_url) as client:
            assert step(client, token, f"search[shoe {number}]").json()["valid"]
    before = server.workers()
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while len(set(server.workers()) - {before[0]}) < 2:
        assert time.monotonic() < deadline, "the dead worker was not replaced"
        time.sleep(0.02)
    for _ in range(10):
        with httpx.Client(base_url=server.client.base_url, transport=httpx.HTTPTransport(retries=2)) as client:
            answer = client.get(f"/api/sessions/{token}").json()
            assert (answer["goal"], "shoe" in answer["url"]) == (4, True)
            assert {name: client.get(f"/{name}").text for name in names} == instructions
            numbers = client.get("/metrics").text
    assert "webshop_steps_total 10\n" in numbers
    status, said = server.stop()
    assert status == 0
    assert re.fullmatch(rf"[^\n]*Worker \(pid:{before[0]}\) was sent SIGKILL![^\n]*\n", said)


@pytest.mark.parametrize("workers", ["1", WORKERS])
def test_what_has_come_is_answered_before_the_end(start: Start, workers: str) -> None:
    server = start("--workers", workers)
    tokens = [server.client.post("/api/sessions", json={}).json()["session"] for _ in range(8)]
    statuses: list[int] = []
    errors: list[str] = []

    def shop(token: str) -> None:
        with httpx.Client(base_url=server.client.base_url, timeout=20) as client:
            try:
                while True:
                    statuses.append(step(client, token, "search[shoe]").status_code)
            except httpx.ConnectError:
                pass
            except httpx.HTTPError as error:
                errors.append(type(error).__name__)

    threads = [threading.Thread(target=shop, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    while statuses.count(200) < 24:
        assert any(thread.is_alive() for thread in threads), errors
        time.sleep(0.01)
    assert server.stop() == (0, "")
    for thread in threads:
        thread.join(timeout=20)
    assert set(statuses) <= {200, 503}
    # A kept connection may be closed while a request is on its way; one whose answer was begun is not cut.
    assert set(errors) <= {"RemoteProtocolError", "ReadError", "WriteError"}


@pytest.fixture(scope="module", params=["1", WORKERS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running("--workers", request.param) as server:
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


HOSTILE = (
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
)


def test_hostile_bytes_are_no_fault_of_the_server(server: Server) -> None:
    for request in HOSTILE:
        status = server.send(request)[0]
        assert status == 0 or 200 <= status < 500, request[:100]
    assert server.send(b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 200
