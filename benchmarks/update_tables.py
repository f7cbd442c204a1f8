"""The table of results/train_step.json: seconds and memory of an update, one row a setting."""

from typing import Any

_TITLES = {"cpu": "On the CPU", "gpu": "On a GPU"}


def update_tables(content: dict[str, Any]) -> str:
    """One table for what was measured on the CPU and one for the GPU; "not run" where there is none yet."""
    return "\n".join(part(_TITLES[name], content[name]) for name in _TITLES)


def part(title: str, measured: dict[str, Any] | None) -> str:
    """Rows of one machine, memory also in parts of that of full fine-tuning with the same other settings."""
    if measured is None:
        return f"**{title}**: not run.\n"
    workload = measured["workload"]
    rows = measured["rows"]
    count, size = rows[0]["parameters"] / 1e6, workload["trajectories"]
    lines = [
        f"**{title}**, {count:,.0f} M parameters, {size} trajectories of up to {workload['turns']} turns of about "
        f"{workload['tokens']} tokens, one update of a rollout:",
        "",
        "| trained | credit | checkpointing | rows a pass | micro-batches | kept | seconds: median (range) | padding "
        "| peak MiB | of full |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    full = {_others(row): row["peak_mib"] for row in rows if row["rank"] is None}
    for row in rows:
        cells = [
            "all weights" if row["rank"] is None else f"LoRA, r = {row['rank']}",
            row["form"].replace("*", "\\*"),
            "yes" if row["checkpointing"] else "no",
            str(row["batch_size"]),
            "by length" if row["by_length"] else "as TRL's",
            f"{row['filter_ratio']:.0%}",
            f"{row['seconds']:.2f} ({row['fastest']:.2f} to {row['slowest']:.2f})",
            f"{row['padding']:.0%}",
            f"{row['peak_mib']:,.0f}",
            f"{row['peak_mib'] / full[_others(row)]:.0%}" if row["rank"] and _others(row) in full else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    name, _, changes = (measured["commit"] or "unknown").partition("+")
    lines += ["", f"{rows[0]['updates']} updates a row. Commit `{name[:9] + '+' * bool(changes) + changes}`."]
    return "\n".join(lines) + "\n"


def _others(row: dict[str, Any]) -> tuple[Any, ...]:
    """All settings but what is trained."""
    return tuple(row[name] for name in ("form", "checkpointing", "batch_size", "by_length", "filter_ratio"))
