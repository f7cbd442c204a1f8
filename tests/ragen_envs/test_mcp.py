"""McpTools against a real server of the Model Context Protocol, as a process on this machine."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragen_envs import McpTools, ToolTurns
from ragen_envs.calling.mcp import McpServerError
from tests.support.ragen_envs.notes import calls

SERVER = Path(__file__).parents[1] / "support" / "ragen_envs" / "mcp_server.py"
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
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpTools]:
    pytest.importorskip("mcp")
    path = tmp_path_factory.mktemp("mcp") / "pids"
    env = McpTools([sys.executable, str(SERVER), str(path)], TASKS, reached_six, call_timeout=8.0)
    yield env
    pids = processes(path)
    env.close()
    assert gone(pids), "the server or its child was left behind"


def test_an_episode_errors_and_the_next_episode(shared: McpTools) -> None:
    tools = {each["function"]["name"]: each["function"] for each in shared.schemas}
    assert list(tools) == ["add", "read", "fail", "sleep", "garble", "learn", "stop"]
    assert tools["add"]["description"].startswith("Add a number to the counter.")
    assert tools["add"]["parameters"]["required"] == ["number"]
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
    assert env.step(calls(("sleep", {"seconds": 30})))[4]["tool_results"] == ("Error: no result within 8 seconds",)
    assert time.monotonic() - began < 25
    # Regression: the SDK stopped to read at a byte that is no UTF-8, and every later call waited for its limit.
    assert env.step(calls(("garble", {}), ("read", {})))[4]["tool_results"] == ("garbled", "4 → ✓")
    message, reward, terminated, _, info = env.step(calls(("add", {"number": 2})))
    assert (message, reward, terminated, info["success"]) == ("the counter is 6", 1.0, True, True)
    assert "Bring" in env.reset(seed=1)[0]
    assert env.step(calls(("read", {})))[0] == "0 → ✓"  # a new process: nothing is left


def test_tools_that_a_server_adds_and_removes_and_an_embedded_resource(shared: McpTools) -> None:
    """Regression: a resource was shown as "[resource]", and a new tool was unknown."""
    env = ToolTurns(shared)
    env.reset(seed=0)
    assert env.step(calls(("recall", {})))[0].startswith("Error: there is no such tool")
    assert env.step(calls(("learn", {})))[0] == "[resource memo://1]\nrecall what you learn"
    assert env.step(calls(("recall", {}), ("learn", {})))[4]["tool_results"] == (
        "recalled",
        "Error: there is no such tool; the tools are add, read, fail, sleep, garble, stop, recall",
    )


def test_a_server_that_dies_is_an_error_and_is_started_again(shared: McpTools) -> None:
    env = ToolTurns(shared)
    env.reset(seed=0)
    # Regression: its child, which holds its output, lived on, so that the SDK did not see the end.
    assert env.step(calls(("stop", {})))[0] == "Error: the server has ended"
    assert env.step(calls(("read", {})))[0] == "Error: the server has ended"
    env.reset(seed=0)
    assert env.step(calls(("read", {})))[0] == "0 → ✓"


def test_a_server_that_does_not_start_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mcp")
    with pytest.raises(McpServerError, match="there is no program 'no-such-program'"):
        McpTools(["no-such-program"], TASKS, reached_six)
    with pytest.raises(McpServerError, match="could not be started: Connection closed; it may have written more"):
        McpTools([sys.executable, "-c", ""], TASKS, reached_six)
    monkeypatch.setattr("ragen_envs.calling.mcp.START_TIMEOUT", 1.5)
    began = time.monotonic()
    silent = [sys.executable, str(SERVER), str(tmp_path / "pids"), "--silent"]
    with pytest.raises(McpServerError, match="could not be started: Request 'initialize' timed out"):
        McpTools(silent, TASKS, reached_six)
    assert time.monotonic() - began < 20  # the SDK asks a silent server several times, as long each time
    assert gone(processes(tmp_path / "pids"))
