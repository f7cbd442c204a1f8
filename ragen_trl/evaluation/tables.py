"""The tables of an evaluation, from ``environments`` in its ``summary.json``: Markdown, and text for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragen_trl.evaluation.intervals import signed_with_interval, with_interval
from ragen_trl.system.terminal import BOLD, DIM, PLAIN

Results = Mapping[str, Mapping[str, Any]]
"""By policy: the fields of ``EvaluationResult`` and others, or ``{"not_played": reason}``."""
Table = list[list[str]]
"""Cells, row by row; the first row has the titles."""


def result_table(results: Results) -> Table:
    """A row per policy: success, pass@k, return, and how the replies were."""
    ks = sorted({k for found in results.values() for k in found.get("pass_at_k", {})} - {"1"}, key=int)
    scored = any(found.get("score") is not None for found in results.values())
    columns = ["policy", "success [95 %]", *(f"pass@{k} [95 %]" for k in ks), *["score"] * scored]
    table = [[*columns, "return ± s.e.", "normalised", "format ok", "turns", "tokens", "n"]]
    for policy, found in results.items():
        if "not_played" in found:
            table.append([policy, in_one_line(found["not_played"]), *[""] * (len(table[0]) - 2)])
            continue
        passes = [found["pass_at_k"].get(k) for k in ks]
        score, normalised = found.get("score"), found["normalised"]
        table.append(
            [
                policy,
                with_interval(found),
                *("" if each is None else with_interval(each, rate="value") for each in passes),
                *["" if score is None else f"{score:.3f}"] * scored,
                f"{found['mean_return']:.3f} ± {found['return_stderr']:.3f}",
                "" if normalised is None else f"{normalised:.3f}",
                f"{found['format_valid']:.3f}",
                f"{found['turns']:.2f}",
                f"{found['reply_tokens']:.1f}",
                f"{found['n']}" + (f" (+{found['left_out']} failed)" if found["left_out"] else ""),
            ]
        )
    return table


def further_tables(results: Results) -> Iterator[Table]:
    """Differences between policies, success by type of task, and named faults: each where there are any."""
    played = {policy: found for policy, found in results.items() if "not_played" not in found}
    titles = {"differences": "success above that of", "task_types": "success in", "faults": "share with"}
    for key, title in titles.items():
        named = {policy: found[key] for policy, found in played.items() if found.get(key)}
        names = list(dict.fromkeys(name for values in named.values() for name in values))
        rows = named if key == "differences" else {policy: found.get(key, {}) for policy, found in played.items()}
        if names:
            cells = [[policy, *(_cell(key, values.get(name)) for name in names)] for policy, values in rows.items()]
            yield [[title, *names], *cells]


def _cell(key: str, value: Any) -> str:
    if key == "faults":
        return f"{value or 0.0:.3f}"
    if value is None:
        return "–"
    return signed_with_interval(value) if key == "differences" else f"{with_interval(value)} (n={value['n']})"


def in_one_line(reason: str) -> str:
    """A reason without the traceback that may follow it, and with the error that ends it."""
    said, _, trace = reason.partition("Traceback (most recent call last):\n")
    ends = [line for line in trace.splitlines() if line and not line.startswith(" ")]  # the error's own lines
    first = said.strip().partition("\n")[0].rstrip(" :")
    return f"{first}: {ends[0]}" if ends else first


def overview(environments: Mapping[str, Mapping[str, Any]]) -> Table:
    """Success of every policy in every environment."""
    table = [["success [95 %]", *environments]]
    for policy in next(iter(environments.values()))["results"]:
        found = [environment["results"][policy] for environment in environments.values()]
        table.append([policy, *("–" if "not_played" in each else with_interval(each) for each in found)])
    return table


def markdown(summary: Mapping[str, Any]) -> str:
    """The text of ``results.md``: an overview if there are several environments, then a table for each."""
    environments = summary["environments"]
    parts = ["# Evaluation"]
    if len(environments) > 1:
        parts += ["## Success in every environment", _markdown_table(overview(environments))]
    for name, environment in environments.items():
        limits = ", ".join(f"{option} {value}" for option, value in environment["options"].items())
        parts += [f"## {name}", f"`{environment['env']}` with {environment['env_kwargs'] or 'its defaults'}; {limits}."]
        parts += map(_markdown_table, [result_table(environment["results"]), *further_tables(environment["results"])])
    parts.append(
        f"Held-out start states: {summary['episodes']}; episodes from each: {summary['samples_per_start']}. "
        "Normalised: 0 is the random policy, 1 the oracle; both see the state after every action. "
        "Success above that of another policy is paired by start state."
    )
    parts.append(f"`{summary['command']}`, commit `{summary['commit']}`, {summary['created']}.")
    return "\n\n".join(parts) + "\n"


def terminal(environments: Mapping[str, Mapping[str, Any]], colour: bool = False) -> str:
    """The same tables for a terminal."""
    parts = [aligned(overview(environments), colour)] if len(environments) > 1 else []
    for name, environment in environments.items():
        tables = [result_table(environment["results"]), *further_tables(environment["results"])]
        first, *others = (aligned(table, colour) for table in tables)
        parts += [f"{name}\n{first}", *others]
    return "\n\n".join(parts)


def aligned(table: Sequence[Sequence[str]], colour: bool = False) -> str:
    """A table as text with aligned columns; baselines are dim. A reason in place of numbers may be longer than that."""
    whole = [row for row in table if any(row[2:]) or len(row) == 2]
    widths = [max(len(row[column]) for row in whole or table) for column in range(len(table[0]))]
    widths[0] = max(len(row[0]) for row in table)
    lines = []
    for place, row in enumerate(table):
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        line = "  ".join([row[0].ljust(widths[0]), *(numbers if row in whole else row[1:])]).rstrip()
        style = BOLD if place == 0 else DIM if row[0] in ("random", "oracle") else ""
        lines.append(f"{style}{line}{PLAIN}" if colour and style else line)
    return "\n".join(lines)


def _markdown_table(table: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]])
