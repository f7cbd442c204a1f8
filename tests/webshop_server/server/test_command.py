"""Servers: `webshop-server` and gunicorn start, answer, survive the death of a worker, and stop."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

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
    assert said.startswith("webshop-server: ") and "Address already in use" in said
    assert server.stop()[0] == 0
