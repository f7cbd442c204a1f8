"""The pictures of a question: success at the end, a row a variant, and learning curves, a panel a variant.

Eight lines in one panel cover each other. So each variant has a panel of its own, with the means of all others in grey,
on the same axes. Left out: single seeds (bars and bands are their range) and what needs a second scale; the table has
it.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from learning.summary import Run, mean_curve, starts

_COLOUR, _OTHERS, _RANDOM, _ORACLE = "#0072b2", "#c4c4c4", "#777777", "#2b8a3e"
SETTINGS = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "grid.color": "#eeeeee",
    "axes.axisbelow": True,
    "text.parse_math": False,
}
_COLUMNS = 4
_TITLE_WIDTH = 34
_HEIGHTS = [0.06 + 0.04 * place for place in range(23)]  # of success, where the end of a curve may be written
_CROWDED = 0.25  # of success: names of lines further down stand above them at the left


@contextmanager
def figure(
    path: Path, size: tuple[float, float], settings: Mapping[str, Any] = SETTINGS, dpi: int = 130
) -> Iterator[Figure]:
    """A figure with matplotlib's defaults instead of the user's settings, written at the end.

    Args:
        path: A PNG; its folder is made.
        size: Width and height in inches.
        settings: What is other than matplotlib's defaults.
        dpi: Pixels an inch.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        drawn = Figure(figsize=size, layout="constrained", dpi=dpi)
        yield drawn
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, metadata={"Software": None})


def draw_question(content: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Write the pictures of a question's JSON as PNG.

    Args:
        content: What ``collect`` made.
        folder: Where to.
        name: That the files begin with.

    Returns:
        The files.
    """
    tasks = content["tasks"]
    written = []
    if tasks:
        written.append(folder / f"{name}.png")
        draw_ends(content["question"]["title"], tasks, written[-1])
    for task_name, task in tasks.items():
        if content["question"]["curves"]:
            written.append(folder / f"{name}_{task_name}.png")
            variants = [(variant["label"], variant["runs"]) for variant in task["variants"].values()]
            # The space does not break.
            labelled = {f"{label} ({len(runs)}\u00a0seed{'s' * (len(runs) > 1)})": runs for label, runs in variants}
            draw_curves(_title(task_name, task), labelled, _baselines(task), written[-1])
    return written


def draw_ends(title: str, tasks: Mapping[str, Any], path: Path) -> None:
    """Success at the end of every variant with the range of its seeds, a panel a task, with a line where it began."""
    heights = [len(task["variants"]) for task in tasks.values()]
    with figure(path, (7.2, 0.85 + 0.24 * sum(heights) + 0.42 * len(tasks))) as drawn:
        grid = drawn.subplots(
            len(tasks), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": [n + 0.6 for n in heights]}
        )
        for axes, (name, task) in zip(grid[:, 0], tasks.items(), strict=True):
            _draw_ends(axes, name, task)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower left", ncols=4, frameon=False, fontsize=8.5)
        grid[-1, 0].set_xlabel("success, held out: mean and range over the seeds")
        drawn.suptitle(title, x=0.01, ha="left", fontsize=10.5)


def _draw_ends(axes: Axes, name: str, task: Mapping[str, Any]) -> None:
    first = next(iter(task["prepared"]["results"].values()))
    for policy, colour, style in (("random", _RANDOM, (5, 3)), ("oracle", _ORACLE, (1, 1.5))):
        axes.axvline(first[policy]["success"], color=colour, lw=1.2, ls=(0, style), label=policy)
    for place, start in enumerate(starts(run for variant in task["variants"].values() for run in variant["runs"])):
        axes.axvline(start["success"], color="#d55e00", lw=1.2, label="where training begins" if place == 0 else None)
    for row, variant in enumerate(task["variants"].values()):
        found = variant["summary"]["success"]
        # Not below 0: the mean of equal numbers may differ from them in the last digit.
        bar = [[max(0.0, found["mean"] - found["low"])], [max(0.0, found["high"] - found["mean"])]]
        label = "after training" if row == 0 else None
        axes.errorbar(
            found["mean"], row, xerr=bar, fmt="o", ms=4.5, capsize=2.5, color=_COLOUR, label=label, zorder=4
        )
    axes.set_yticks(range(len(task["variants"])), [variant["label"] for variant in task["variants"].values()])
    axes.set_ylim(len(task["variants"]) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.03)
    axes.grid(visible=False, axis="y")
    axes.set_title(name, loc="left", fontsize=9.5, fontweight="bold")


def _baselines(task: Mapping[str, Any]) -> dict[str, float]:
    """Success of random play and of the oracle in the curve's evaluation."""
    first = next(iter(task["prepared"]["results"].values()))
    return {name: first[name]["success"] for name in ("random", "oracle")}


def _title(name: str, task: Mapping[str, Any]) -> str:
    """What is seen, in a line."""
    settings = task["prepared"]["settings"]
    evaluation = next(iter(settings["evaluations"]))
    return (
        f"{name} ({settings['env']}), {evaluation}: n = {settings['episodes']} at temperature "
        f"{settings.get('temperature', 1)}; "
        "mean and range over seeds; other variants in grey"
    )


def draw_curves(
    title: str,
    variants: Mapping[str, Sequence[Run]],
    baselines: Mapping[str, float],
    path: Path,
    points: Mapping[str, Sequence[tuple[float, Mapping[str, float]]]] = MappingProxyType({}),
) -> None:
    """Write a PNG.

    Args:
        title: Over the whole picture.
        variants: Label → runs, at least one each.
        baselines: Success of ``random`` and ``oracle``.
        path: Where to.
        points: By label, evaluations with intervals that are no part of a line: trajectories, and ``success`` with
            its bounds. The last ones are then what is written.
    """
    columns = min(_COLUMNS, len(variants))
    rows = -(-len(variants) // columns)
    with figure(path, (2.75 * columns + 0.6, 2.3 * rows + 0.75)) as drawn:
        grid = drawn.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        curves = {label: mean_curve(runs) for label, runs in variants.items()}
        panels = list(grid.flat)
        for panel, label in zip(panels, variants, strict=False):
            _draw_panel(panel, label, curves)
            _draw_points(panel, points.get(label, ()))
            _write_end(panel, label, curves, baselines, points.get(label, ()))
            _draw_baselines(panel, baselines, named=panel is panels[0])
        for panel in panels[len(variants) :]:
            panel.remove()
        for row in range(rows):
            grid[row, 0].set_ylabel("success")
        drawn.suptitle(textwrap.fill(title, 36 * columns), x=0.01, ha="left", fontsize=10.5)
        drawn.supxlabel("sampled trajectories, thousands", fontsize=9)


def _draw_panel(axes: Axes, label: str, curves: Mapping[str, tuple[list[float], ...]]) -> None:
    """One variant: mean and range over its seeds."""
    for other, (x, mean, _, _) in curves.items():
        if other != label:
            axes.plot(_thousands(x), mean, color=_OTHERS, lw=0.9, zorder=2)
    x, mean, low, high = curves[label]
    axes.fill_between(_thousands(x), low, high, color=_COLOUR, alpha=0.22, lw=0, zorder=3)
    axes.plot(_thousands(x), mean, color=_COLOUR, lw=2, zorder=4)
    axes.set_title(textwrap.fill(label, _TITLE_WIDTH), loc="left", fontsize=9.5, fontweight="bold")
    axes.set_ylim(-0.02, 1.04)


def _draw_points(axes: Axes, points: Sequence[tuple[float, Mapping[str, float]]]) -> None:
    for x, found in points:
        reach = [[found["success"] - found["success_low"]], [found["success_high"] - found["success"]]]
        style = {"fmt": "o", "ms": 3.5, "color": _COLOUR, "lw": 1.1, "clip_on": False, "zorder": 5}
        axes.errorbar([x / 1000], [found["success"]], yerr=reach, **style)


def _write_end(
    axes: Axes,
    label: str,
    curves: Mapping[str, tuple[list[float], ...]],
    baselines: Mapping[str, float],
    points: Sequence[tuple[float, Mapping[str, float]]] = (),
) -> None:
    """The final mean as a number at the right, at the height with most room above and below."""
    right = 0.5 * max(x[-1] for x, *_ in curves.values())
    last = [found for x, found in points if x > 0]
    crossed = [*baselines.values(), *(found[bound] for found in last for bound in ("success_low", "success_high"))]
    for other, (x, *lines) in curves.items():
        for line in lines if other == label else lines[:1]:
            if x[-1] >= right:
                crossed += np.interp(np.linspace(right, x[-1], 25), x, line).tolist()
    height = max(_HEIGHTS, key=lambda place: min(abs(place - each) for each in crossed))
    end = fmean(found["success"] for found in last) if last else curves[label][1][-1]
    axes.annotate(
        f"ends at {100 * end:.0f} %",
        (0.98, height),
        xycoords=("axes fraction", "data"),
        fontsize=9,
        color=_COLOUR,
        ha="right",
        va="center",
    )


def _draw_baselines(axes: Axes, baselines: Mapping[str, Any], named: bool) -> None:
    for name, colour, style in (("random", _RANDOM, (5, 3)), ("oracle", _ORACLE, (1, 1.5))):
        axes.axhline(baselines[name], color=colour, lw=1.1, ls=(0, style), zorder=1.5)
        if named:
            x, place = 1.0, {"xytext": (-2, -3), "ha": "right", "va": "top"}
            if baselines[name] < _CROWDED:  # at the right end stands how the curve ends
                x, place = 0.0, {"xytext": (2, 1), "ha": "left", "va": "bottom"}
            axes.annotate(
                name,
                (x, baselines[name]),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                color=colour,
                fontsize=8,
                **place,
            )


def _thousands(values: Sequence[float]) -> list[float]:
    return [value / 1000 for value in values]
