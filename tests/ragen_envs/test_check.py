"""`ragen_envs.check`: planted defects are found, each by its line, and sound environments have no fault."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen_envs.__main__ import main
from ragen_envs.check import CHECKS, Found, Line, Subject, check
from tests.support.ragen_envs.planted import PLANTED, SOUND
from tests.support.ragen_envs.registered import every_id


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
