"""The report's drawings: learning curves and intervals as SVG text to put inside a page.

The same runs give the same bytes: matplotlib's defaults instead of the user's settings, a fixed salt for the ids, no
date. Text stays text, so that a reader can select it and the page's font applies. Titles are the page's part. Curves
longer than 2000 points are thinned so that every spike survives. Nothing here can be zoomed: that needs a script.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ragen_trl.run_folder import POLICIES, Run, policy_label

MAX_POINTS = 2000
# Okabe and Ito's palette without its yellow, then three dark ones: told apart by colour-blind readers too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b3f8c", "#7f4f24", "#555555")
_MEAN_COLOUR = "#111111"
_SETTINGS = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names come from files: a $ in them is a $
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@dataclass(frozen=True)
class Panel:
    """One drawing of the page.

    Attributes:
        title: Its heading.
        note: What is measured, in a line; "" if the title says it.
        metrics: Log key → name in the legend; the second is dashed.
        baseline: Field of the evaluation results that belongs into the same drawing, or "".
        limits: Range of the vertical axis if it is known beforehand.
    """

    title: str
    note: str
    metrics: dict[str, str]
    baseline: str = ""
    limits: tuple[float, float] | None = None


_SHARE = (-0.03, 1.03)
PANELS = (
    Panel(
        "Success",
        "share of training episodes; points with bars: held-out evaluation, 95 % interval",
        {"success": "training"},
        "success",
        _SHARE,
    ),
    Panel(
        "Return",
        "mean per training episode; points with bars: held-out evaluation, 95 % interval",
        {"return": "training"},
        "mean_return",
    ),
    Panel(
        "In-group return std",
        "mean over groups of one start state; near 0 there is nothing to learn from",
        {"filter/in_group_std": "all groups", "filter/kept_in_group_std": "kept groups"},
    ),
    Panel("Entropy", "nats per sampled token; a fall to 0 is collapse", {"entropy": "entropy"}),
    Panel("Gradient norm", "before clipping; look for spikes", {"grad_norm": "gradient norm"}),
    Panel(
        "Readable replies",
        "share of turns in training",
        {"format_valid": "format ok", "action_valid": "actions valid too"},
        limits=_SHARE,
    ),
    Panel("Reply tokens", "sampled per episode", {"reply_tokens": "reply tokens"}),
    Panel("Turns", "per episode", {"turns": "turns"}),
    Panel("Seconds per step", "wall clock", {"step_time": "whole step", "rollout/seconds": "rollout"}),
)


def draw_panel(panel: Panel, runs: Sequence[Run], mean: bool) -> str | None:
    """A panel's learning curves as SVG, or ``None`` if no run has one of its metrics.

    Args:
        panel: What to draw.
        runs: Their colours follow the order of ``COLOURS``.
        mean: Also draw the mean over the runs, at the steps that all of them have.
    """
    if not any(run.series(metric)[0] for metric in panel.metrics for run in runs):
        return None
    with matplotlib.rc_context():
        axes = _axes(panel.title, height=2.75)
        for order, metric in enumerate(panel.metrics):
            _draw_metric(axes, panel, metric, order, runs, mean)
        if panel.baseline:
            _draw_evaluations(axes, panel.baseline, runs)
        if panel.limits:
            axes.set_ylim(*panel.limits)
        elif axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)  # a share of a scale is read as a share only if the scale begins at 0
        axes.set_xlabel("step")
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handlelength=1.8, columnspacing=1.2)
        return _svg(axes)


def draw_intervals(runs: Sequence[Run]) -> str:
    """Success of every policy with its 95 % interval, a line a policy and a mark a run, as SVG."""
    with matplotlib.rc_context():
        axes = _axes("intervals", height=0.75 + 0.3 * len(POLICIES) * max(1.0, len(runs) / 4))
        for row, policy in enumerate(POLICIES):
            for order, run in enumerate(runs):
                result = run.summary["results"][policy]
                offset = 0.16 * (order - (len(runs) - 1) / 2) * min(1.0, 4 / len(runs))
                axes.errorbar(
                    result["success"], row + offset, xerr=_bars(result), fmt="o", ms=4, capsize=2, color=_colour(order)
                )
        axes.set_yticks(range(len(POLICIES)), [policy_label(runs[0].summary, policy) for policy in POLICIES])
        axes.set_ylim(len(POLICIES) - 0.5, -0.5)
        axes.set_xlim(*_SHARE)
        axes.set_xlabel("success, held out")
        axes.grid(visible=False, axis="y")
        return _svg(axes)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean of each value and the ones before it, ``window`` in all (fewer at the start).

    Example:
        >>> moving_average([1.0, 3.0, 5.0], window=2)
        [1.0, 2.0, 4.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return ((sums[ends] - sums[starts]) / (ends - starts)).tolist()  # type: ignore[no-any-return]


def averaging_window(runs: Sequence[Run]) -> int:
    """Logged rows per moving average: a twentieth of the longest run's."""
    return max(5, math.ceil(max(len(run.history) for run in runs) / 20))


def thin(values: Sequence[float], limit: int = MAX_POINTS) -> list[int]:
    """Indices of at most ``limit`` values to draw: the lowest and the highest of each stretch.

    Example:
        >>> thin([0.0, 9.0, 1.0, 2.0, 3.0, 2.0], limit=4)
        [0, 1, 3, 4]
    """
    if len(values) <= limit:
        return list(range(len(values)))
    chosen: set[int] = set()
    array = np.asarray(values)
    for stretch in np.array_split(np.arange(len(values)), limit // 2):
        part = array[stretch]
        chosen |= {int(stretch[part.argmin()]), int(stretch[part.argmax()])}
    return sorted(chosen)


def _draw_metric(axes: Axes, panel: Panel, metric: str, order: int, runs: Sequence[Run], mean: bool) -> None:
    """One metric of every run: each step light, the moving average over it, and the mean over runs on top."""
    window, style = averaging_window(runs), ("-", (0, (4, 2)))[order]
    smooth: list[dict[float, float]] = []
    for number, run in enumerate(runs):
        steps, values = run.series(metric)
        colour = _colour(number) if len(runs) > 1 else _colour(order)
        average = moving_average(values, window)
        smooth.append(dict(zip(steps, average, strict=True)))
        kept = thin(values)
        light = 0.45 if len(runs) == 1 else 0.25
        axes.plot([steps[i] for i in kept], [values[i] for i in kept], color=colour, alpha=light, lw=0.7)
        kept = thin(average)
        label = panel.metrics[metric] if len(runs) == 1 else None
        lines = axes.plot([steps[i] for i in kept], [average[i] for i in kept], color=colour, lw=1.4, ls=style)
        lines[0].set_label(label)
    shared = sorted(set.intersection(*map(set, smooth)))
    if mean and shared:
        means = [float(np.mean([one[step] for one in smooth])) for step in shared]
        kept = thin(means)
        x, y = [shared[i] for i in kept], [means[i] for i in kept]
        axes.plot(x, y, color=_MEAN_COLOUR, lw=2, ls=style, label=f"mean, {panel.metrics[metric]}")
    elif len(runs) > 1:
        axes.plot([], [], color="#555555", lw=1.4, ls=style, label=panel.metrics[metric])


def _draw_evaluations(axes: Axes, field: str, runs: Sequence[Run]) -> None:
    """Held-out evaluations before and after training, random and oracle as lines."""
    for policy, colour in (("random", "#777777"), ("oracle", "#2b8a3e")):
        levels = dict.fromkeys(run.summary["results"][policy][field] for run in runs)
        for number, level in enumerate(levels):
            label = policy if number == 0 else None
            axes.axhline(level, color=colour, ls=(0, (1, 1.5) if policy == "oracle" else (5, 3)), lw=1.1, label=label)
    longest = max(run.steps for run in runs)
    for order, run in enumerate(runs):
        aside = 0.012 * longest * order  # so that the bars of several runs do not hide each other
        for policy, step in (("before", -aside), ("trained", run.steps + aside)):
            result = run.summary["results"][policy]
            bars = _bars(result) if field == "success" else 1.96 * result["return_stderr"]
            colour = _colour(order)
            axes.errorbar(step, result[field], yerr=bars, fmt="o", ms=4.5, capsize=2.5, color=colour)


def _colour(order: int) -> str:
    return COLOURS[order % len(COLOURS)]


def _bars(result: dict[str, float]) -> list[list[float]]:
    """Lengths of the two arms of the success interval, never negative through rounding: shape (2, 1)."""
    centre = result["success"]
    return [[max(0.0, centre - result["success_low"])], [max(0.0, result["success_high"] - centre)]]


def _axes(name: str, height: float) -> Axes:
    """Axes in a figure of a phone's width. ``name`` keeps the ids of several drawings in one page apart."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_SETTINGS | {"svg.hashsalt": name})
    return Figure(figsize=(4.7, height), layout="constrained").subplots()


def _svg(axes: Axes) -> str:
    """The figure as an SVG element, without XML head, date and the ids that nothing refers to."""
    target = io.StringIO()
    axes.figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = target.getvalue()
    return re.sub(r'<g id="[^"]*">', "<g>", text[text.index("<svg") :])
