"""The count of hits and false alarms: rows that are kept, the main job's, and what the table says of them."""

import json
from pathlib import Path
from typing import Any

import warning_signs
from pages.warning_signs import signs_table
from records.committed import every_log, read

from ragen_trl.monitoring.alerts import find_alerts
from tests.support.project import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def row(seed: int, question: str = "collapse", **changes: Any) -> dict[str, Any]:
    plain = {
        **{"question": question, "task": "t", "variant": "starpo_s", "label": "S", "env": "E", "seed": seed},
        **{"digest": f"{question} {seed}", "calibrated": False, "rollouts": 18, "steps": 18},
        **{"success": [0.4, 0.5, 0.5], "drop": None, "signs": [], "first_early": None, "lead": None},
    }
    return {**plain, **changes}


def content(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"commit": "b" * 40, "runs": rows, "not_judged": 7, "fewest_rollouts": warning_signs.FEWEST_ROLLOUTS}


def committed(*rows: dict[str, Any]) -> dict[str, Any]:
    """The runs that these rows are of."""
    return {one["digest"]: {"curve": [{"success": rate} for rate in one["success"]]} for one in rows}


def test_a_row_of_a_run_that_was_replaced_or_is_in_no_json_any_more_is_left_out() -> None:
    """Regression: rows were kept by the names of their runs, and two were of runs that others had replaced."""
    replaced, gone, kept, main_job = row(1), row(2), row(3), row(0, "train")
    runs = committed({**replaced, "success": [0.4, 0.5, 0.45]}, kept)
    earlier = {"commit": "a" * 40, "runs": [replaced, gone, kept, main_job]}
    assert [one["digest"] for one in warning_signs.with_earlier([], earlier, runs)] == ["collapse 3", "train 0"]


def test_the_committed_rows_are_those_of_the_committed_runs() -> None:
    runs, results = read(RESULTS).runs, json.loads((RESULTS / "warning_signs.json").read_text(encoding="utf-8"))
    rows = [one for one in results["runs"] if one["question"] != "train"]
    assert len(rows) > 100 and all(warning_signs.is_of(one, runs.get(one.get("digest"))) for one in rows)
    unjudged = (every_log(RESULTS).keys() & runs.keys()) - {one.get("digest") for one in rows}
    assert not unjudged, "run python benchmarks/warning_signs.py"


def test_a_run_that_is_not_here_keeps_the_row_of_the_commit_that_judged_it() -> None:
    earlier = {"commit": "a" * 40, "runs": [row(12), row(2, first_early=3)]}
    rows = warning_signs.with_earlier([row(2, commit="b" * 40)], earlier, committed(row(12)))
    assert [(one["seed"], one["commit"][0], one["first_early"]) for one in rows] == [(12, "a", None), (2, "b", None)]
    table = signs_table(content(rows))
    assert "Judged by commits `aaaaaaaaa` (1 runs) and `bbbbbbbbb` (1 runs)." in table


def test_the_main_job_has_a_row_of_counts_and_one_for_each_run() -> None:
    rows = [row(1, "train"), row(42, "train", calibrated=True, first_early=71)]
    lines = signs_table(content(rows)).splitlines()
    counts = next(line for line in lines if line.startswith("| of all, the main job (`make train`) (2) |"))
    assert counts.split("|")[2:-1] == [" 0 ", " 0 ", " 0 ", " 0 ", " 2 ", " 1 [0.09, 0.91] "]
    assert sum(line.startswith("| train, t |") for line in lines) == 2


def test_a_finished_run_of_the_main_job_is_judged_by_its_kept_evaluations(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"seed": 3, "env": "E"}))
    (tmp_path / "held_out.json").write_text(json.dumps([{"step": 0, "success": 0.4}, {"step": 20, "success": 0.8}]))
    spread = {step: 1.0 if step < 20 else 0.2 for step in range(1, 60)}
    history = [{"step": step, "success": 0.4, "filter/in_group_std": std} for step, std in spread.items()]
    (tmp_path / "history.json").write_text(json.dumps([*history, {"step": 60, "train_runtime": 1.0}]))
    found = warning_signs.judged(*reversed(warning_signs.main_job(tmp_path)))
    assert (found["seed"], found["calibrated"], found["success"]) == (3, False, [0.4, 0.8, 0.8])
    assert [sign["name"] for sign in found["signs"]] == ["spread_falls"]
    assert found["drop"] is None and found["first_early"] == found["signs"][0]["step"]
    assert found["rollouts"] == 59


def test_a_seed_on_which_a_threshold_was_checked_is_not_fresh_in_kept_rows_either() -> None:
    """Regression: seed 11 of collapse.py was counted as fresh, although its runs had decided a threshold."""
    earlier = {"commit": "a" * 40, "runs": [row(11), row(12), row(42, "train"), row(1, "train")]}
    rows = warning_signs.with_earlier([], earlier, committed(row(11), row(12)))
    assert [(one["seed"], one["calibrated"]) for one in rows] == [(11, True), (12, False), (42, True), (1, False)]


def test_runs_too_short_for_any_alert_are_not_counted_as_silent() -> None:
    """Regression: 39 runs of 16 rollouts were counted as healthy runs without a false alarm."""
    others = [row(seed, "filtering", rollouts=rollouts) for seed, rollouts in enumerate((16, 17, 18, 22))]
    lines = signs_table(content([row(12), *others])).splitlines()
    assert any(line.startswith("| other questions: `E` (2) | 0 | 0 | 0 | 0 | 2 | 0 [0.00, 0.66] |") for line in lines)
    assert "3 runs counted; 2 had fewer than 18 rollouts" in lines[-1]


def test_no_early_alert_fires_before_the_fewest_rollouts_that_are_counted() -> None:
    def early(rollouts: int) -> list[str]:
        good = {"success": 0.8, "filter/in_group_std": 1.0, "collapse/actions_per_turn": 2.0, "collapse/effective": 1.0}
        bad = {"success": 0.0, "filter/in_group_std": 0.0, "collapse/actions_per_turn": 0.0, "collapse/effective": 0.0}
        good |= {"collapse/identical_replies": 0.0, "collapse/reply_tokens": 20.0, "entropy": 1.0, "collapse/mi": 1.0}
        bad |= {"collapse/identical_replies": 1.0, "collapse/reply_tokens": 1.0, "entropy": 1e-3, "collapse/mi": 1.0}
        rows = [{"step": step, **(good if step <= 10 else bad)} for step in range(1, rollouts + 1)]
        return [alert.rule.name for alert in find_alerts(rows) if alert.rule.kind == "early"]

    assert early(warning_signs.FEWEST_ROLLOUTS - 1) == [] != early(warning_signs.FEWEST_ROLLOUTS)
