"""A question's JSON in Markdown, for ``tables.py``: what is published, the picture, the table, the reading."""

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


_COLUMNS = ("random", "began at", "at the end", "best", "kept", "oracle", "trajectories", "KL", "CPU min", "peak MiB")


def question_section(content: Mapping[str, Any]) -> str:
    """What is published, the picture, a row a variant, and what agrees."""
    question, tasks = content["question"], content["tasks"]
    others = list(dict.fromkeys(name for task in tasks.values() for name in list(task["prepared"]["results"])[1:]))
    head = ["task", "variant", *_COLUMNS, *others]
    lines = [f"Published: {question['published']}", "", f"![{question['title']}](results/{question['name']}.png)", ""]
    lines += [_row(head), "|---" * len(head) + "|"]
    for name, task in tasks.items():
        lines += [_row([name, *_result(task, variant, others)]) for variant in task["variants"].values()]
        if set(others) & set(task["prepared"]["results"]):
            lines += [_row([name, label, *_before(task, policy, others)]) for policy, label in _BASELINES]
    episodes = sorted({task["prepared"]["settings"]["episodes"] for task in tasks.values()})
    commits = ", ".join(f"`{commit[:9]}`" for commit in content["commits"])
    lines += [
        "",
        f"Success on n = {', '.join(map(str, episodes))} held-out start states: [95 % interval] before training and "
        f"of the baselines, mean (range) over seeds {', '.join(map(str, content['seeds']))} after it. Kept: the end in "
        "parts of the best evaluation, worst seed. "
        f"{content['cpu_minutes']:.0f} CPU minutes of training. Commits {commits}.",
    ]
    lines += ["", f"Reading: {question['reading']}"] if question["reading"] else []
    return "\n".join(lines) + "\n"


def _result(task: Mapping[str, Any], variant: Mapping[str, Any], others: Sequence[str]) -> list[str]:
    first = next(iter(task["prepared"]["results"].values()))
    found = variant["summary"]
    return [
        variant["label"],
        _interval(first["random"]),
        _interval(first["warm_start"]),
        _range(found["success"]),
        _range(found["peak"]),
        f"{100 * min(found['kept']):.0f} %",
        _interval(first["oracle"]),
        f"{found['trajectories']['mean']:,.0f}",
        f"{found['kl']['mean']:.2f}",
        f"{found['cpu_seconds']['mean'] / 60:.1f}",
        f"{found['peak_mib']['mean']:,.0f}",
        *_others(variant, others),
    ]


def _before(task: Mapping[str, Any], policy: str, others: Sequence[str]) -> list[str]:
    """A baseline's row: in the further evaluations alone, the first has columns of its own."""
    results = task["prepared"]["results"]
    rates = [_interval(results[name][policy]) if name in results else "" for name in others]
    return [*[""] * len(_COLUMNS), *rates]


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
    found = [[run["final"]["evaluations"] for run in variant["runs"]] for _ in names]
    rates = [[each[name]["success"] for each in runs if name in each] for name, runs in zip(names, found, strict=True)]
    return [_range({"mean": fmean(rate), "low": min(rate), "high": max(rate)}) if rate else "" for rate in rates]


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
