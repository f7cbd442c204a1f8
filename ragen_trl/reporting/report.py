"""From run folders to one standalone HTML page, and to the table on the terminal.

The page says in one sentence what came out, next to the random policy and the oracle, and says so if no improvement was
shown. Runs that differ only in their seed are repetitions: they also get a mean and the range over seeds. Episodes are
not pooled over runs: one trained model's say nothing about another training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ragen_trl.evaluation.tables import aligned
from ragen_trl.monitoring.alerts import Alert, find_alerts
from ragen_trl.reporting.result_text import (
    COLUMNS,
    POOLED_COLUMNS,
    pooled_rows,
    pooled_sentence,
    result_rows,
    seeds_in_words,
    sentence,
)
from ragen_trl.reporting.run_folder import (
    Family,
    Run,
    RunNotFoundError,
    check_results,
    differences,
    families,
    folder_names,
    read_run,
)
from ragen_trl.reporting.viewer import pack, script, style
from ragen_trl.system.atomic import write_atomically

__all__ = ["Run", "RunNotFoundError", "read_run", "results_table", "write_report"]


_ALERTS_NEED = 18  # logged rollouts before most of the alerts can fire


@dataclass(frozen=True)
class _Block:
    """The rows of one table: a run, or all runs together."""

    heading: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    colour: str = ""


@dataclass(frozen=True)
class _Drawing:
    title: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class _AlertRow:
    """An alert, and where it fired: "step 43", or "seed 1 at 43, seed 2 at 51"."""

    name: str
    kind: str
    where: str
    says: str
    remedy: str


@dataclass(frozen=True)
class _Section:
    """A collapsible table: names, with a value for each run or a single one if all runs agree."""

    title: str
    heads: list[str]
    rows: list[tuple[str, list[str]]]


def results_table(summary: dict[str, Any]) -> str:
    """The results of one run (its ``summary.json``) as a plain-text table; ``ValueError`` if one is missing."""
    check_results(summary, "summary")
    return aligned([COLUMNS, *result_rows(summary)])


def write_report(folders: Sequence[Path], output: Path) -> Path:
    """Write the report on one or several run folders as a single file, whole or not at all; returns ``output``.

    Raises:
        RunNotFoundError: If a folder holds no finished run.
        RecordingError: If recorded trajectories cannot be read.
        ValueError: If no folder is given or a file in one is incomplete.
    """
    if not folders:
        raise ValueError("no run folder given; pass at least one")
    runs = [read_run(folder) for folder in folders]
    output = Path(output)
    write_atomically(output, _page(runs))
    return output


def _page(runs: list[Run]) -> str:
    # Late: it loads matplotlib, which the table on the terminal does not need.
    from ragen_trl.reporting.figures import (
        PANELS,
        Mark,
        averaging_window,
        band_in_words,
        draw_intervals,
        draw_panel,
        run_colours,
    )

    grouped = families(runs)
    runs = [run for family in grouped for run in family.runs]
    labels = [label for family in grouped for label in _labels(family)]
    colours = [colour for _, colour in run_colours(grouped)]
    fired = [find_alerts(run.history) for run in runs]
    marks = [Mark(one.step, one.rule.kind, one.rule.metric) for row in fired for one in row]
    drawn = [(panel, draw_panel(panel, grouped, marks)) for panel in PANELS]
    recorded = pack([run.path for run in runs], labels)
    code, allowed = script()
    return _template().render(
        title=f"{_joined(runs, 'algo')} on {_joined(runs, 'env')}",
        style=Markup(style()),
        sentences=list(map(_sentence, grouped)),
        several=len(runs) > 1,
        differ=differences(runs),
        blocks=_blocks(grouped, labels, colours),
        intervals=Markup(draw_intervals(grouped)),
        legend=_legend(grouped, labels, colours),
        pooled=any(len(family.runs) > 1 for family in grouped),
        compared=len(grouped) > 1,
        window=averaging_window(max(len(run.history) for run in runs)),
        band=band_in_words([len(family.runs) for family in grouped]),
        alerts=_alerts(fired, labels),
        shortest=min(len(run.history) for run in runs),
        alerts_need=_ALERTS_NEED,
        drawings=[_Drawing(panel.title, panel.note, Markup(svg)) for panel, svg in drawn if svg],
        missing=[panel.title for panel, svg in drawn if svg is None],
        recorded=recorded,
        script=Markup(code),
        allowed=allowed,
        sections=_sections(runs, labels),
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("ragen_trl.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _sentence(family: Family) -> str:
    if len(family.runs) > 1:
        return pooled_sentence(family.runs, family.label)
    return sentence(family.runs[0], family.label)


def _blocks(grouped: list[Family], labels: list[str], colours: list[str]) -> list[_Block]:
    blocks = []
    for family in grouped:
        if len(family.runs) > 1:
            heading = f"{family.label + ': m' if family.label else 'M'}ean (min–max) over {seeds_in_words(family.runs)}"
            blocks.append(_Block(heading, POOLED_COLUMNS, pooled_rows(family.runs)))
    runs = [run for family in grouped for run in family.runs]
    for run, label, colour in zip(runs, labels, colours, strict=True):
        blocks.append(_Block(label, COLUMNS, result_rows(run.summary), colour))
    return blocks


def _legend(grouped: list[Family], labels: list[str], colours: list[str]) -> list[tuple[str, str]]:
    """Names and colours of the curves: of families if there are several, else of runs; empty for a single run."""
    if len(grouped) > 1:
        by_family = dict.fromkeys(zip([family.label for family in grouped for _ in family.runs], colours, strict=True))
        return list(by_family)
    return list(zip(labels, colours, strict=True)) if len(labels) > 1 else []


def _labels(family: Family) -> list[str]:
    """Short names that distinguish the runs of a family; "" for a single run."""
    if len(family.runs) == 1:
        return [family.label]
    seeds = [run.summary["seed"] for run in family.runs]
    names = [f"seed {seed}" for seed in seeds] if len(set(seeds)) == len(seeds) else folder_names(family.runs)
    return [f"{family.label}, {name}" if family.label else name for name in names]


def _alerts(fired: list[list[Alert]], labels: list[str]) -> list[_AlertRow]:
    everywhere = [(one.step, label, one.rule) for row, label in zip(fired, labels, strict=True) for one in row]
    found = {}
    for _, _, rule in sorted(everywhere, key=lambda place: place[0]):
        places = [(label, step) for step, label, other in everywhere if other.name == rule.name]
        where = ", ".join(f"{label} at {step}" if len(labels) > 1 else f"step {step}" for label, step in places)
        name = rule.name.replace("_", " ")
        found[name] = _AlertRow(name, rule.kind, where, rule.says, rule.remedy)
    return list(found.values())


def _sections(runs: list[Run], labels: list[str]) -> list[_Section]:
    tables = {
        "Run and time": [_facts(run) for run in runs],
        "Configuration": [run.summary["config"] for run in runs],
        "Versions and machine": [run.summary["versions"] | run.summary["machine"] for run in runs],
        "Command": [{key: run.summary[key] for key in ("command", "commit", "created")} for run in runs],
    }
    sections = []
    for title, columns in tables.items():
        names = dict.fromkeys(name for column in columns for name in column)
        rows = []
        for name in names:
            cells = [_text(column.get(name)) for column in columns]
            rows.append((name, cells if len(set(cells)) > 1 else cells[:1]))
        sections.append(_Section(title, labels if len(runs) > 1 else [], rows))
    return sections


def _facts(run: Run) -> dict[str, Any]:
    summary = run.summary
    facts: dict[str, Any] = {name: summary[name] for name in ("env", "env_kwargs", "algo", "model", "seed")}
    facts["parameters"] = f"{summary['parameters']:,}"
    facts["steps"] = run.steps
    facts |= {f"trajectories {name}": count for name, count in summary["trajectories"].items()}
    seconds = {f"seconds: {name.replace('_', ' ')}": value for name, value in summary["seconds"].items()}
    return facts | {name: f"{value:,.1f}" if isinstance(value, float) else value for name, value in seconds.items()}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item!r}" for key, item in value.items()) or "–"
    return "–" if value is None else str(value)


def _joined(runs: list[Run], key: str) -> str:
    return ", ".join(dict.fromkeys(run.summary[key] for run in runs))
