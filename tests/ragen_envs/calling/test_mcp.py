"""McpTools against a real server of the Model Context Protocol, as a process on this machine."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragen_envs import McpTools, ToolTurns
from ragen_envs.calling.mcp import McpServerError
from ragen_envs.calling.tool import ToolError
from tests.support.ragen_envs.toys import calls

SERVER = Path(__file__).parents[2] / "support" / "ragen_envs" / "mcp_server.py"
TASKS = ["Bring the counter to 6."]


def reached_six(env: McpTools) -> tuple[float, bool]:
    """The judge reads the state by a call that the model does not see."""
    done = env.call("read").startswith("6 ")
    return float(done), done


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def processes(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()]


def gone(pids: list[int]) -> bool:
    """Whether all of them end within some seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpTools]:
    pytest.importorskip("mcp")
    path = tmp_path_factory.mktemp("mcp") / "pids"
    env = McpTools([sys.executable, str(SERVER), str(path)], TASKS, reached_six, call_timeout=2.0, start_timeout=60)
    yield env
    pids = processes(path)
    env.close()
    assert gone(pids), "the server or its child was left behind"


def test_tools_are_those_of_the_server(shared: McpTools) -> None:
    tools = {each["function"]["name"]: each["function"] for each in shared.schemas}
    assert list(tools) == ["add", "read", "fail", "sleep", "garble", "stop"]
    assert tools["add"]["description"].startswith("Add a number to the counter.")
    assert tools["add"]["parameters"]["required"] == ["number"]
    assert tools["add"]["parameters"]["properties"]["number"]["type"] == "integer"


def test_an_episode_errors_and_the_next_episode(shared: McpTools, tmp_path: Path) -> None:
    env = ToolTurns(shared, max_turns=20, max_actions=20)
    message, _ = env.reset(seed=0)
    assert message.endswith("Bring the counter to 6.")
    message, reward, terminated, _, info = env.step(calls(("add", {"number": 2, "times": 2}), ("read", {})))
    assert info["tool_results"] == ("the counter is 4", "4 → ✓") and (reward, terminated) == (0.0, False)
    assert message in env.observation_space
    info = env.step(calls(("fail", {}), ("add", {"number": "two"}), ("add", {"n": 2}), ("erase", {})))[4]
    assert [result[:32] for result in info["tool_results"]] == [
        "Error: Error executing tool fail",
        "Error: number of add must be an ",
        "Error: add needs number",
        "Error: there is no such tool; th",
    ]
    began = time.monotonic()
    assert env.step(calls(("sleep", {"seconds": 30})))[4]["tool_results"] == ("Error: no result within 2 seconds",)
    assert time.monotonic() - began < 25
    # Regression: the SDK stopped to read at a byte that is no UTF-8, and every later call waited for its limit.
    assert env.step(calls(("garble", {}), ("read", {})))[4]["tool_results"] == ("garbled", "4 → ✓")
    message, reward, terminated, _, info = env.step(calls(("add", {"number": 2})))
    assert (message, reward, terminated, info["success"]) == ("the counter is 6", 1.0, True, True)
    assert "Bring" in env.reset(seed=1)[0]
    assert env.step(calls(("read", {})))[0] == "0 → ✓"  # a new process: nothing is left


def test_a_server_that_dies_is_an_error_and_is_started_again(shared: McpTools) -> None:
    env = ToolTurns(shared)
    env.reset(seed=0)
    # Its child holds its output, so that the SDK does not see the end.
    assert env.step(calls(("stop", {})))[0] == "Error: the server has ended"
    assert env.step(calls(("read", {})))[0] == "Error: the server has ended"
    env.reset(seed=0)
    assert env.step(calls(("read", {})))[0] == "0 → ✓"


def test_a_judge_may_end_an_episode_in_failure(shared: McpTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_judged_by", lambda env: (-1.0, True, {"success": False}))
    turns = ToolTurns(shared)
    turns.reset(seed=0)
    _, reward, terminated, _, info = turns.step(calls(("add", {"number": 9})))
    assert (reward, terminated, info["success"]) == (-1.0, True, False)


def test_a_kept_server_that_dies_is_started_again_at_the_next_reset(tmp_path: Path) -> None:
    """Regression: with `restart=False` a dead server was kept, and every later episode was worth nothing."""
    pytest.importorskip("mcp")
    path = tmp_path / "pids"
    command = [sys.executable, str(SERVER), str(path)]
    env = McpTools(command, TASKS, reached_six, call_timeout=3.0, start_timeout=60, restart=False)
    turns = ToolTurns(env)
    turns.reset(seed=0)
    turns.step(calls(("add", {"number": 2})))
    turns.reset(seed=1)
    assert turns.step(calls(("read", {})))[0] == "2 → ✓"
    started = processes(path)
    assert turns.step(calls(("stop", {})))[0].startswith("Error: ")
    # Regression: the judge's call raised, as if the environment had crashed.
    assert turns.step("I have done it.")[1:4] == (0.0, True, False)
    turns.reset(seed=2)
    assert turns.step(calls(("read", {})))[0] == "0 → ✓"
    started += processes(path)
    env.close()
    assert gone(started)


def test_a_judge_that_gets_an_error_of_the_server_raises_it(shared: McpTools, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may call the wrong tool; only a server that does not answer is no mistake of the judge."""
    shared.reset(seed=0)
    monkeypatch.setattr(shared, "_judged_by", lambda env: (float(env.call("fail") == ""), False))
    with pytest.raises(ToolError, match="Error executing tool fail"):
        shared.step('{"answer": "Done."}')
    monkeypatch.setattr(shared, "_judged_by", lambda env: (float(env.call("sleep", {"seconds": 30}) == ""), False))
    shared.reset(seed=0)
    assert shared.step('{"answer": "Done."}')[1:3] == (0.0, True)


def test_a_launcher_may_end_and_a_forgotten_server_ends_at_once(tmp_path: Path) -> None:
    """Regression: a process that ends was taken for the server, and a cycle kept the connection for the collector."""
    pytest.importorskip("mcp")
    launcher = "import subprocess, sys; subprocess.Popen(sys.argv[1:])"
    command = [sys.executable, "-c", launcher, sys.executable, str(SERVER), str(tmp_path / "pids")]
    env = McpTools(command, TASKS, reached_six, start_timeout=60, restart=False)
    env.reset(seed=0)
    assert env.call("add", {"number": 2}) == "the counter is 2"
    env.reset(seed=1)
    assert env.call("read") == "2 → ✓"  # the same server
    gc.disable()
    try:
        del env
        assert gone(processes(tmp_path / "pids"))
    finally:
        gc.enable()


def test_an_interrupt_during_the_start_leaves_nothing(tmp_path: Path, python_handles_interrupts: None) -> None:
    """Regression: nobody owned the server before it had listed its tools."""
    pytest.importorskip("mcp")
    path = tmp_path / "pids"

    def interrupt() -> None:
        while not (path.exists() and processes(path)):
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        McpTools([sys.executable, str(SERVER), str(path), "--silent"], TASKS, reached_six, start_timeout=60)
    assert gone(processes(path))


def test_a_call_may_take_longer_than_the_start(tmp_path: Path) -> None:
    """Regression: the limit of the start was that of calls, too."""
    pytest.importorskip("mcp")
    command = [sys.executable, str(SERVER), str(tmp_path / "pids")]
    for limit in (2.0, 4.0, 8.0):  # the least that this machine keeps
        try:
            env = McpTools(command, TASKS, reached_six, call_timeout=20, start_timeout=limit)
            break
        except McpServerError:
            if limit == 8:
                raise
    assert env.call("sleep", {"seconds": limit + 1}) == "awake"
    env.close()


def test_a_server_that_does_not_start_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    with pytest.raises(McpServerError, match="MCP server 'no-such-program' could not be started"):
        McpTools(["no-such-program"], TASKS, reached_six)
    with pytest.raises(McpServerError, match="could not be started: Connection closed; it may have written more"):
        McpTools([sys.executable, "-c", ""], TASKS, reached_six)
    began = time.monotonic()
    silent = [sys.executable, str(SERVER), str(tmp_path / "pids"), "--silent"]
    with pytest.raises(McpServerError, match="could not be started: it did not list its tools within 1.5 seconds"):
        McpTools(silent, TASKS, reached_six, start_timeout=1.5)
    assert time.monotonic() - began < 12  # the SDK asks a silent server several times, as long each time
    assert gone(processes(tmp_path / "pids"))


def test_a_program_that_forgets_to_close_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    command = [sys.executable, str(SERVER), str(tmp_path / "pids")]
    script = (
        "from ragen_envs import McpTools\n"
        f"env = McpTools({command!r}, ['Do.'], lambda env: (0.0, False), start_timeout=60)\n"
        "env.reset(seed=0)\nprint(env.call('add', {'number': 3}))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout.strip() == "the counter is 3", done.stderr
    assert gone(processes(tmp_path / "pids"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": "python server.py"}, "must be a list, such as"),
        ({"tasks": []}, "must be a list of at least one task"),
        ({"restart": "no"}, "restart='no' is a str; use True or False"),
        ({"call_timeout": 0}, "call_timeout=0 must be a number of seconds above 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    given = {"command": ["python"], "tasks": TASKS, "judge": reached_six, **arguments}
    with pytest.raises(ValueError, match=said):
        McpTools(**given)
