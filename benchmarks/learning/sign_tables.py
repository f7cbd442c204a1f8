"""The table of hits and false alarms of the warning signs, from ``results/warning_signs.json``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Steps that a warning has to come before the drop, to be of use.
LEAD = 10
_HEAD = ("question, task", "variant", "seed", "success: first, best, last", "dropped at", "early signs", "lead")

Row = Mapping[str, Any]


def signs_table(content: Mapping[str, Any]) -> str:
    """Counts over all runs; then a row for each run that dropped or was warned of, and for all of ``collapse``."""
    rows = content["runs"]
    fresh, others = ([row for row in rows if row["calibrated"] is kind] for kind in (False, True))
    lines = ["| runs | dropped | warned ≥ 10 steps before | warned later | not warned | healthy | false alarms |"]
    lines.append("|---" * 7 + "|")
    groups = {
        "seeds that no threshold was chosen on": fresh,
        "of those, StarPO-S": [row for row in fresh if row["variant"].startswith("starpo_s")],
        "all other seeds, all questions": others,
    }
    lines += [f"| {name} ({len(group)}) | {' | '.join(map(str, _counts(group)))} |" for name, group in groups.items()]
    lines += ["", f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    lines += [_row(row) for row in rows if _is_shown(row)]
    lines += [
        "",
        f"Steps are updates. {len(rows)} runs judged; {content['not_judged']} more had logged too little. Those of "
        "`collapse` were evaluated 20 times and more, most others 4 to 8 times, where only a deep and lasting drop is "
        f"seen. Commit `{str(content['commit'])[:9]}`.",
    ]
    return "\n".join(lines) + "\n"


def _counts(rows: Sequence[Row]) -> tuple[int, ...]:
    dropped = [row for row in rows if row["drop"] is not None]
    leads = [row["lead"] for row in dropped]
    early = sum(lead is not None and lead >= LEAD for lead in leads)
    unwarned = sum(lead is None for lead in leads)
    healthy = [row for row in rows if row["drop"] is None]
    alarms = sum(row["first_early"] is not None for row in healthy)
    return len(dropped), early, len(leads) - early - unwarned, unwarned, len(healthy), alarms


def _is_shown(row: Row) -> bool:
    return row["question"] == "collapse" or row["drop"] is not None or row["first_early"] is not None


def _row(row: Row) -> str:
    signs = ", ".join(_early(row["signs"])) or "–"
    rates = ", ".join(f"{rate:.2f}" for rate in row["success"])
    cells = (f"{row['question']}, {row['task']}", row["label"], row["seed"], rates, row["drop"], signs, row["lead"])
    return f"| {' | '.join('–' if cell is None else str(cell) for cell in cells)} |"


def _early(signs: Iterable[Row]) -> list[str]:
    return [f"`{sign['name']}` {sign['step']}" for sign in signs if sign["kind"] == "early"]
