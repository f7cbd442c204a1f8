"""From run folders to one standalone HTML page, and to the table on the terminal.

The page says in one sentence what came out, next to the random policy and the oracle, and says so if no improvement was
shown. It also takes a run that still goes on and the output folder of a script's trainer: what is not there yet is left
out. A page loads nothing, and only its own script may run in it.
"""

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragen_trl.algorithms.intervals import with_interval
from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.evaluator import Row, judged
from ragen_trl.evaluation.folder import episodes_by_policy
from ragen_trl.evaluation.tables import result_table, table_order
from ragen_trl.monitoring.alerts import Alert, find_alerts, trailing_means
from ragen_trl.rollout.episode import FAILED
from ragen_trl.system.atomic import damage, read_json, write_atomically
from ragen_trl.training.recorder import recordings

_LARGEST_PAGE = 18 << 20  # bytes of a page's episodes, so that it opens in any browser
_FILES = {"summary.json": dict, "history.json": list}
# What is never shown: options that are secrets, such options on the command line, and Hugging Face's tokens anywhere.
_SECRET_OPTION = re.compile(r"(^|_)token$|api_key|password|secret")
_SECRET_TEXT = re.compile(r"(--\w*(?:token|api_key|password|secret)[ =])\S+|\bhf_[A-Za-z0-9]{16,}")


@dataclass(frozen=True)
class Run:
    """A run, or an evaluation: its folder, what ``summary.json`` holds, the logged rows in order, kept episodes.

    While a run goes on its summary has the results of the episodes so far. A row has a ``step``; any other metric may
    be missing or ``None``.
    """

    path: Path
    summary: dict[str, Any]
    history: list[dict[str, Any]]
    episodes: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The results of the policies that were played."""
        found = self.summary.get("results", {})
        return {name: found[name] for name in sorted(found, key=table_order) if "not_played" not in found[name]}

    @cached_property
    def alerts(self) -> list[Alert]:
        """The alerts that fired, in order."""
        return find_alerts(self.history)

    def successes(self) -> list[tuple[float, float]]:
        """(step, success in training) in the order of steps; of a step that was logged twice, the last value counts."""
        points = {row["step"]: float(row["success"]) for row in self.history if _is_number(row.get("success"))}
        return [(float(step), points[step]) for step in sorted(points)]


def read_run(folder: str | Path) -> Run:
    """Read a run folder: ``summary.json``, ``history.json`` and the episodes, as far as they are there.

    Raises `UserError` if there is nothing, or with a file's name if it cannot be read.
    """
    folder = Path(folder)
    summary, history = (_read(folder / name, kind) for name, kind in _FILES.items())
    episodes = episodes_by_policy(folder)
    if summary is None and not history and not episodes and not recordings(folder):
        raise UserError(f"{folder} holds no run: no summary.json, no history.json, no episodes, nothing recorded")
    if summary is None:
        judgeable = {name: rows for name, rows in episodes.items() if any(row["limit"] not in FAILED for row in rows)}
        summary = {"results": {name: asdict(judged(rows)) for name, rows in judgeable.items()}}
    return Run(folder, summary, history or [], episodes)


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
        return read_json(path, kind, "write or copy it again")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def sentence(run: Run, label: str = "") -> str:
    """One run in a sentence, with the verdict that the intervals of the paired differences allow.

    If such an interval contains 0, it says that no difference was shown, not that there is none.
    """
    results, start = run.results, "after the warm start" if run.summary.get("warm_started") is True else "before"
    if "before" not in results or "trained" not in results:
        last = max((int(row["step"]) for row in run.history), default=0)
        each = [f"{name} {with_interval(found, 2)} (n={found['n']})" for name, found in results.items()]
        evaluated = ", ".join(each)
        if evaluated and not run.history:
            return f"{label + ': s' if label else 'S'}uccess on held-out start states: {evaluated}."
        so_far = f" Evaluated so far: {evaluated}." if evaluated else ""
        return f"{label or 'This run'} has no results yet; the last logged step is {last}.{so_far}"
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
    write_atomically(output, report(folders))
    return output


def report(folders: Sequence[Path], version: str = "") -> str:
    """The page on run folders; with a ``version`` it asks its server for a newer one. Errors are as in `read_run`."""
    # Late: it loads matplotlib, which the table on the terminal does not need.
    from ragen_trl.reporting.figures import COLOURS, draw

    runs = [read_run(folder) for folder in folders]
    names = [run.path.name for run in runs]
    labels = [""] if len(runs) == 1 else names if len(set(names)) == len(names) else [str(run.path) for run in runs]
    colours = [COLOURS[order % len(COLOURS)] for order in range(len(runs))]
    alerts = [(label, fired) for run, label in zip(runs, labels, strict=True) for fired in run.alerts]
    curves = [run.successes() for run in runs]
    drawing = Markup(draw(curves, [run.results for run in runs])) if any(curves) else ""
    readable, blocks, left_out = pack(runs, labels)
    titles = [list(dict.fromkeys(str(run.summary.get(key, run.path.name)) for run in runs)) for key in ("algo", "env")]
    code = "\n(() => {\n" + "\n".join(map(_static, ("drawing.js", "viewer.js", "page.js"))) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    environment = Environment(
        loader=PackageLoader("ragen_trl.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html.j2").render(
        title=" on ".join(dict.fromkeys(", ".join(found) for found in titles)),
        style=Markup(_static("report.css")),
        script=Markup(code),
        allowed=f"'sha256-{digest}'",
        sentences=[sentence(run, label) for run, label in zip(runs, labels, strict=True)],
        tables=list(zip(labels, colours, [result_table(run.summary) for run in runs], strict=True)),
        drawing=drawing,
        alerts=alerts,
        version=version,
        readable=readable,
        blocks=blocks,
        left_out=left_out,
        sections=[(label or "What was run", _facts(run)) for run, label in zip(runs, labels, strict=True)],
    )
    return _SECRET_TEXT.sub(lambda found: (found[1] or "") + "***", page)


def _static(name: str) -> str:
    return (files("ragen_trl.reporting") / "static" / name).read_text(encoding="utf-8")


def _facts(run: Run) -> str:
    """Everything about a run that is not a result, as JSON, without options that are secrets."""
    facts = {name: value for name, value in run.summary.items() if name not in ("results", "monitor")}
    for name, value in facts.items():
        if isinstance(value, dict):
            facts[name] = {key: one for key, one in value.items() if not _SECRET_OPTION.search(key)}
    return json.dumps(facts, indent=2, ensure_ascii=False)


def pack(runs: Sequence[Run], labels: Sequence[str]) -> tuple[list[dict[str, Any]], list[tuple[str, str]], int]:
    """What of the runs can be read turn by turn: for the script, and name and content of each block of the page.

    A block is a rollout as on disk, or the episodes of a policy in the same form: JSON in gzip in base64, which the
    script unpacks when a reader opens it. The last number returned is how many blocks had no room: the oldest rollouts.
    """
    readable: list[dict[str, Any]] = []
    blocks: list[tuple[str, str]] = []
    left_out, room = 0, _LARGEST_PAGE
    for run, label in zip(runs, labels, strict=True):
        found = []
        for name, rows in run.episodes.items():  # in the form of a recorded rollout, whose turns are the transcript
            episodes = [{**row, "turns": row.get("transcript", []), "transcript": None} for row in rows]
            text = json.dumps({"trajectories": episodes}, separators=(",", ":"))
            found.append((f"evaluation: {name}", gzip.compress(text.encode("ascii"), mtime=0)))
        for path in reversed(recordings(run.path)):
            step = path.name.removeprefix("step-").removesuffix(".json.gz").lstrip("0")
            found.append((f"training: step {step}", path.read_bytes()))
        sources: list[dict[str, str]] = []
        for name, data in found:
            block = base64.b64encode(data).decode("ascii")
            if len(block) > room:
                left_out += 1
                continue
            room -= len(block)
            place = len(sources) if name.startswith("evaluation") else len(run.episodes)  # steps in their order
            sources.insert(place, {"name": name, "block": f"block-{len(blocks)}"})
            blocks.append((f"block-{len(blocks)}", block))
        if sources:
            readable.append({"label": label, "sources": sources})
    return readable, blocks, left_out
