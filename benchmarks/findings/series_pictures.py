"""Pictures of any logged series of runs: a panel a task and measure, each run light, the mean of its family dark.

A family is the runs of one variant, or a run folder. Its label has its task before a colon, where it has one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np
from learning import plots
from matplotlib.axes import Axes

from findings.looks import MOST, SETTINGS, Look, are_decades, as_decades, draw_legend, legend_height, looks, write_above
from findings.measures import Run, Series, logged

Axis = Literal["step", "trajectories", "cpu_seconds"]
AXES: Mapping[Axis, str] = {"step": "updates", "trajectories": "sampled trajectories", "cpu_seconds": "CPU seconds"}
_COLUMNS = 4
_FLAT = 4.0  # times what a panel's own values span: a longer axis makes it flat
Families = Mapping[str, Sequence[Run]]


class UnknownMeasureError(ValueError):
    """No run has a series of that name."""


class CrowdedPanelError(ValueError):
    """A panel would have more families than can be told apart."""


class UnknownAxisError(ValueError):
    """A run does not say where its steps lie on that axis."""


def draw_measures(
    measures: Sequence[str], families: Families, path: Path, title: str = "", against: Axis = "step", smooth: int = 1
) -> list[str]:
    """Logged series of runs, a row of panels a measure, in it a panel a task.

    Args:
        measures: Names, as ``find`` reads them.
        families: Label → runs; ``by_task`` reads the label.
        path: Where to.
        title: Over the picture.
        against: What is on the horizontal axis.
        smooth: The points of the running mean that is drawn dark; the series themselves are drawn light.

    Returns:
        Labels of families that have none of the measures.

    Raises:
        UnknownMeasureError: If no run has one of the measures.
        CrowdedPanelError: If a task has more than eight families.
        UnknownAxisError: If a run has no trajectories or CPU seconds.
    """
    tasks = by_task(families)
    _check(measures, tasks, against)
    look = looks(list(dict.fromkeys(name for its in tasks.values() for name in its)))
    named = {f"{name} ({_seeds(name, tasks)})": each for name, each in look.items()}
    columns = min(_COLUMNS, len(tasks))
    lines = -(-len(tasks) // columns)
    width = max(6.4, 0.8 + 2.7 * columns)
    height = 0.6 + (2.4 if columns == 1 else 1.9) * lines * len(measures) + legend_height(list(named), width)
    with plots.figure(path, (width, height), SETTINGS) as figure:
        grid = figure.subplots(lines * len(measures), columns, squeeze=False)
        for place, measure in enumerate(measures):
            panels = list(grid[place * lines : (place + 1) * lines].flat)
            for panel, (task, its) in zip(panels, tasks.items(), strict=False):
                _draw_panel(panel, {look[name]: runs for name, runs in its.items()}, measure, against, smooth)
                panel.set_title(task, loc="left", fontsize=9.5, fontweight="bold")
                panel.set_xlabel(AXES[against])
            for panel in panels[len(tasks) :]:
                panel.remove()
            _scale(panels[: len(tasks)], columns, measure)
        smoothed = f"; dark: running mean of {smooth} points" if smooth > 1 else ""
        write_above(figure, f"{title}{smoothed}".removeprefix("; "), 10)
        draw_legend(figure, named)
    return sorted(label for label, runs in families.items() if not any(_has(runs, each) for each in measures))


def by_task(families: Families) -> dict[str, dict[str, Sequence[Run]]]:
    """The families of each task, by what stands after the task in their labels.

    Example:
        >>> by_task({"bandit: StarPO": [], "sokoban: StarPO": [], "my-run": []})
        {'bandit': {'StarPO': []}, 'sokoban': {'StarPO': []}, '': {'my-run': []}}
    """
    found: dict[str, dict[str, Sequence[Run]]] = {}
    for label, runs in families.items():
        task, colon, name = label.partition(": ")
        found.setdefault(task if colon else "", {})[name if colon else label] = runs
    return found


def find(found: Mapping[str, Series], measure: str) -> Series:
    """A series by its name; the prefix before the slash may be left out.

    Example:
        >>> find({"filter/in_group_std": [(1.0, 0.5)]}, "in_group_std")
        [(1.0, 0.5)]
    """
    if measure in found:
        return found[measure]
    return next((points for name, points in found.items() if name.rpartition("/")[2] == measure), [])


def running_mean(points: Series, width: int) -> Series:
    """Each value as the mean of so many points around it, of fewer at the ends.

    Example:
        >>> running_mean([(0.0, 1.0), (1.0, 4.0), (2.0, 1.0)], 3)
        [(0.0, 2.5), (1.0, 2.0), (2.0, 2.5)]
    """
    before, after = (width - 1) // 2, width // 2
    return [
        (x, fmean(value for _, value in points[max(0, place - before) : place + after + 1]))
        for place, (x, _) in enumerate(points)
    ]


def _has(runs: Sequence[Run], measure: str) -> bool:
    return any(find(logged(run), measure) for run in runs)


def _check(measures: Sequence[str], tasks: Mapping[str, Families], against: Axis) -> None:
    """Refuse what cannot be drawn."""
    every = [run for its in tasks.values() for runs in its.values() for run in runs]
    for measure in measures:
        if not _has(every, measure):
            known = sorted({name for run in every for name in logged(run)})
            raise UnknownMeasureError(f"no run logged {measure!r}; they logged {', '.join(known) or 'nothing'}")
    crowded = [f"{task or 'one panel'} has {len(its)}" for task, its in tasks.items() if len(its) > MOST]
    if crowded:
        raise CrowdedPanelError(
            f"more than {MOST} lines in a panel cannot be told apart: {', '.join(crowded)}; name fewer runs, or choose "
            "of a question's with --variants"
        )
    for name, runs in (family for its in tasks.values() for family in its.items()):
        if against != "step" and not all(against in row for run in runs for row in run.get("curve") or [{}]):
            raise UnknownAxisError(f"{name} has no evaluations with {against}; draw it against step")


def _seeds(name: str, tasks: Mapping[str, Families]) -> str:
    """How many runs a family has in the tasks that have it."""
    counts = sorted({len(its[name]) for its in tasks.values() if name in its})
    said = " to ".join(map(str, (counts[0], counts[-1]) if len(counts) > 1 else counts))
    return f"{said} seed{'' if counts[-1] == 1 else 's'}"


def _draw_panel(axes: Axes, families: Mapping[Look, Sequence[Run]], measure: str, against: Axis, smooth: int) -> None:
    """Each run light; dark the mean at the steps that all runs of a family have, with a marker every tenth of it."""
    for look, runs in families.items():
        found = {place: points for place, run in enumerate(runs) if (points := dict(find(logged(run), measure)))}
        if not found:
            continue
        along = {place: _along(runs[place], list(points), against) for place, points in found.items()}
        for place, points in found.items():
            x = [along[place][step] for step in points]
            axes.plot(x, list(points.values()), color=look.colour, lw=0.6, alpha=0.3)
        shared = sorted(set.intersection(*map(set, found.values())))
        means = [
            (fmean(along[place][step] for place in found), fmean(points[step] for points in found.values()))
            for step in shared
        ]
        x, y = [place for place, _ in means], [value for _, value in running_mean(means, smooth)]
        marked = {"marker": look.marker, "ms": 4, "markevery": max(1, len(x) // 10)}
        axes.plot(x, y, color=look.colour, ls=(0, look.dashes), lw=1.6, **marked)


def _along(run: Run, steps: Sequence[float], against: Axis) -> dict[float, float]:
    """Where each step lies on the axis, linear between evaluations."""
    if against == "step":
        return {step: step for step in steps}
    rows = run["curve"]
    places = np.interp(steps, [row["step"] for row in rows], [row[against] for row in rows])
    return dict(zip(steps, places.tolist(), strict=True))


def _scale(panels: Sequence[Axes], columns: int, measure: str) -> None:
    """One vertical axis for the panels of a measure, or one each where that would make some of them flat.

    An axis is logarithmic where its values are spread over decades.
    """
    values = [[value for line in panel.lines for value in line.get_ydata()] for panel in panels]
    spans = [max(each) - min(each) for each in values if len(each) > 1]
    every = [value for each in values for value in each]
    alike = not spans or min(spans) > (max(every) - min(every)) / _FLAT
    for place, (panel, each) in enumerate(zip(panels, values, strict=True)):
        if place % columns == 0:
            panel.set_ylabel(measure)
        if alike and place:
            panel.sharey(panels[0])
            panel.tick_params(labelleft=place % columns == 0)
        found = every if alike else each
        if are_decades(found):
            as_decades(panel)
        panel.autoscale(axis="y")
