"""What is kept of runs in committed JSON: the log's measures, and JSON that stays small."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from records import committed, measures
from records.results import write_result

from ragen_trl.monitoring.alerts import find_alerts
from tests.support.project import ROOT


def log(steps: int, updates: int = 4) -> list[dict[str, Any]]:
    """A run of so many rollouts whose spread and entropy fall; what a rollout says is logged at its first update."""
    rows = []
    for step in range(1, steps * updates + 1):
        fallen = 1.0 if step < 20 * updates else 0.123456789
        row = {"step": step, "entropy": fallen, "grad_norm": math.inf if step == 7 else 1.0, "loss": 0.1, "kl": 0.2}
        if step % updates == 1:
            row |= {"success": 0.4, "return": 0.4, "filter/in_group_std": fallen, "collapse/in_group_std": fallen}
        rows.append(row)
    return [*rows, {"step": steps * updates, "train_runtime": 3.0}]


def test_the_alerts_of_a_run_are_those_of_what_is_kept_of_it() -> None:
    history = log(60)
    kept = json.loads(json.dumps(measures.measures(history)))
    fired = [(alert.rule.name, alert.step) for alert in find_alerts(history[:-1])]
    assert {name for name, _ in fired} == {"spread_falls", "entropy_drops"}
    assert [(alert.rule.name, alert.step) for alert in find_alerts(measures.rows(kept))] == fired


def test_a_result_says_where_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "a.json"
    write_result(path, "python benchmarks/a.py", seed=0, rows=[1.5])
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["command", "commit", "created", "versions", "machine", "seed", "rows"]
    assert (content["command"], content["seed"], content["rows"]) == ("python benchmarks/a.py", 0, [1.5])
    assert capsys.readouterr().out == f"written: {path}\n"


def test_columns_are_kept_once_with_their_own_steps_and_four_digits() -> None:
    rollouts, updates = measures.measures(log(30))["series"]
    assert updates["steps"] == list(range(1, 121)) and rollouts["steps"] == list(range(1, 121, 4))
    assert set(updates["values"]) == {"entropy", "grad_norm"}
    assert set(rollouts["values"]) == {"success", "return", "filter/in_group_std"}
    assert updates["values"]["entropy"][-1] == 0.1235 and updates["values"]["grad_norm"][6] == math.inf


def test_json_is_what_it_was_and_an_evaluation_takes_a_line() -> None:
    rows = [{"step": step, "success": [step, None]} for step in range(3)]
    task = {"prepared": {}, "variants": {"a": {"label": "ä", "runs": [{"seed": 0, "curve": rows, "final": {"x": 1}}]}}}
    content = {"name": "q", "tasks": {"t": task}, "empty": []}
    text = committed.as_text(content)
    assert json.loads(text) == content
    assert [line.strip() for line in text.splitlines() if "step" in line][0] == '{"step":0,"success":[0,null]},'


def test_measures_of_a_run_that_questions_share_are_kept_in_one_file(tmp_path: Path) -> None:
    (tmp_path / committed.LOGGED).mkdir()
    for name, digests in (("a", ["1", "2"]), ("b", ["3"])):
        (tmp_path / committed.LOGGED / f"{name}.json").write_text(json.dumps(dict.fromkeys(digests, {"series": []})))
    assert committed.logged_elsewhere(tmp_path, "b.json") == {"1", "2"}
    assert committed.logged_elsewhere(tmp_path, "a.json") == {"3"}
    assert set(committed.read(tmp_path).measures) == {"1", "2", "3"}


def test_two_different_results_of_the_same_settings_are_an_error() -> None:
    """Regression: the last one counted without a word, and pages showed two results of the same runs."""
    one, other = {"digest": "a", "commit": "old"}, {"digest": "a", "commit": "new"}
    assert committed.by_digest([one, {"seed": 2}, dict(one)]) == {"a": one}
    with pytest.raises(committed.ConflictingResultsError, match="of the settings a, of the commits old and new; put"):
        committed.by_digest([one, other])


def test_no_two_committed_results_of_the_same_settings_differ() -> None:
    assert len(committed.read(ROOT / "benchmarks" / "results").runs) > 100


def test_scripts_refuse_to_measure_the_package_of_another_checkout(tmp_path: Path) -> None:
    (tmp_path / "ragen_trl").mkdir()
    (tmp_path / "ragen_trl" / "__init__.py").touch()
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "benchmarks")])
    command = [sys.executable, "-c", "import records"]
    ended = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": paths}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"would measure the package in {tmp_path / 'ragen_trl'}" in ended.stderr
    assert f"PYTHONPATH={ROOT}" in ended.stderr
