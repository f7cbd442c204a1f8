"""The table of an evaluation as text, from its ``summary.json``."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragen_trl.algorithms.intervals import with_interval

_FIRST_ROWS, _LAST_ROW = ("random", "before", "trained"), "oracle"


def table_order(policy: str) -> int:
    """Key to sort the rows of a table: random policy, start and end of training, models, best possible policy."""
    return _FIRST_ROWS.index(policy) if policy in _FIRST_ROWS else len(_FIRST_ROWS) + (policy == _LAST_ROW)


def result_table(summary: Mapping[str, Any]) -> list[list[str]]:
    """Titles, then a row per policy: success, what it is above others, pass@k, return, and how the replies were.

    The summary's ``results`` are by policy the fields of ``EvaluationResult`` and ``differences``, or
    ``{"not_played": reason}``. Without any there are only titles.
    """
    played = summary.get("results", {})
    labels = {"before": "(warm start)" if summary.get("warm_started") is True else "(before)"}
    results = {labels.get(name, name): played[name] for name in sorted(played, key=table_order)}
    ks = sorted({k for found in results.values() for k in found.get("pass_at_k", {})} - {"1"}, key=int)
    others = list(dict.fromkeys(other for found in results.values() for other in found.get("differences", {})))
    scored = ["score"] * any(found.get("score") is not None for found in results.values())
    columns = ["policy", "success [95 %]", *(f"above {other}" for other in others), *(f"pass@{k} [95 %]" for k in ks)]
    table = [[*columns, *scored, "return ± s.e.", "format ok", "turns", "tokens", "n"]]
    for policy, found in results.items():
        if "not_played" in found:
            table.append([policy, "not played", *[""] * (len(table[0]) - 2)])
            continue
        above = found.get("differences", {})
        row = [policy, with_interval(found)]
        row += [with_interval(above[other], sign="+") if other in above else "" for other in others]
        row += [with_interval(found["pass_at_k"][k]) if k in found["pass_at_k"] else "" for k in ks]
        row += ["" if found["score"] is None else f"{found['score']:.3f}" for _ in scored]
        row += [f"{found['mean_return']:.3f} ± {found['return_stderr']:.3f}", f"{found['format_valid']:.3f}"]
        row += [f"{found['turns']:.2f}", f"{found['reply_tokens']:.1f}"]
        table.append([*row, f"{found['n']}" + (f" (+{found['left_out']} failed)" if found["left_out"] else "")])
    return table


def aligned(table: Sequence[Sequence[str]]) -> str:
    """A table as text with aligned columns."""
    first, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    lines = []
    for policy, *cells in table:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append("  ".join([policy.ljust(first), *numbers]).rstrip())
    return "\n".join(lines)
