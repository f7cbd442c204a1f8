"""The command `webshop-server`: it starts, answers, survives the death of a worker, stops, and says what is wrong."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.project import ROOT
from tests.support.webshop_server.running import COMMAND, QUICK, WORKERS, Server, running
from webshop_server.__main__ import main

Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as servers:
        yield lambda *arguments: servers.enter_context(running(*arguments))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def step(client: httpx.Client, token: str, action: str) -> httpx.Response:
    return client.post(f"/api/sessions/{token}/step", json={"action": action})


@pytest.mark.parametrize("workers", ["1", WORKERS])
def test_it_serves_until_ctrl_c(start: Start, workers: str) -> None:
    server = start("--workers", workers)
    count = "1 worker" if workers == "1" else "2 workers"
    assert server.line == f"webshop-server: toy at http://127.0.0.1:{server.port}, {count}; Ctrl-C stops it\n"
    assert server.client.get("/healthz").json() == {"ready": True}
    assert server.client.get("/static/store.css").status_code == 200
    server.client.close()
    os.killpg(server.process.pid, signal.SIGINT)  # a terminal sends it to all processes
    assert server.wait() == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="it counts as Linux does")
def test_an_idle_server_sleeps_and_stops_soon_all_the_same(start: Start) -> None:
    """Waitress makes a whole number of its time to wait: 0.05 seconds became 0, and it kept a core busy."""
    server = start()

    def worked() -> int:
        """Hundredths of a second of processor time, in user and system mode."""
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")")[1].split()
        return int(fields[11]) + int(fields[12])

    before = worked()
    time.sleep(1.0)
    assert worked() - before <= 10
    began = time.monotonic()
    assert server.stop() == (0, "")
    assert time.monotonic() - began < 0.9  # it looks at the connections once a second


def test_goals_are_revealed_where_that_is_wanted(start: Start) -> None:
    server = start("--reveal-goals")
    server.client.get("/fixed_0")
    results = server.client.get("/search_results/fixed_0/shoe/1").text
    asin = re.findall(r'href="/item_page/fixed_0/(\w+)/', results)[0]
    assert 'id="goal-asin"' in server.client.get(f"/done/fixed_0/{asin}/{{}}").text


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
    deadline = time.monotonic() + 15
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


@pytest.mark.skipif(sys.platform == "win32", reason="several workers need fork")
def test_workers_stop_and_clean_up_when_their_parent_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = QUICK + "import sys\nfrom webshop_server.server.command import main\nsys.exit(main(sys.argv[1:]))"
    with running("--workers", "2", program=(sys.executable, "-c", program)) as server:
        workers = server.workers()
        assert len(list(tmp_path.iterdir())) == 1
        server.process.kill()
        server.process.communicate()
    deadline = time.monotonic() + 15
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


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


def test_a_taken_port_is_one_line_and_status_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for workers in ("1", "2"):
            done = run("--catalog", "toy", "--port", str(port), "--workers", workers)
            assert done.returncode == 2
            assert done.stderr == (
                f"webshop-server: cannot serve at 127.0.0.1:{port}: Address already in use; choose another --port or "
                "--host\n"
            )
            assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--catalog", "no/such/folder"),
        ("--catalog", "synthetic:many"),
        ("--catalog", "toy", "--nouns", "magic"),
        ("--catalog", "toy", "--host", "256.1.1.1"),
        ("--catalog", "toy", "--ttl", "0"),
        ("--catalog", "toy", "--log", "/proc/x"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_status_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--port", "0", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"webshop-server: [^\n]+\n", said.err), said.err


def test_several_workers_that_cannot_start_say_why_in_one_line() -> None:
    done = run("--port", "0", "--workers", "2", "--catalog", "no/such/folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"webshop-server: [^\n]+\n", done.stderr), done.stderr


def test_arguments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--port", "65536"), ("--workers", "0"), ("--threads", "x"), ("--reward", "tiered")):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert arguments[0] in capsys.readouterr().err
