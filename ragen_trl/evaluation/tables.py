"""The tables of an evaluation, from ``environments`` in its ``summary.json``: Markdown, and text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragen_trl.evaluation.intervals import signed_with_interval, with_interval
from ragen_trl.system.terminal import BOLD, DIM, GREEN, PLAIN

Results = Mapping[str, Mapping[str, Any]]
"""By policy: the fields of ``EvaluationResult`` and others, or ``{"not_played": reason}``."""


def header(results: Results) -> list[str]:
    """Titles of the columns of one environment's table."""
    scored = ["score"] if _has_scores(results) else []
    return ["policy", "success [95 %]", *(f"pass@{k} [95 %]" for k in _ks(results)), *scored, *_REST]


_REST = ("return ± s.e.", "normalised", "format ok", "turns", "tokens", "n")


def rows(results: Results) -> list[list[str]]:
    """The cells of one environment's table, one row per policy."""
    ks, scored = _ks(results), _has_scores(results)
    cells = []
    for policy, found in results.items():
        if "not_played" in found:
            cells.append([policy, in_one_line(found["not_played"]), *[""] * (len(ks) + scored + len(_REST))])
            continue
        passes = [found["pass_at_k"].get(k) for k in ks]
        left_out = f" (+{found['left_out']} failed)" if found["left_out"] else ""
        cells.append(
            [
                policy,
                with_interval(found),
                *("" if each is None else with_interval(each, rate="value") for each in passes),
                *(["" if found.get("score") is None else f"{found['score']:.3f}"] if scored else []),
                f"{found['mean_return']:.3f} ± {found['return_stderr']:.3f}",
                "" if found["normalised"] is None else f"{found['normalised']:.3f}",
                f"{found['format_valid']:.3f}",
                f"{found['turns']:.2f}",
                f"{found['reply_tokens']:.1f}",
                f"{found['n']}{left_out}",
            ]
        )
    return cells


def in_one_line(reason: str) -> str:
    """A reason without the traceback that may follow it, and with the error that ends it."""
    said, _, trace = reason.partition("Traceback (most recent call last):\n")
    ends = [line for line in trace.splitlines() if line and not line.startswith(" ")]  # the error's own lines
    first = said.strip().partition("\n")[0].rstrip(" :")
    return f"{first}: {ends[0]}" if ends else first


def difference_rows(results: Results) -> list[list[str]]:
    """How far each model's success is above random play and the first model, titles first; or no rows."""
    found = {policy: each["differences"] for policy, each in results.items() if each.get("differences")}
    others = list(dict.fromkeys(other for differences in found.values() for other in differences))
    cells = [
        [policy, *(signed_with_interval(each[other]) if other in each else "–" for other in others)]
        for policy, each in found.items()
    ]
    return [["success above that of", *others], *cells] if others else []


def fault_rows(results: Results) -> list[list[str]]:
    """How often each fault was there, a row per policy, titles first; empty where nobody made a named one."""
    made = {policy: found.get("faults", {}) for policy, found in results.items() if "not_played" not in found}
    names = list(dict.fromkeys(name for faults in made.values() for name in faults))
    shares = [[policy, *(f"{faults.get(name, 0.0):.3f}" for name in names)] for policy, faults in made.items()]
    return [["share with", *names], *shares] if names else []


def task_type_rows(results: Results) -> list[list[str]]:
    """Success by the type of task, a row per policy, titles first; empty where the environment has no types."""
    found = {policy: each.get("task_types", {}) for policy, each in results.items() if "not_played" not in each}
    names = sorted({name for types in found.values() for name in types})
    cells = [
        [policy, *(f"{with_interval(types[name])} (n={types[name]['n']})" if name in types else "–" for name in names)]
        for policy, types in found.items()
    ]
    return [["success in", *names], *cells] if names else []


def overview(environments: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Success of every policy in every environment; the first row has the titles."""
    names = list(environments)
    policies = list(next(iter(environments.values()))["results"])
    table = [["success [95 %]", *names]]
    for policy in policies:
        found = [environments[name]["results"][policy] for name in names]
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
        made = f"`{environment['env']}` with {environment['env_kwargs'] or 'its defaults'}; {limits}."
        parts += [f"## {name}", made, _markdown_table([header(environment["results"]), *rows(environment["results"])])]
        parts += [_markdown_table(table) for table in _further(environment["results"])]
    parts.append(
        f"Held-out start states: {summary['episodes']}; episodes from each: {summary['samples_per_start']}. "
        "Normalised: 0 is the random policy, 1 the oracle; both see the state after every action. "
        "Success above that of another policy is paired by start state."
    )
    parts.append(f"`{summary['command']}`, commit `{summary['commit']}`, {summary['created']}.")
    return "\n\n".join(parts) + "\n"


def terminal(environments: Mapping[str, Mapping[str, Any]], colour: bool = False) -> str:
    """The same for a terminal. A model that lies above the random policy is green, baselines are dim."""
    parts = []
    if len(environments) > 1:
        parts.append(aligned(overview(environments), colour))
    for name, environment in environments.items():
        results = environment["results"]
        better = [policy for policy in results if _beats_random(results, policy)]
        parts.append(f"{name}\n{aligned([header(results), *rows(results)], colour, better)}")
        parts += [aligned(table, colour) for table in _further(results)]
    return "\n\n".join(parts)


def _further(results: Results) -> list[list[list[str]]]:
    return [table for table in (difference_rows(results), task_type_rows(results), fault_rows(results)) if table]


def aligned(table: Sequence[Sequence[str]], colour: bool = False, better: Sequence[str] = ()) -> str:
    """A table (titles first) as text with aligned columns; rows with names in ``better`` are green.

    A reason in place of numbers may be longer than its column.
    """
    whole = [row for row in table if any(row[2:]) or len(row) == 2]
    widths = [max(len(row[column]) for row in whole or table) for column in range(len(table[0]))]
    widths[0] = max(len(row[0]) for row in table)
    lines = []
    for place, row in enumerate(table):
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        line = "  ".join([row[0].ljust(widths[0]), *(numbers if row in whole else row[1:])]).rstrip()
        style = BOLD if place == 0 else GREEN if row[0] in better else DIM if row[0] in ("random", "oracle") else ""
        lines.append(f"{style}{line}{PLAIN}" if colour and style else line)
    return "\n".join(lines)


def _markdown_table(table: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]])


def _beats_random(results: Results, policy: str) -> bool:
    """Whether a model succeeds more often than the random policy, by the interval of the difference."""
    above = results[policy].get("differences", {}).get("random")
    return above is not None and above["low"] > 0


def _has_scores(results: Results) -> bool:
    return any(found.get("score") is not None for found in results.values())


def _ks(results: Results) -> list[str]:
    return sorted({k for found in results.values() for k in found.get("pass_at_k", {})} - {"1"}, key=int)
