"""From run folders to one standalone HTML page, and to the table on the terminal.

The page says in one sentence what came out, next to the random policy and the oracle, and says so if no improvement was
shown. It also takes a run that still goes on and the output folder of a script's trainer: what is not there yet is left
out. A page loads nothing, and only its own script may run in it.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragen_trl.algorithms.intervals import with_interval
from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.tables import result_table
from ragen_trl.monitoring.alerts import Alert, find_alerts, trailing_means
from ragen_trl.system.atomic import damage, read_json, reading, write_atomically
from ragen_trl.training.checkpoints import whole_checkpoints
from ragen_trl.training.recorder import recordings

POLICIES = ("random", "before", "trained", "oracle")
"""Rows in the order of every table: random policy, start of training, end of training, best possible policy."""
_FILES = {"summary.json": dict, "history.json": list}
# What is never shown: options that are secrets, such options on the command line, and Hugging Face's tokens anywhere.
_SECRET_OPTION = re.compile(r"(^|_)token$|api_key|password|secret")
_SECRET_TEXT = re.compile(r"(--\w*(?:token|api_key|password|secret)[ =])\S+|\bhf_[A-Za-z0-9]{16,}")


@dataclass(frozen=True)
class Run:
    """A training run: its folder, what ``summary.json`` holds (empty while it goes on), and the logged rows in order.

    A row has a ``step``; any other metric may be missing or ``None``.
    """

    path: Path
    summary: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The results of the policies that were played."""
        found = self.summary.get("results", {})
        return {name: found[name] for name in POLICIES if name in found and "not_played" not in found[name]}

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts that fired, in order."""
        return find_alerts(self.history)

    def successes(self) -> list[tuple[float, float]]:
        """(step, success in training) in the order of steps; of a step that was logged twice, the last value counts."""
        points = {row["step"]: float(row["success"]) for row in self.history if _is_number(row.get("success"))}
        return [(float(step), points[step]) for step in sorted(points)]


def read_run(folder: str | Path) -> Run:
    """Read a run folder: ``summary.json`` and ``history.json``, or without it the log in the newest checkpoint.

    Raises `UserError` if there is nothing, or with a file's name if it cannot be read.
    """
    folder = Path(folder)
    summary, history = (_read(folder / name, kind) for name, kind in _FILES.items())
    if history is None:
        whole = whole_checkpoints(folder)
        history = _read(whole[max(whole)] / "trainer_state.json", dict).get("log_history", []) if whole else []
    if summary is None and not history and not recordings(folder):
        raise UserError(f"{folder} holds no training run: no summary.json, no checkpoint, nothing recorded")
    return Run(folder, summary or {}, history)


def lost_files(folder: Path) -> list[str]:
    """What is missing, cut off or damaged of what a finished run wrote last."""
    lost = []
    for name, kind in _FILES.items():
        with suppress(OptionError):
            if _read(folder / name, kind) is not None:
                continue
        lost.append(name)
    page = folder / "report.html"
    lost += [page.name] * (not page.is_file() or not page.read_bytes().rstrip().endswith(b"</html>"))
    return lost + ["model"] * bool(damage(folder / "model", contents=True))


def _read(path: Path, kind: Any) -> Any:
    """The content of a JSON file; ``None`` if there is no such file."""
    with suppress(FileNotFoundError):
        return read_json(path, kind, "write or copy it again", finite=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def results_table(summary: dict[str, Any]) -> list[list[str]]:
    """The results of a run, a row for each policy: the baselines beside the model's numbers."""
    results, start = summary.get("results", {}), "warm start" if summary.get("warm_started") is True else "before"
    labels = {"before": f"({start})"}
    return result_table({labels.get(name, name): results[name] for name in POLICIES if name in results})


def sentence(run: Run, label: str = "") -> str:
    """One run in a sentence, with the verdict that the intervals of the paired differences allow.

    If such an interval contains 0, it says that no difference was shown, not that there is none.
    """
    results, start = run.results, "after the warm start" if run.summary.get("warm_started") is True else "before"
    if "before" not in results or "trained" not in results:
        last = max((int(row["step"]) for row in run.history), default=0)
        return f"{label or 'This run'} has no results yet; the last logged step is {last}."
    trained = results["trained"]
    counts = {result["n"] for result in results.values()}
    states = f"{counts.pop()} held-out start states" if len(counts) == 1 else "held-out start states (n: see the table)"
    rates = [f"{name} {results[name]['success']:.2f}" for name in ("random", "oracle") if name in results]
    text = (
        f"{label + ': s' if label else 'S'}uccess on {states}: {with_interval(results['before'], 2)} {start}, "
        f"{with_interval(trained, 2)} after training{'; ' if rates else ''}{', '.join(rates)}."
    )
    differences = trained.get("differences", {})
    if found := differences.get("before"):
        said = "Success rose" if found["low"] > 0 else "Success fell" if found["high"] < 0 else "No improvement shown"
        text += f" {said}: the difference is {with_interval(found, 2, '+')}, paired by start state."
    if (found := differences.get("random")) and found["low"] <= 0:
        text += " The trained policy is not shown to be better than the random one."
    return text + _course(run)


def _course(run: Run) -> str:
    """What happened on the way that the last results do not show: a collapse, a recovery, replies at their cap."""
    text, successes = "", run.successes()
    fallen = next((fired for fired in run.alerts if fired.rule.name == "success_falls"), None)
    if fallen is not None:
        best = max(trailing_means([success for step, success in successes if step <= fallen.step], 20))
        now = fmean(success for _, success in successes[-20:])
        text += f" Success in training fell from {best:.2f} to {fallen.value:.2f} by step {fallen.step}"
        text += f" and recovered to {now:.2f}." if now >= 0.9 * best else " and did not recover."
    cut = [row["completions/clipped_ratio"] for row in run.history if _is_number(row.get("completions/clipped_ratio"))]
    if cut and (share := fmean(cut[-20:])) >= 0.05:
        text += f" At the end {share:.0%} of the trajectories ended with a reply that its token limit cut."
    return text


def write_report(folders: Sequence[Path], output: Path) -> Path:
    """Write the report on run folders as a single file, whole or not at all; errors are as in `read_run`."""
    runs = [read_run(folder) for folder in folders]
    for run in runs:
        with reading(run.path, "its summary.json or history.json was changed: write it again"):
            sentence(run), results_table(run.summary), run.alerts, run.successes()
    page = _page(runs)
    write_atomically(output, _SECRET_TEXT.sub(lambda found: (found[1] or "") + "***", page))
    return output


def _page(runs: list[Run]) -> str:
    # Late: it loads matplotlib, which the table on the terminal does not need.
    from ragen_trl.reporting.figures import COLOURS, draw

    names = [run.path.name for run in runs]
    labels = [""] if len(runs) == 1 else names if len(set(names)) == len(names) else [str(run.path) for run in runs]
    colours = [COLOURS[order % len(COLOURS)] for order in range(len(runs))]
    alerts = [(label, fired) for run, label in zip(runs, labels, strict=True) for fired in run.alerts]
    curves = [run.successes() for run in runs]
    drawing = Markup(draw(curves, [run.results for run in runs])) if any(curves) else ""
    recorded_runs, blocks = pack([run.path for run in runs], labels)
    titles = [list(dict.fromkeys(str(run.summary.get(key, run.path.name)) for run in runs)) for key in ("algo", "env")]
    code = "\n(() => {\n" + "\n".join(map(_static, ("drawing.js", "viewer.js"))) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    environment = Environment(
        loader=PackageLoader("ragen_trl.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=" on ".join(dict.fromkeys(", ".join(found) for found in titles)),
        style=Markup(_static("report.css")),
        script=Markup(code),
        allowed=f"'sha256-{digest}'",
        sentences=[sentence(run, label) for run, label in zip(runs, labels, strict=True)],
        tables=list(zip(labels, colours, [results_table(run.summary) for run in runs], strict=True)),
        drawing=drawing,
        alerts=alerts,
        recorded_runs=recorded_runs,
        blocks=blocks,
        sections=[(label or "What was run", _facts(run)) for run, label in zip(runs, labels, strict=True)],
    )


def _static(name: str) -> str:
    return (files("ragen_trl.reporting") / "static" / name).read_text(encoding="utf-8")


def _facts(run: Run) -> str:
    """Everything about a run that is not a result, as JSON, without options that are secrets."""
    facts = {name: value for name, value in run.summary.items() if name not in ("results", "monitor")}
    for name, value in facts.items():
        if isinstance(value, dict):
            facts[name] = {key: one for key, one in value.items() if not _SECRET_OPTION.search(key)}
    return json.dumps(facts, indent=2, ensure_ascii=False)


def pack(folders: Sequence[Path], labels: Sequence[str]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """The runs and their recorded rollouts, for the script, and name and content of each rollout.

    A rollout is as it is on disk, in base64; the script unpacks the one that a reader opens.
    """
    runs: list[dict[str, Any]] = []
    blocks: list[tuple[str, str]] = []
    for folder, label in zip(folders, labels, strict=True):
        steps = []
        for path in recordings(folder):
            step = path.name.removeprefix("step-").removesuffix(".json.gz").lstrip("0")
            steps.append({"name": step, "block": f"recording-{len(blocks)}"})
            blocks.append((steps[-1]["block"], base64.b64encode(path.read_bytes()).decode("ascii")))
        if steps:
            runs.append({"label": label, "steps": steps})
    return runs, blocks
