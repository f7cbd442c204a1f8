"""``python -m ragen_envs``: playing by lines, mistakes, and checks, which find planted defects and nothing else."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ragen_envs import AgentTurns, FrozenLake
from ragen_envs.__main__ import main
from ragen_envs.baselines import episode_seeds
from ragen_envs.check import CHECKS, Found, Line, Subject, check
from tests.support.ragen_envs.planted import PLANTED, SOUND
from tests.support.ragen_envs.registered import every_id

LAKE = "ragen/FrozenLake-v0"
# Two by two tiles without holes and slips, from the top left to the bottom right.
CORNER = '{"size": 2, "frozen_prob": 1.0, "is_slippery": false, "random_start": false}'


def test_replies_show_the_messages_of_agent_turns_to_the_letter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = FrozenLake(size=2, frozen_prob=1.0, is_slippery=False, random_start=False)
    turns = AgentTurns(lake, think=False, max_turns=5)
    first, _ = turns.reset(seed=3, options={"outcome_seed": episode_seeds(3)[0]})
    second = turns.step("<answer>Right</answer>")[0]
    last = turns.step("<answer>Left || Right || Down</answer>")[0]
    monkeypatch.setattr("sys.stdin", io.StringIO("right\nLeft||Right || down\nq\n"))
    assert main(["play", LAKE, "--env_kwargs", CORNER, "--no_think", "--seed", "3"]) == 0
    assert capsys.readouterr().out == (
        f"-- {LAKE}, seed 3\n{first}\n> right\n{second}\n> Left||Right || down\n{last}\n"
        "-- success, return 1, 4 actions in 2 turns\n> q\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("play Frozenlake", ["Frozenlake cannot be made", "known: ragen/Bandit-v0"]),
        (f"play {LAKE} --env_kwargs {{size:8}}", ["'{size:8}' is not JSON", '{"size": 8}']),
        ('play ragen/Sokoban-v0 --env_kwargs {"dim_room":[3,6],"num_boxes":2} --random', ["no solvable room"]),
        ("play CartPole-v1", ["CartPole-v1 cannot be played", "both have to be text"]),
        ("baselines Blackjack-v1", ["Blackjack-v1 has no time limit", "--max_actions"]),
        (f"baselines {LAKE} Typo-v0", ["Typo-v0 cannot be made"]),  # said before the lake is measured
    ],
)
def test_a_mistake_is_told_with_the_value(capsys: pytest.CaptureFixture[str], arguments: str, words: list[str]) -> None:
    try:
        status = main(arguments.split())
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    said, error = capsys.readouterr()
    assert status == 2 and "random" not in said
    assert "error: " in error and "Traceback" not in error
    assert all(word in error for word in words), error


def id_of(kind: type[Any]) -> str:
    return f"{kind.__module__}:planted/{kind.__name__}-v0"


@pytest.mark.parametrize(("kind", "line", "verdict"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_defect_is_found(kind: type[Any], line: str, verdict: str) -> None:
    with pytest.raises(Found) as found:
        CHECKS[line](Subject(id_of(kind), {}, 32, None))
    assert found.value.verdict == verdict


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_environment_has_no_fault_and_no_note(kind: type[Any]) -> None:
    assert {line.check for line in check(id_of(kind)) if line.verdict not in ("ok", "skipped")} == set()


@every_id
def test_our_own_environments_have_no_fault(env_id: str) -> None:
    lines = list(check(env_id, episodes=8))
    assert [line for line in lines if line.verdict == "FAULT"] == []
    assert {line.check for line in lines if line.verdict == "note"} <= {"the end"}


def test_the_command_prints_a_table_and_tells_by_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = next(kind for kind, line, _ in PLANTED if line == "any string")
    file = tmp_path / "lines.json"
    assert main(["check", id_of(kind), "--episodes", "8", "--json", str(file)]) == 1
    printed, found = capsys.readouterr().out, json.loads(file.read_text(encoding="utf-8"))
    assert found["faults"] >= 1
    for line in (Line(**each) for each in found["lines"]):
        assert f"{line.check:20} {line.verdict:8} {line.finding}" in printed
