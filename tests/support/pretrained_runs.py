"""Results of a pretrained model's runs as `agents.results` keeps them, made up, and the page that they make."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import results, runs
from pages.pretrained import pretrained_tables

MODEL = "models/SmolLM2-135M-Instruct"
BY_NAME = {run.name: run for run in runs.all_runs(MODEL)}


def rate(success: float) -> dict[str, Any]:
    low, high = max(0.0, success - 0.05), min(1.0, success + 0.05)
    return {"n": 256, "success": success, "success_low": low, "success_high": high, "format_valid": 0.9}


MORNING, NOON = "2026-11-22T08:00:00+00:00", "2026-11-22T12:00:00+00:00"


def finished(name: str, success: float, created: str = MORNING, **more: Any) -> dict[str, Any]:
    run = BY_NAME[name]
    found = {"random": rate(0.2), "model": rate(success), "oracle": rate(1.0)}
    known = {"name": name, "game": run.game, "stage": run.stage, "seed": run.seed, "digest": run.digest}
    known |= {"commit": "abcdef0123456", "created": created, "settings": run.settings}
    return {**known, "evaluations": {"sampled": {"held out": found}}, **more}


TRAINED: dict[str, Any] = {
    "curve": [
        {"step": 0, "success": 0.2, "trajectories": 0, "reference_trajectories": 0},
        {"step": 60, "success": 0.7, "trajectories": 3840, "reference_trajectories": 0},
    ],
    "training": {"seconds": {"training": 1800.0}},
    "examples": {
        when: [{"success": True, "step": step, "turns": [{"observation": "P_G", "reply": "<answer>Right</answer>"}]}]
        for when, step in (("before", 1), ("after", 60))
    },
}


def page(*found: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    every = list(BY_NAME.values())
    content = results.collect(every, results.known(every, found), "command", "SmolLM2-135M-Instruct")
    content = json.loads(json.dumps(content))
    return pretrained_tables(content), content


def stored(folder: Path, policy: str, env: str, rows: Sequence[dict[str, Any]]) -> None:
    """Episodes as an evaluation stores them."""
    (folder / "episodes").mkdir(exist_ok=True)
    lines = [json.dumps({"policy": policy, "env": env, **row}) for row in rows]
    (folder / "episodes" / f"{policy}-on-{env}.jsonl").write_text("\n".join(lines) + "\n")
