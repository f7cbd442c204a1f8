"""OpenEnv both ways, with its own client, its own server and the echo environment of its own template."""

import sys
from collections.abc import Iterator

import pytest

from ragen_envs import AgentTurns, OpenEnvText, openenv_environment
from tests.support.ragen_envs.bridging import answer, serving, small_turns

env_server = pytest.importorskip("openenv.core.env_server", reason="make test-bridges runs this one")


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
    env = OpenEnvText(echo, action="message", observation="echoed_message", instruction="Say something long.")
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


def test_there_and_back_again_is_the_same(lake: str) -> None:
    """The small lake on a server, played by the bridge inwards: rewards, ends and success are those of `AgentTurns`."""
    far, near = OpenEnvText(lake), small_turns()
    for reply in (answer("Right", "Down"), answer("Left"), "nonsense"):
        assert far.reset(seed=1)[0] == near.reset(seed=1)[0]
        seen, expected = far.step(reply), near.step(reply)
        assert seen[:4] == expected[:4] and seen[4]["success"] == expected[4]["success"]
        assert far.step(reply)[1:4] == (0.0, *expected[2:4])  # after the end nothing happens
    far.close()
