"""OpenEnv both ways, with its own client, its own server and the echo environment of its own template."""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns, FrozenLake, ToolTurns
from ragen_envs.bridges import ForeignEnvError, OpenEnvText, OpenEnvTools, openenv_environment
from tests.support.ragen_envs.bridging import RULES, serving, small_turns
from tests.support.ragen_envs.toys import answer

env_server = pytest.importorskip("openenv.core.env_server", reason="make test-bridges runs this one")


def call(name: str, arguments: str) -> str:
    """A reply with one call."""
    return f'<tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of the echo environment that ``openenv init`` writes."""
    from openenv.cli.__main__ import app as command
    from typer.testing import CliRunner

    folder = tmp_path_factory.mktemp("openenv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")  # without uv, which would look for packages
        made = CliRunner().invoke(command, ["init", "echo_demo", "--output-dir", str(folder)])
        assert made.exit_code == 0, made.output
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        from echo_demo.models import EchoDemoAction, EchoDemoObservation
        from echo_demo.server.echo_demo_environment import EchoDemoEnvironment

        app = env_server.create_app(EchoDemoEnvironment, EchoDemoAction, EchoDemoObservation, max_concurrent_envs=2)
        with serving(app) as url:
            yield url
    for name in [name for name in sys.modules if name.split(".")[0] == "echo_demo"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def lake() -> Iterator[str]:
    """The server of the small lake, in turns."""
    with serving(env_server.create_app(*openenv_environment(small_turns), max_concurrent_envs=4)) as url:
        yield url


def test_openenvs_own_echo_is_played_in_turns(echo: str) -> None:
    env = OpenEnvText(echo, instruction="Say something long.")
    turns = AgentTurns(env, max_turns=2, max_actions_per_turn=1)
    message, info = turns.reset(seed=3)
    assert message.startswith("Say something long.\nLimits: actions per turn 1,")
    assert message.endswith("Turn 1 of 2\nState:\nEcho Demo environment ready!\nActions left: 10")
    assert info["env_info"]["message_length"] == 0
    message, reward, terminated, truncated, info = turns.step(answer("Größe √"))
    assert message == "Turn 2 of 2\nReward: 0.7\nState:\nGröße √\nActions left: 9"
    assert (reward, terminated, truncated, info["success"]) == (pytest.approx(0.7), False, False, False)
    assert info["env_info"]["message_length"] == 7
    _, reward, terminated, truncated, info = turns.step("nothing readable")
    assert (reward, terminated, truncated, info["limit"]) == (-0.1, False, True, "turns")
    env.close()


def test_a_server_without_room_and_one_that_is_gone_are_named(echo: str) -> None:
    taken = [OpenEnvText(echo) for _ in range(3)]  # the server has room for two
    with pytest.raises(ForeignEnvError, match=r"(?i)gives no answer: .*capacity.*raise its max_concurrent_envs"):
        taken[2].reset(seed=0)
    for env in taken:
        env.close()
    with pytest.raises(ForeignEnvError, match=r"no OpenEnv server answers at http://127\.0\.0\.1:9: .*; start it"):
        OpenEnvText("http://127.0.0.1:9")


def test_a_server_that_reads_text_is_named_where_tools_are_wanted(echo: str) -> None:
    env = OpenEnvTools(echo, task="Say something.")
    with pytest.raises(ForeignEnvError, match="it takes other actions: OpenEnvTools is for servers with tools"):
        env.reset(seed=0)
    env.close()


def test_an_older_openenv_is_named(echo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`openenv-core` 0.3 is imported by the same name, and its results have no metadata."""
    old = dataclasses.make_dataclass("StepResult", ["observation", "reward", "done"])
    monkeypatch.setattr("openenv.core.client_types.StepResult", old)
    with pytest.raises(ImportError, match=r"too old; pip install 'ragen-trl\[openenv\]'"):
        OpenEnvText(echo)


def test_a_text_must_be_found_in_the_schema(echo: str) -> None:
    with pytest.raises(ValueError, match="has no such text: the fields of its action are message"):
        OpenEnvText(echo, action="text")
    with pytest.raises(ValueError, match="the fields of its observation are echoed_message, message_length"):
        OpenEnvText(echo, observation="message_length")
    with pytest.raises(ValueError, match="timeout=0"):
        OpenEnvText(echo, timeout=0)


def test_openenvs_client_plays_ours(lake: str) -> None:
    from openenv.core import GenericEnvClient

    with GenericEnvClient(base_url=lake).sync() as one, GenericEnvClient(base_url=lake).sync() as other:
        begun = one.reset(seed=0)
        assert begun.observation["text"].startswith(RULES) and not begun.done and begun.reward is None
        assert other.reset(seed=0, outcome_seed=4).done is False
        won, lost = one.step({"text": answer("Right", "Down")}), other.step({"text": "nonsense"})
        assert won.observation["text"] == "The end\nReward: 1\nState:\n__\n_√\nActions left: 8"
        assert (won.reward, won.done, won.observation["success"], won.observation["truncated"]) == (
            1.0,
            True,
            True,
            False,
        )
        assert (lost.reward, lost.done, lost.observation["truncated"]) == (-0.1, True, True)
        assert one.state()["step_count"] == 1


def test_there_and_back_again_is_the_same(lake: str) -> None:
    """The small lake on a server, played by the bridge inwards: rewards, ends and success are those of `AgentTurns`."""
    far, near = OpenEnvText(lake), small_turns()
    for reply in (answer("Right", "Down"), answer("Left"), "nonsense"):
        assert far.reset(seed=1)[0] == near.reset(seed=1)[0]
        seen, expected = far.step(reply), near.step(reply)
        assert seen[:4] == expected[:4] and seen[4]["success"] == expected[4]["success"]
        assert far.step(reply)[1:4] == (0.0, *expected[2:4])  # after the end nothing happens
    far.close()


def test_gymnasiums_checker_passes(echo: str) -> None:
    env = OpenEnvText(echo)
    check_env(env, skip_render_check=True, skip_close_check=True)
    env.close()


def test_seeds_and_outcome_seeds_reach_the_server() -> None:
    app = env_server.create_app(*openenv_environment("ragen/FrozenLake-v0"), max_concurrent_envs=2)
    with serving(app) as url:
        far, near = OpenEnvText(url), AgentTurns(FrozenLake())
        slips = set()
        for outcome in range(8):
            options = {"outcome_seed": outcome}
            assert far.reset(seed=5, options=options)[0] == near.reset(seed=5, options=options)[0]
            slips.add(far.step(answer("Down"))[0])
            assert near.step(answer("Down"))[0] in slips
        assert len(slips) > 1
        far.close()


def calculator() -> Any:
    """An `MCPEnvironment` with a task, a tool, and a reward for the sum that was asked for."""
    from fastmcp import FastMCP

    server = FastMCP("calculator")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        if a < 0:
            raise ValueError("no negative numbers")
        return a + b

    class Sums(env_server.MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True
        wanted = 0

        def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Any:
            self.wanted = 10 + (seed or 0)
            return env_server.Observation(metadata={"message": f"Make {self.wanted}."})

        async def step_async(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
            seen = await super().step_async(action, timeout_s=timeout_s, **more)
            if isinstance(action, env_server.CallToolAction) and seen.error is None:
                seen.done = seen.result.data == self.wanted
                seen.reward = float(seen.done)
            return seen

        def _step_impl(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
            raise AssertionError("only tools are called")

        @property
        def state(self) -> Any:
            return env_server.State()

    return Sums(server)


@pytest.fixture(scope="module")
def sums() -> Iterator[str]:
    """The server of the calculator."""
    app = env_server.create_app(calculator, env_server.CallToolAction, env_server.CallToolObservation)
    with serving(app) as url:
        yield url


def test_a_server_with_tools_is_played_by_calls(sums: str) -> None:
    env = OpenEnvTools(sums)
    turns = ToolTurns(env)
    assert turns.reset(seed=2)[0] == "Carry out the task by calling tools.\nMake 12."
    assert [tool["function"]["name"] for tool in turns.tools] == ["add"]
    assert turns.tools[0]["function"]["description"] == "Add two numbers."
    *_, info = turns.step(call("add", '"a": 1'))
    assert info["tool_results"] == ("Error: add needs b",) and info["format_penalty"] == -0.1
    message, reward, *_, info = turns.step(call("add", '"a": -1, "b": 3'))
    assert "no negative numbers" in message and info["tool_failed"] and reward == 0.0
    assert turns.step(call("add", '"a": 1, "b": 2'))[:4] == ("3", 0.0, False, False)
    message, reward, terminated, truncated, info = turns.step(call("add", '"a": 5, "b": 7'))
    assert (message, reward, terminated, truncated, info["success"]) == ("12", 1.0, True, False, True)
    turns.reset(seed=2)
    assert turns.step("I cannot.")[1:4] == (0.0, True, False)
    env.close()


def test_text_of_a_server_with_tools_is_refused(sums: str) -> None:
    with pytest.raises(ValueError, match="has tools; use OpenEnvTools"):
        OpenEnvText(sums)


def test_tools_of_a_server_with_text_are_refused(echo: str) -> None:
    env = OpenEnvTools(echo, task="Echo.")
    with pytest.raises((ForeignEnvError, ValueError), match=r"OpenEnv server at"):
        env.reset(seed=0)
    env.close()
