"""Finished runs, made up, and what their report page says."""

import copy
import json
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ragen_trl.evaluation.evaluator import EvaluationResult
from ragen_trl.reporting.report import write_report


def result(success: float, low: float, high: float, mean_return: float, **other: float) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys((field.name for field in fields(EvaluationResult)), 0.0)
    values |= {"n": 512, "success": success, "success_low": low, "success_high": high, "mean_return": mean_return}
    values |= {"left_out": 0, "pass_at_k": {}, "score": None}
    return values | {"format_valid": 1.0, "return_stderr": 0.02} | other


SUMMARY: dict[str, Any] = {
    "command": "python -m ragen_trl train --env ragen/FrozenLake-v0",
    "commit": None,
    "created": "2026-01-02T03:04:05+00:00",
    "versions": {"torch": "2.13.0"},
    "machine": {"cpus": 2, "gpu": None},
    "seed": 1,
    "env": "ragen/FrozenLake-v0",
    "env_kwargs": {"size": 4},
    "algo": "starpo-s",
    "model": "tiny",
    "parameters": 1234567,
    "warm_started": True,
    "config": {"seed": 1, "output_dir": "runs/1", "learning_rate": 0.001},
    "results": {
        "random": result(0.23, 0.196, 0.268, 0.18, turns=7.1),
        "before": result(0.31, 0.272, 0.352, -0.26, turns=4.1, format_valid=0.93),
        "trained": result(0.8, 0.763, 0.832, 0.75, turns=2.7),
        "oracle": result(1.0, 0.993, 1.0, 0.95, turns=5.3),
    },
    "seconds": {"total": 512.61, "step_median": None},
    "trajectories": {"sampled": 25600, "used": 6400},
}


def changed(**changes: Any) -> dict[str, Any]:
    """The summary with other values; a dict changes single keys of one."""
    summary = copy.deepcopy(SUMMARY)
    for key, value in changes.items():
        summary[key] = {**summary[key], **value} if isinstance(value, dict) else value
    return summary


def write_run(folder: Path, summary: Any = SUMMARY, history: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    history = success_only(20) if history is None else history
    (folder / "history.json").write_text(json.dumps(history), encoding="utf-8")
    return folder


def success_only(steps: int) -> list[dict[str, Any]]:
    """The log of a run."""
    return [{"step": step, "success": step / 100} for step in range(1, steps + 1)]


def page(folders: list[Path], output: Path) -> str:
    return write_report(folders, output / "report.html").read_text(encoding="utf-8")


def elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """Tags and attributes of a page, as a browser finds them."""
    found: list[tuple[str, dict[str, str | None]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, dict(attrs)))  # type: ignore[method-assign]
    parser.feed(html)
    return found
