"""The report's drawings: training curves beside the evaluations, as SVG text to put inside a page.

The same runs give the same bytes: matplotlib's defaults, a fixed salt for the ids, no date. Text stays text. All other
curves are TRL's (``report_to``).
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ragen_trl.evaluation.intervals import t_quantile

# Okabe and Ito's palette without its yellow, then three dark colours. Colour-blind readers can tell them apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b3f8c", "#7f4f24", "#555555")
_LEVELS = {"random": ("#777777", (5, 3)), "oracle": ("#2b8a3e", (1, 1.5))}
_ALERTS = {"early": ("early alert", "#b3530d", (4, 3)), "confirmation": ("confirmed", "#b0132b", (1, 0))}
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

PANELS = {
    "success": "Success: share of training episodes; points with bars: held-out evaluations, 95 % interval",
    "return": "Return: mean per training episode; points with bars: held-out evaluations, 95 % interval",
    "filter/in_group_std": "Standard deviation of returns within groups; near 0 there is nothing to learn from",
    "entropy": "Entropy in nats per sampled token",
}
"""Log key → what the drawing shows."""

Points = Sequence[tuple[float, float]]


def draw(
    metric: str,
    curves: Sequence[Points],
    results: Sequence[Mapping[str, Any]],
    alerts: Sequence[tuple[int, str]] = (),
) -> str:
    """The curve of a metric in each run as SVG: light as logged, strong as the mean of the last values.

    Args:
        metric: A key of ``PANELS``.
        curves: (step, value) of each run, at least one point in all.
        results: The evaluation results of each run by policy, as in ``summary.json``; success and return have them.
        alerts: Step and kind of the alerts that fired.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS | {"svg.hashsalt": metric})
        axes = Figure(figsize=(4.7, 2.75), layout="constrained").subplots()
        last = max(step for points in curves for step, _ in points)
        window = max(5, math.ceil(max(map(len, curves)) / 20))
        for order, points in enumerate(curves):
            steps, values = [step for step, _ in points], [value for _, value in points]
            marker, colour = "o" if len(points) == 1 else "", COLOURS[order % len(COLOURS)]
            axes.plot(steps, values, color=colour, alpha=0.45, lw=0.9, marker=marker)
            axes.plot(steps, moving_average(values, window), color=colour, lw=1.5)
        if metric in ("success", "return"):
            _draw_evaluations(axes, metric, results, last)
        for kind, (name, colour, dashes) in _ALERTS.items():
            for number, step in enumerate(sorted({step for step, other in alerts if other == kind})):
                axes.axvline(step, color=colour, ls=(0, dashes), lw=1.1, label=None if number else name)
        if metric == "success":
            axes.set_ylim(-0.03, 1.03)
        elif axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)  # a share of a scale is read as a share only if the scale begins at 0
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, handlelength=1.6, columnspacing=1.0)
        return _svg(axes)


def _draw_evaluations(axes: Axes, metric: str, results: Sequence[Mapping[str, Any]], last: float) -> None:
    """Random play and the oracle as levels, and the model before and after training as points with bars."""
    for policy, (colour, dashes) in _LEVELS.items():
        found = [run[policy]["success" if metric == "success" else "mean_return"] for run in results if policy in run]
        for number, level in enumerate(dict.fromkeys(found)):
            axes.axhline(level, color=colour, ls=(0, dashes), lw=1.1, label=None if number else policy)
    for order, run in enumerate(results):
        aside = 0.012 * last * order  # so that the bars of several runs do not cover each other
        for policy, step in (("before", -aside), ("trained", last + aside)):
            if policy in run:
                value, low, high = _interval(run[policy], metric)
                arms = [[max(0.0, value - low)], [max(0.0, high - value)]]
                axes.errorbar(step, value, arms, fmt="o", ms=4.5, capsize=2.5, color=COLOURS[order % len(COLOURS)])


def _interval(result: Mapping[str, Any], metric: str) -> tuple[float, float, float]:
    """The value and its 95 % interval; the return's from its standard error over at most n start states."""
    if metric == "success":
        return result["success"], result["success_low"], result["success_high"]
    value, starts = result["mean_return"], max(2, int(result["n"]) // int(result.get("samples") or 1))
    arm = t_quantile(starts - 1) * result["return_stderr"]
    return value, value - arm, value + arm


def _svg(axes: Axes) -> str:
    target = io.StringIO()
    axes.figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = target.getvalue()
    return re.sub(r'<g id="[^"]*">', "<g>", text[text.index("<svg") :])


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and those before it, ``window`` values in all (fewer at the start).

    Example:
        >>> moving_average([1.0, 3.0, 5.0], window=2)
        [1.0, 2.0, 4.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return ((sums[ends] - sums[starts]) / (ends - starts)).tolist()  # type: ignore[no-any-return]
