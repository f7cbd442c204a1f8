"""The count of hits and false alarms: rows that are kept, the main job's, and what the table says of them."""

import json
from pathlib import Path
from typing import Any

import warning_signs
from pages.warning_signs import signs_table


def row(seed: int, question: str = "collapse", **changes: Any) -> dict[str, Any]:
    plain = {
        **{"question": question, "task": "t", "variant": "starpo_s", "label": "S", "seed": seed, "calibrated": False},
        **{"steps": 10, "success": [0.4, 0.5, 0.5], "drop": None, "signs": [], "first_early": None, "lead": None},
    }
    return {**plain, **changes}


def test_a_run_that_is_not_here_keeps_the_row_of_the_commit_that_judged_it() -> None:
    earlier = {"commit": "a" * 40, "not_judged": 7, "runs": [row(1), row(2, first_early=3)]}
    rows, not_judged = warning_signs.with_earlier([row(2, commit="b" * 40)], 0, earlier)
    assert [(one["seed"], one["commit"][0], one["first_early"]) for one in rows] == [(1, "a", None), (2, "b", None)]
    assert not_judged == 7
    table = signs_table({"commit": "b" * 40, "runs": rows, "not_judged": 7})
    assert "Judged by commits `aaaaaaaaa` (1 runs) and `bbbbbbbbb` (1 runs)." in table


def test_the_main_job_has_a_row_of_counts_and_one_for_each_run() -> None:
    rows = [row(1, "train"), row(42, "train", calibrated=True, first_early=71)]
    lines = signs_table({"commit": "b" * 40, "runs": rows, "not_judged": 0}).splitlines()
    counts = next(line for line in lines if line.startswith("| of all, the main job (`make train`) (2) |"))
    assert counts.split("|")[2:-1] == [" 0 ", " 0 ", " 0 ", " 0 ", " 2 ", " 1 [0.09, 0.91] "]
    assert sum(line.startswith("| train, t |") for line in lines) == 2


def test_a_finished_run_of_the_main_job_is_judged_by_its_kept_evaluations(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"seed": 3}))
    (tmp_path / "held_out.json").write_text(json.dumps([{"step": 0, "success": 0.4}, {"step": 20, "success": 0.8}]))
    spread = {step: 1.0 if step < 20 else 0.2 for step in range(1, 60)}
    history = [{"step": step, "success": 0.4, "filter/in_group_std": std} for step, std in spread.items()]
    (tmp_path / "history.json").write_text(json.dumps([*history, {"step": 60, "train_runtime": 1.0}]))
    found = warning_signs.judged(*reversed(warning_signs.main_job(tmp_path)))
    assert (found["seed"], found["calibrated"], found["success"]) == (3, False, [0.4, 0.8, 0.8])
    assert [sign["name"] for sign in found["signs"]] == ["spread_falls"]
    assert found["drop"] is None and found["first_early"] == found["signs"][0]["step"]
