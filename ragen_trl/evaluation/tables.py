"""The tables of an evaluation, from ``environments`` in its ``summary.json``: Markdown, and text for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragen_trl.evaluation.intervals import signed_with_interval, with_interval

Results = Mapping[str, Mapping[str, Any]]
"""By policy: the fields of ``EvaluationResult`` and others, or ``{"not_played": reason}``."""
Table = list[list[str]]
"""Cells, row by row; the first row has the titles."""


def result_table(results: Results) -> Table:
    """A row per policy: success, pass@k, return, and how the replies were."""
    ks = sorted({k for found in results.values() for k in found.get("pass_at_k", {})} - {"1"}, key=int)
    scored = any(found.get("score") is not None for found in results.values())
    columns = ["policy", "success [95 %]", *(f"pass@{k} [95 %]" for k in ks), *["score"] * scored]
    table = [[*columns, "return ± s.e.", "format ok", "turns", "tokens", "n"]]
    for policy, found in results.items():
        if "not_played" in found:
            table.append([policy, in_one_line(found["not_played"]), *[""] * (len(table[0]) - 2)])
            continue
        row = [policy, with_interval(found)]
        row += ["" if k not in found["pass_at_k"] else with_interval(found["pass_at_k"][k], rate="value") for k in ks]
        row += ["" if found["score"] is None else f"{found['score']:.3f}"] * scored
        row += [f"{found['mean_return']:.3f} ± {found['return_stderr']:.3f}", f"{found['format_valid']:.3f}"]
        row += [f"{found['turns']:.2f}", f"{found['reply_tokens']:.1f}"]
        table.append([*row, f"{found['n']}" + (f" (+{found['left_out']} failed)" if found["left_out"] else "")])
    return table


def tables(environments: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Table]]:
    """Titles and tables: an overview if there are several environments, then for each of them its results.

    Its differences between policies follow, under no title of their own.
    """
    if len(environments) > 1:
        policies = next(iter(environments.values()))["results"]
        rows = [[policy, *(_rate(each["results"][policy]) for each in environments.values())] for policy in policies]
        yield "Success in every environment", [["success [95 %]", *environments], *rows]
    for name, environment in environments.items():
        results = environment["results"]
        yield name, result_table(results)
        differences = {policy: found["differences"] for policy, found in results.items() if found.get("differences")}
        others = list(dict.fromkeys(other for found in differences.values() for other in found))
        rows = [
            [policy, *(signed_with_interval(found[other]) if other in found else "–" for other in others)]
            for policy, found in differences.items()
        ]
        if rows:
            yield "", [["success above that of", *others], *rows]


def _rate(found: Mapping[str, Any]) -> str:
    return "–" if "not_played" in found else with_interval(found)


def in_one_line(reason: str) -> str:
    """A reason without the traceback that may follow it, and with the error that ends it."""
    said, _, trace = reason.partition("Traceback (most recent call last):\n")
    ends = [line for line in trace.splitlines() if line and not line.startswith(" ")]  # the error's own lines
    first = said.strip().partition("\n")[0].rstrip(" :")
    return f"{first}: {ends[0]}" if ends else first


def markdown(summary: Mapping[str, Any]) -> str:
    """The text of ``results.md``."""
    parts = ["# Evaluation"]
    for title, (titles, *rows) in tables(summary["environments"]):
        if title:
            parts.append(f"## {title}")
        if environment := summary["environments"].get(title):
            limits = ", ".join(f"{option} {value}" for option, value in environment["options"].items())
            parts.append(f"`{environment['env']}` with {environment['env_kwargs'] or 'its defaults'}; {limits}.")
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (titles, *rows)]
        parts.append("\n".join([lines[0], "|---" * len(titles) + "|", *lines[1:]]))
    parts.append(
        f"Held-out start states: {summary['episodes']}; episodes from each: {summary['samples_per_start']}. "
        "The random policy and the oracle see the state after every action. Success above that of another policy is "
        "paired by start state."
    )
    parts.append(f"`{summary['command']}`, commit `{summary['commit']}`, {summary['created']}.")
    return "\n\n".join(parts) + "\n"


def terminal(environments: Mapping[str, Mapping[str, Any]]) -> str:
    """The same tables for a terminal."""
    return "\n\n".join(f"{title}\n{aligned(table)}".lstrip() for title, table in tables(environments))


def aligned(table: Sequence[Sequence[str]]) -> str:
    """A table as text with aligned columns; a reason in place of numbers may be longer than these."""
    whole = [row for row in table if any(row[2:]) or len(row) == 2]
    widths = [max(len(row[column]) for row in whole or table) for column in range(len(table[0]))]
    widths[0] = max(len(row[0]) for row in table)
    lines = []
    for row in table:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *(numbers if row in whole else row[1:])]).rstrip())
    return "\n".join(lines)
