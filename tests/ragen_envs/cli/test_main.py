"""``python -m ragen_envs`` as a user runs it: with a pipe, on a terminal, and with every known mistake."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from ragen_envs import TextEnv
from ragen_envs.baselines import Baseline, measure
from ragen_envs.cli.main import main
from ragen_envs.webshop.local_store import HiddenGoalError
from tests.support.ragen_envs.commands import check_one_line
from tests.support.ragen_envs.registered import IDS

COMMAND = [sys.executable, "-m", "ragen_envs"]
LAKE = "ragen/FrozenLake-v0"
CORNER = '{"size": 2, "frozen_prob": 1.0, "is_slippery": false, "random_start": false}'


class Silent(TextEnv):
    """Nobody knows how to play it."""

    instruction = "Say nothing."
    actions = ("hush",)

    def _start(self, options: Mapping[str, Any]) -> str:
        return "Psst."

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return "Psst.", 0.0, False, {"success": False, "action_is_effective": False}


gymnasium.register("test/Silent-v0", Silent, max_episode_steps=3)


class Twins(Silent):
    """Two actions of one name."""

    actions = ("Hush", "hush")


gymnasium.register("test/Twins-v0", Twins, max_episode_steps=3)


class Terminal:
    """A command on its own terminal."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.outside, self.inside = pty.openpty()
        self.mode = termios.tcgetattr(self.inside)
        # In the background of a shell jobs ignore SIGINT, and a child would inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        streams = {"stdin": self.inside, "stdout": self.inside, "stderr": self.inside}
        environment = {**os.environ, "PYTHONUTF8": "1"}
        self.process = subprocess.Popen([*COMMAND, *arguments], cwd=root, env=environment, **streams)
        signal.signal(signal.SIGINT, before)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read the output until it contains `text`; then drop it."""
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.outside], [], [], 0.1)[0]:
                self.seen += os.read(self.outside, 65536).decode()
        self.seen = self.seen.partition(text)[2]

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.outside, keys)

    def close(self) -> int:
        """The exit status, once the command has ended and the terminal is as it was."""
        status = self.process.wait(60)
        assert termios.tcgetattr(self.inside) == self.mode
        os.close(self.outside)
        os.close(self.inside)
        return status


def test_keys_on_a_terminal(root: Path) -> None:
    terminal = Terminal(root, "play", LAKE, "--env_kwargs", CORNER)
    terminal.wait_for("P_\r\n_G")
    terminal.type(b"\x1b[C")
    terminal.wait_for("_P\r\n_G\r\n\r\nRight: reward 0, return 0, 9 actions left")
    terminal.type(b"s")
    terminal.wait_for("The end: success, return 1, 2 actions")
    terminal.type(b"r")
    terminal.wait_for(f"{LAKE}, seed 1")
    terminal.type(b"q")
    assert terminal.close() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_leaves_the_terminal_as_it_was(root: Path, number: int, status: int) -> None:
    terminal = Terminal(root, "play", "ragen/Bandit-v0")
    terminal.wait_for("q: quit")
    assert termios.tcgetattr(terminal.inside) != terminal.mode
    terminal.process.send_signal(number)
    assert terminal.close() == status
    assert "Traceback" not in terminal.seen


def test_text_on_a_terminal(root: Path) -> None:
    terminal = Terminal(root, "play", LAKE, "--text", "--no_think", "--env_kwargs", CORNER)
    terminal.wait_for("Reply format: <answer>Left || Down</answer>")
    terminal.wait_for("> ")
    terminal.type(b"Right || Down\n")
    terminal.wait_for("-- success, return 1, 2 actions in 1 turn")
    terminal.type(b"\x04")
    assert terminal.close() == 0


def test_lines_through_a_pipe(root: Path) -> None:
    play = [*COMMAND, "play", LAKE, "--env_kwargs", CORNER]
    done = subprocess.run(play, cwd=root, input=b"Right\nD\xffwn\nDown\n", capture_output=True, timeout=60)
    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line for line in text.splitlines() if line.startswith((">", "-- "))] == [
        f"-- {LAKE}, seed 0",
        "> Right",
        "> D\ufffdwn",
        "-- format penalty -0.1",
        "> Down",
        "-- success, return 0.9, 2 actions in 3 turns",
    ]


def test_a_reader_that_leaves_is_no_trace(root: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "play", "ragen/Bandit-v0"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdin is not None and process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


def test_watching_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", LAKE, "--oracle", "--env_kwargs", CORNER, "--seed", "2"]) == 0
    shown = capsys.readouterr().out
    assert f"{LAKE}, seed 2" in shown
    assert [line.split(":")[0] for line in shown.splitlines() if "reward" in line] == ["Down", "Right"]
    assert "The end: success, return 1, 2 actions" in shown
    assert main(["play", LAKE, "--oracle", "--text", "--no_think", "--max_turns", "1", "--env_kwargs", CORNER]) == 0
    assert "> <answer>Down || Right</answer>\nThe end\n" in capsys.readouterr().out


def test_the_limits_are_those_of_the_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Up || Up || Up\n"))
    limits = ["--max_turns", "3", "--max_actions_per_turn", "2", "--max_actions", "4"]
    assert main(["play", LAKE, "--env_kwargs", CORNER, *limits]) == 0
    shown = capsys.readouterr().out
    assert "Limits: actions per turn 2, actions in all 4, turns 3" in shown
    assert "Turn 2 of 3" in shown and "-- ignored, past a limit: Up" in shown
    assert "Actions left: 2" in shown


def test_the_limits_of_a_model_are_those_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: every environment had five turns of up to five actions."""
    assert main(["play", "ragen/ToyShop-v0", "--text", "--oracle"]) == 0
    assert "Limits: actions per turn 1, actions in all 5, turns 5" in capsys.readouterr().out


def test_baselines_as_a_table_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rows.json"
    options = ["--episodes", "40", "--seed", "5", "--json", str(target)]
    assert main(["baselines", LAKE, "ragen/Bandit-v0", *options]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert shown.err == ""
    heads = ["environment", "policy", "actions", "success [95 %]", "return", "length", "n", "seconds"]
    assert re.split(r"\s{2,}", lines[0]) == heads
    assert [line.split()[:3] for line in lines[1:5]] == [
        [LAKE, "random", "10"],
        [LAKE, "oracle", "10"],
        ["ragen/Bandit-v0", "random", "1"],
        ["ragen/Bandit-v0", "oracle", "1"],
    ]
    assert "1.000 [0.912, 1.000]" in lines[4]  # Wilson: 40 / (40 + z²)
    results = json.loads(target.read_text())
    expected = measure(LAKE, "oracle", episodes=40, first_seed=5).as_dict()
    assert {**results["rows"][1], "seconds": 0} == {**expected, "seconds": 0}
    command = f"python -m ragen_envs baselines {LAKE} ragen/Bandit-v0 --episodes 40 --seed 5 --json"
    assert results["command"].startswith(command)


def test_rows_outlive_an_oracle_that_cannot_see_the_goal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the random row, which was measured first, was thrown away."""

    def unseeing(env_id: str, policy: str, *arguments: Any, **options: Any) -> Baseline:
        if policy == "oracle":
            raise HiddenGoalError("only the server knows the goal")
        return measure(env_id, policy, *arguments, **options)

    monkeypatch.setattr("ragen_envs.cli.main.measure", unseeing)
    assert main(["baselines", LAKE, "--episodes", "4", "--json", str(tmp_path / "rows.json")]) == 0
    assert capsys.readouterr().err == "left out: only the server knows the goal\n"
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["random"]


def test_baselines_play_every_environment_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baselines", "--episodes", "2", "--max_actions", "1"]) == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert first == [env_id for env_id in IDS for _ in range(2)]


def test_list_has_a_line_for_each_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(lines) == {env_id for env_id in gymnasium.registry if env_id.startswith("ragen/")}
    assert lines[LAKE] == "Cross a frozen lake without falling into a hole."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play"], ["ID"]),
        (["plya"], ["'plya'", "'play'"]),
        (["play", "Frozenlake"], ["'Frozenlake'", f"did you mean {LAKE}?", "known: ragen/Bandit-v0"]),
        (["play", "ragen/FrozenLake-v7"], ["ragen/FrozenLake-v7", f"did you mean {LAKE}?"]),
        (["play", "zzz"], ["there is no environment 'zzz'; known: ragen/Bandit-v0"]),
        (["play", "no_such_module:me/Env-v0"], ["no_such_module"]),
        (["play", "CartPole-v1"], ["CartPole-v1 is not a TextEnv", "TextFromDiscrete"]),
        (["play", LAKE, "--env_kwargs", "{size: 8}"], ["'{size: 8}' is not JSON", '{"size": 8}']),
        (["play", LAKE, "--env_kwargs", "[8]"], ["'[8]' is not a JSON object", '{"size": 8}']),
        (["play", LAKE, "--env_kwargs", '{"sise": 8}'], ["no argument 'sise'", "it takes size, frozen_prob"]),
        (["play", LAKE, "--env_kwargs", '{"size": 1}'], ["size=1", "2 or more"]),
        (["play", LAKE, "--env_kwargs", '{"size": "a"}'], [LAKE, '{"size": "a"}']),
        (["play", "ragen/Sokoban-v0", "--env_kwargs", '{"num_boxes": 1.0}'], ["num_boxes=1.0 is a float"]),
        (["play", "ragen/Sokoban-v0", "--env_kwargs", '{"num_boxes": 30}'], ["num_boxes=30 do not fit"]),
        (
            ["play", "ragen/Sokoban-v0", "--env_kwargs", '{"dim_room": [3, 6], "num_boxes": 2}', "--random"],
            ["no solvable room", "dim_room=(3, 6)"],
        ),
        (["play", "ragen/Bandit-v0", "--env_kwargs", '{"low_name": 5}'], ["the name 5"]),
        (["play", "ragen/Bandit-v0", "--env_kwargs", '{"names": [["A", 1]]}'], ["the name 1"]),
        (["play", "ragen/Bandit-v0", "--env_kwargs", '{"low_reward": "x"}'], ["low_reward"]),
        (["play", "ragen/Countdown-v0", "--env_kwargs", '{"counts": 3.0}'], ["counts=3.0"]),
        (["play", "ragen/Countdown-v0", "--env_kwargs", '{"number_range": 5}'], ["number_range=5"]),
        (["play", "ragen/WebShop-v0", "--env_kwargs", '{"catalog": "/nowhere"}'], ["catalog='/nowhere'", "/nowhere"]),
        (["play", "ragen/WebShop-v0", "--env_kwargs", '{"max_steps": 2.5}'], ["max_steps=2.5 is a float"]),
        (["baselines", "ragen/WebShop-v0", "--env_kwargs", '{"split": "tset"}'], ["tset"]),
        (["play", "test/Twins-v0"], ["Twins.actions has 'Hush' and 'hush'"]),
        (["play", LAKE, "--seed", "-1"], ["--seed", "'-1'"]),
        (["play", LAKE, "--max_actions", "0"], ["--max_actions", "'0'"]),
        (["play", LAKE, "--delay", "nan"], ["--delay", "'nan'"]),
        (["play", LAKE, "--oracle", "--random"], ["--random", "--oracle"]),
        (["baselines", "ragen/Lake-v0"], ["ragen/Lake-v0"]),
        (["baselines", "Blackjack-v1"], ["Blackjack-v1 has no time limit", "--max_actions"]),
        (["baselines", LAKE, "--episodes", "many"], ["--episodes", "'many'"]),
        (["baselines", "ragen/Bandit-v0", "--json", "."], ["--json", "name a file"]),
    ],
)
def test_a_mistake_gets_one_line_with_the_value(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    check_one_line(capsys, arguments, words)


def test_an_environment_without_policies_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baselines", "CartPole-v1", "--episodes", "2"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert "@random_action.register(CartPoleEnv)" in error[0]
    assert "@best_action.register(CartPoleEnv)" in error[1]
    assert error[2] == "error: nothing was measured, because no policy is registered for these environments"


@pytest.mark.parametrize("how", [[], ["--text"]])
def test_an_oracle_that_is_not_there_is_told_before_anything_is_shown(
    capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    assert main(["play", "test/Silent-v0", "--oracle", *how]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: best_action knows no Silent; write one") and shown.err.count("\n") == 1


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    usage = capsys.readouterr().out
    assert all(command in usage for command in ("play", "baselines", "list"))
    with pytest.raises(SystemExit) as stopped:
        main(["play", "--help"])
    assert stopped.value.code == 0
    assert "--env_kwargs" in capsys.readouterr().out
