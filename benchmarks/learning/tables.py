"""The tables of ``results/learning_curves.json`` in Markdown, for ``tables.py``."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

_HEAD = (
    *("success at the end", "best", "kept", "trajectories to {level}", "KL", "smallest loss"),
    *("CPU minutes", "peak MiB"),
)
_BASELINES = (
    ("random", "random"),
    ("warm_start", "warm start"),
    ("warm_start_greedy", "warm start, greedy"),
    ("oracle", "oracle"),
)


def learning_tables(content: Mapping[str, Any]) -> str:
    """One table a task, the three baselines first; then what both have that are compared at equal success."""
    parts = []
    for name, task in content["tasks"].items():
        parts += [_caption(name, task), "", *_table(task), ""]
        if task["astar_po_to_starpo"] is not None:
            parts += [_equal(task["astar_po_to_starpo"]), ""]
    minutes, commits = content["cpu_minutes"], ", ".join(f"`{commit[:9]}`" for commit in content["commits"])
    parts.append(f"{minutes:.0f} minutes of CPU in training in all. Runs made with {commits}.")
    return "\n".join(parts) + "\n"


def _caption(name: str, task: Mapping[str, Any]) -> str:
    settings = task["prepared"]["settings"]
    first = next(iter(settings["evaluations"]))
    return (
        f"**{name}** (`{settings['env']}`), {first}, n = {settings['episodes']}, {task['trajectories']:,} sampled "
        "trajectories a run:"
    )


def _table(task: Mapping[str, Any]) -> list[str]:
    results = task["prepared"]["results"]
    first, *others = results
    head = [column.format(level=f"{100 * task['level']:.0f} %") for column in _HEAD]
    lines = [_row(["", *head, *others]), "|---" * (1 + len(head) + len(others)) + "|"]
    for policy, label in _BASELINES:
        rates = [_interval(results[name][policy]) for name in (first, *others)]
        lines.append(_row([label, rates[0], *[""] * (len(head) - 1), *rates[1:]]))
    for variant in task["variants"].values():
        lines.append(_row([variant["label"], *_cells(variant["summary"]), *_others(variant, others)]))
    return lines


def _cells(summary: Mapping[str, Any]) -> list[str]:
    reached = [spent for spent in summary["reached"] if spent is not None]
    spent = f"{fmean(row['trajectories'] for row in reached):,.0f}" if reached else "never"
    if reached and len(reached) < len(summary["reached"]):
        spent += f" ({len(reached)} of {len(summary['reached'])})"
    return [
        _range(summary["success"]),
        _range(summary["peak"]),
        f"{100 * min(summary['kept']):.0f} %",
        spent,
        f"{summary['kl']['mean']:.2f}",
        f"{summary['loss_min']:.3g}",
        f"{summary['cpu_seconds']['mean'] / 60:.1f}",
        f"{summary['peak_mib']['mean']:,.0f}",
    ]


def _others(variant: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The further evaluations at the end: mean and range over the seeds."""
    rates = [[run["final"]["evaluations"][name]["success"] for run in variant["runs"]] for name in names]
    return [_range({"mean": fmean(found), "low": min(found), "high": max(found)}) for found in rates]


def _equal(found: Mapping[str, Any]) -> str:
    """A sentence on A*-PO and the group form of StarPO."""

    def ratio(name: str) -> str:
        pair = found[name]
        shown = "" if pair["ratio"] is None else f", {pair['ratio']:.2f} ×"
        return f"{pair['ours']:,.0f} against {pair['theirs']:,.0f}{shown}"

    return (
        f"At {100 * found['level']:.0f} % success, A\\*-PO against StarPO (group), means over seeds: trajectories of "
        f"the policy {ratio('policy_trajectories')}; with those of the reference {ratio('trajectories')}; CPU "
        f"seconds {ratio('cpu_seconds')}; peak MiB {ratio('peak_mib')}; KL {found['kl']['ours']:.2f} against "
        f"{found['kl']['theirs']:.2f} nats."
    )


def _interval(result: Mapping[str, float]) -> str:
    return f"{result['success']:.2f} [{result['success_low']:.2f}, {result['success_high']:.2f}]"


def _range(values: Mapping[str, float]) -> str:
    return f"{values['mean']:.2f} ({values['low']:.2f} to {values['high']:.2f})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
