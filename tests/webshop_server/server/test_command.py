"""Servers: `webshop-server` and gunicorn start, answer, survive hostile bytes and the death of a worker, and stop."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from ragen_envs import WebShop
from ragen_envs.webshop.shoppers import scripted_shop_action
from tests.support.webshop_server.running import GUNICORN, WAITRESS, Server, running

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
