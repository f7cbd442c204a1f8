"""From run folders to one HTML page that stands alone, and to the table on the terminal.

The page needs no network, no script and no other file. It says in one sentence what came out, next to the random
policy and the oracle, and says as plainly when nothing did. Several runs are repetitions if they differ only in their
seed; then they also get a mean and the range over seeds. A pooled interval is not given: episodes of one trained
model say nothing about the next training. A viewer of single trajectories is left out here and comes later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragen_trl.result_text import (
    COLUMNS,
    POOLED_COLUMNS,
    pooled_rows,
    pooled_sentence,
    result_rows,
    seeds_in_words,
    sentence,
)
from ragen_trl.run_folder import Run, RunNotFoundError, check_results, differences, read_run

__all__ = ["Run", "RunNotFoundError", "read_run", "results_table", "write_report"]


@dataclass(frozen=True)
class _Block:
    """The rows of one table: a run, or all runs together."""

    heading: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    colour: str = ""


@dataclass(frozen=True)
class _Drawing:
    """A figure with its caption."""

    title: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class _Section:
    """A collapsible table: names, and a value a run or a single one if all runs agree."""

    title: str
    heads: list[str]
    rows: list[tuple[str, list[str]]]


def results_table(summary: dict[str, Any]) -> str:
    """The results of one run as a table of plain text, rows from random to oracle.

    Args:
        summary: What ``summary.json`` holds; only its results are read.

    Raises:
        ValueError: If it lacks something.
    """
    check_results(summary, "summary")
    rows = [list(COLUMNS), *result_rows(summary)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def write_report(folders: Sequence[Path], output: Path) -> Path:
    """Write the report on one or several runs as a single file.

    Args:
        folders: Run folders.
        output: The file to write; an old one is replaced only once the new one is whole.

    Returns:
        ``output``.

    Raises:
        RunNotFoundError: If a folder holds no finished run.
        ValueError: If no folder is given or a file in one is not whole.
    """
    if not folders:
        raise ValueError("no run folder given; pass at least one")
    runs = [read_run(folder) for folder in folders]
    # Late, since it loads transformers: a run that cannot be read is reported at once.
    from ragen_trl.atomic import write_atomically

    output = Path(output)
    write_atomically(output, _page(runs))
    return output


def _page(runs: list[Run]) -> str:
    # Late, since it loads matplotlib, which the table on the terminal does not need.
    from ragen_trl.figures import COLOURS, PANELS, averaging_window, draw_intervals, draw_panel

    differ, labels = differences(runs), _labels(runs)
    pooled = len(runs) > 1 and not differ
    drawn = [(panel, draw_panel(panel, runs, mean=pooled)) for panel in PANELS]
    colours = [COLOURS[order % len(COLOURS)] for order in range(len(runs))]
    environment = Environment(
        loader=PackageLoader("ragen_trl"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=f"{_joined(runs, 'algo')} on {_joined(runs, 'env')}",
        sentences=[pooled_sentence(runs)] if pooled else list(map(sentence, runs, labels)),
        differ=differ,
        blocks=_blocks(runs, labels, colours, pooled),
        intervals=Markup(draw_intervals(runs)),
        legend=list(zip(labels, colours, strict=True)) if len(runs) > 1 else [],
        pooled=pooled,
        window=averaging_window(runs),
        drawings=[_Drawing(panel.title, panel.note, Markup(svg)) for panel, svg in drawn if svg],
        missing=[panel.title for panel, svg in drawn if svg is None],
        sections=_sections(runs, labels),
    )


def _blocks(runs: list[Run], labels: list[str], colours: list[str], pooled: bool) -> list[_Block]:
    blocks = (
        [_Block(f"Mean (min–max) over {seeds_in_words(runs)}", POOLED_COLUMNS, pooled_rows(runs))] if pooled else []
    )
    for run, label, colour in zip(runs, labels, colours, strict=True):
        blocks.append(_Block(label, COLUMNS, result_rows(run.summary), colour))
    return blocks


def _labels(runs: list[Run]) -> list[str]:
    """Short names that tell the runs apart; "" for a single one."""
    if len(runs) == 1:
        return [""]
    seeds = [run.summary["seed"] for run in runs]
    if not differences(runs) and len(set(seeds)) == len(seeds):
        return [f"seed {seed}" for seed in seeds]
    names = [run.path.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]


def _sections(runs: list[Run], labels: list[str]) -> list[_Section]:
    """What was run, for the end of the page."""
    command = {"command": "command", "commit": "commit", "created": "created"}
    tables = {
        "Run and time": [_facts(run) for run in runs],
        "Configuration": [run.summary["config"] for run in runs],
        "Versions and machine": [run.summary["versions"] | run.summary["machine"] for run in runs],
        "Command": [{name: run.summary[key] for name, key in command.items()} for run in runs],
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
