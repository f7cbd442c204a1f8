"""The tables of the training questions: the pictures, a row a variant, and how the numbers came about."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from learning.summary import lacking, starts
from records.committed import origin

from pages.markdown import commit, head, mean_and_range, row, success, text

# The pages are in docs/experiments.
_PICTURES = "../../benchmarks/results"
_BASELINES = (
    ("random", "random"),
    ("warm_start", "warm start"),
    ("warm_start_greedy", "warm start, greedy"),
    ("oracle", "oracle"),
)
_COLUMNS = ("random", "began at", "at the end", "best", "kept", "oracle", "trajectories", "KL", "CPU min", "peak MiB")
_CURVE_COLUMNS = (
    *("success at the end", "best", "kept", "trajectories to {level}", "KL", "smallest loss"),
    *("CPU minutes", "peak MiB"),
)


def question_table(content: Mapping[str, Any]) -> str:
    """The picture, a row a variant of every task, and what was run."""
    question, tasks = content["question"], content["tasks"]
    others = list(dict.fromkeys(name for task in tasks.values() for name in list(task["prepared"]["results"])[1:]))
    lines = [_picture(question["title"], question["name"]), ""]
    for task in tasks if question["curves"] else ():
        lines += [_picture(f"Learning curves: {task}", f"{question['name']}_{task}"), ""]
    lines += head(["task", "variant", *_COLUMNS, *others])
    for name, task in tasks.items():
        without = lacking({each["label"]: each["runs"] for each in task["variants"].values()})
        for variant in task["variants"].values():
            label = _with_seeds(variant["label"], without.get(variant["label"], ()))
            lines += [row([name, label, *_result(task, variant, others)])]
        if set(others) & set(task["prepared"]["results"]):
            lines += [row([name, label, *_before(task, policy, others)]) for policy, label in _BASELINES]
    episodes = sorted({task["prepared"]["settings"]["episodes"] for task in tasks.values()})
    foot = (
        f"Success on n = {', '.join(map(str, episodes))} {_states(tasks)}: [95 % interval] before training and for "
        f"the baselines, mean (range) over seeds {_seeds(tasks)} after training. Kept: the "
        "success at the end as a share of the best evaluation, in the worst seed. "
        f"{content['cpu_minutes']:.0f} CPU minutes of training. Commits {_commits(content)}.{_apart(content)}"
    )
    equal = [
        f"{name}: {_equal(found)}" for name, task in tasks.items() if (found := task["astar_po_to_starpo"]) is not None
    ]
    return text([*lines, "", *(line for told in equal for line in (told, "")), foot])


def _states(tasks: Mapping[str, Any]) -> str:
    """What the columns of success are about: the first evaluation of each task."""
    first = list(dict.fromkeys(next(iter(task["prepared"]["results"])) for task in tasks.values()))
    return "held-out start states" if first == ["held out"] else f"evaluation seeds ({', '.join(first)})"


def _picture(title: str, name: str) -> str:
    return f"![{title}]({_PICTURES}/{name}.png)"


def _commits(content: Mapping[str, Any]) -> str:
    """The commits that the runs were made with, shortened."""
    return ", ".join(map(commit, content["commits"]))


def _apart(content: Mapping[str, Any]) -> str:
    """A sentence on costs that do not compare, if the runs are of several commits or machines."""
    variants = [variant for task in content["tasks"].values() for variant in task["variants"].values()]
    if len({origin(run) for variant in variants for run in variant["runs"]}) < 2:
        return ""
    compared = "CPU minutes and peak MiB compare only between rows of the same commits and machine"
    return f" {compared} ([which](../claims_figures.md#at-equal-cost))."


def _seeds(tasks: Mapping[str, Any]) -> str:
    """The seeds of all tasks, told apart where they differ."""
    found: dict[str, list[str]] = {}
    for name, task in tasks.items():
        seeds = sorted({run["seed"] for variant in task["variants"].values() for run in variant["runs"]})
        found.setdefault(", ".join(map(str, seeds)), []).append(name)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{seeds} ({', '.join(names)})" for seeds, names in found.items())


def _with_seeds(label: str, missing: Sequence[int]) -> str:
    """A variant's name, with the seeds that others of its task have and it lacks."""
    return f"{label} (without seed {', '.join(map(str, missing))})" if missing else label


def _result(task: Mapping[str, Any], variant: Mapping[str, Any], others: Sequence[str]) -> list[str]:
    first = next(iter(task["prepared"]["results"].values()))
    found = variant["summary"]
    return [
        success(first["random"]),
        " or ".join(map(success, starts(variant["runs"]))),
        mean_and_range(found["success"]),
        mean_and_range(found["peak"]),
        f"{100 * min(found['kept']):.0f} %",
        success(first["oracle"]),
        f"{found['trajectories']['mean']:,.0f}",
        *_costs(found),
        *_others(variant, others),
    ]


def _costs(found: Mapping[str, Any], *between: str) -> list[str]:
    """KL, then what a table has between it and the CPU minutes, and the peak of memory."""
    minutes, memory = found["cpu_seconds"]["mean"] / 60, found["peak_mib"]["mean"]
    return [f"{found['kl']['mean']:.2f}", *between, f"{minutes:.1f}", f"{memory:,.0f}"]


def _before(task: Mapping[str, Any], policy: str, others: Sequence[str]) -> list[str]:
    """A baseline's row: only in the further evaluations, since the first one has columns of its own."""
    results = task["prepared"]["results"]
    rates = [success(results[name][policy]) if name in results else "" for name in others]
    return [*[""] * len(_COLUMNS), *rates]


def _others(variant: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The further evaluations at the end: mean and range over the seeds."""
    cells = []
    for name in names:
        evaluations = [run["final"]["evaluations"] for run in variant["runs"]]
        rates = [found[name]["success"] for found in evaluations if name in found]
        found = {"mean": fmean(rates), "low": min(rates), "high": max(rates)} if rates else None
        cells.append("" if found is None else mean_and_range(found))
    return cells


def curve_tables(content: Mapping[str, Any]) -> str:
    """One table and one picture a task, the baselines first; then the two that are compared at equal success."""
    question, lines = content["question"], []
    for name, task in content["tasks"].items():
        settings = task["prepared"]["settings"]
        caption = (
            f"**{name}** (`{settings['env']}`), {next(iter(settings['evaluations']))}, n = {settings['episodes']}, "
            f"{task['trajectories']:,} sampled trajectories a run:"
        )
        picture = _picture(f"Learning curves: {name}", f"{question['name']}_{name}")
        lines += [caption, "", picture, "", *_curve_table(task), ""]
        if task["astar_po_to_starpo"] is not None:
            lines += [_equal(task["astar_po_to_starpo"]), ""]
    foot = (
        f"{content['cpu_minutes']:.0f} minutes of CPU in training in all. Runs made with {_commits(content)}."
        f"{_apart(content)}"
    )
    return text([*lines, foot])


def _curve_table(task: Mapping[str, Any]) -> list[str]:
    results = task["prepared"]["results"]
    first, *others = results
    columns = [column.format(level=f"{100 * task['level']:.0f} %") for column in _CURVE_COLUMNS]
    lines = head(["", *columns, *others])
    for policy, label in _BASELINES:
        rates = [success(results[name][policy]) for name in (first, *others)]
        lines.append(row([label, rates[0], *[""] * (len(columns) - 1), *rates[1:]]))
    for variant in task["variants"].values():
        lines.append(row([variant["label"], *_cells(variant["summary"]), *_others(variant, others)]))
    return lines


def _cells(found: Mapping[str, Any]) -> list[str]:
    reached = [spent for spent in found["reached"] if spent is not None]
    spent = f"{fmean(each['trajectories'] for each in reached):,.0f}" if reached else "never"
    if reached and len(reached) < len(found["reached"]):
        spent += f" ({len(reached)} of {len(found['reached'])})"
    kept = f"{100 * min(found['kept']):.0f} %"
    rates = [mean_and_range(found["success"]), mean_and_range(found["peak"]), kept]
    return [*rates, spent, *_costs(found, f"{found['loss_min']:.3g}")]


def _equal(found: Mapping[str, Any]) -> str:
    """A sentence on A*-PO and the group form of StarPO."""

    def ratio(name: str) -> str:
        pair = found[name]
        if pair is None:
            return "cannot be compared (runs of other commits or machines)"
        shown = "" if pair["ratio"] is None else f", {pair['ratio']:.2f} ×"
        return f"{pair['ours']:,.0f} against {pair['theirs']:,.0f}{shown}"

    seeds = "seeds"
    if found.get("missing"):  # results of before 26 November 2026 do not say
        seeds = f"seeds {', '.join(map(str, found['seeds']))}, which both have"
    return (
        f"At {100 * found['level']:.0f} % success, A\\*-PO against StarPO (group), means over {seeds}: trajectories of "
        f"the policy {ratio('policy_trajectories')}; with those of the reference {ratio('trajectories')}; CPU "
        f"seconds {ratio('cpu_seconds')}; peak MiB {ratio('peak_mib')}; KL {found['kl']['ours']:.2f} against "
        f"{found['kl']['theirs']:.2f} nats."
    )
