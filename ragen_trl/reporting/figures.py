"""The report's drawing: success in training beside the evaluations, as SVG text to put inside a page.

The same runs give the same bytes: matplotlib's defaults, a fixed salt for the ids, no date. Text stays text. All other
curves are TRL's (``report_to``).
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow, then three dark colours. Colour-blind readers can tell them apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b3f8c", "#7f4f24", "#555555")
_Point = tuple[float, float, str]  # step, success, what shows under the mouse
_LEVELS = {"random": ("#777777", (5, 3)), "oracle": ("#2b8a3e", (1, 1.5))}
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "success",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "legend.frameon": False,
}


def draw(curves: Sequence[Sequence[tuple[float, float]]], results: Sequence[Mapping[str, Any]]) -> str:
    """The success of each run as SVG: light as logged, strong as the mean of the last values.

    Args:
        curves: (step, success) of each run, at least one point in all.
        results: The evaluation results of each run by policy, as in ``summary.json``.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        axes = Figure(figsize=(7.0, 3.2), layout="constrained").subplots()
        last = max(step for points in curves for step, _ in points)
        hovered: list[_Point] = []
        window = max(5, math.ceil(max(map(len, curves)) / 20))
        for order, points in enumerate(curves):
            steps, values = [step for step, _ in points], [value for _, value in points]
            marker, colour = "o" if len(points) == 1 else "", COLOURS[order % len(COLOURS)]
            axes.plot(steps, values, color=colour, alpha=0.45, lw=0.9, marker=marker)
            means = [fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]
            axes.plot(steps, means, color=colour, lw=1.5)
            for step, value, average in zip(steps, values, means, strict=True):
                hovered.append((step, value, f"step {step:g}: success {value:.3f}, mean of the last {average:.3f}"))
        hovered += _draw_evaluations(axes, results, last)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, handlelength=1.6, columnspacing=1.0)
        target = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        axes.figure.savefig(target, format="svg", metadata=metadata)
    text = target.getvalue()
    drawn = re.sub(r'<g id="[^"]*">', "<g>", text[text.index("<svg") :])
    return drawn.replace("</svg>", f"{''.join(_spot(axes, *point) for point in hovered)}</svg>")


def _spot(axes: Axes, step: float, value: float, words: str) -> str:
    """An invisible circle with words that show under the mouse; SVG's y begins at the top, in points."""
    inches = axes.figure.dpi_scale_trans.inverted().transform(axes.transData.transform((step, value)))
    x, y = 72 * inches[0], 72 * (axes.figure.bbox_inches.height - inches[1])
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill-opacity="0"><title>{words}</title></circle>'


def _draw_evaluations(axes: Axes, results: Sequence[Mapping[str, Any]], last: float) -> list[_Point]:
    """Draw random play and the oracle as levels, the model before and after training as points with bars: returned."""
    points = []
    for policy, (colour, dashes) in _LEVELS.items():
        found = [run[policy]["success"] for run in results if policy in run]
        for number, level in enumerate(dict.fromkeys(found)):
            axes.axhline(level, color=colour, ls=(0, dashes), lw=1.1, label=None if number else policy)
    for order, run in enumerate(results):
        aside = 0.012 * last * order  # so that the bars of several runs do not cover each other
        for policy, step in (("before", -aside), ("trained", last + aside)):
            if policy in run:
                value, low, high = (run[policy][name] for name in ("success", "success_low", "success_high"))
                arms = [[max(0.0, value - low)], [max(0.0, high - value)]]
                axes.errorbar(step, value, arms, fmt="o", ms=4.5, capsize=2.5, color=COLOURS[order % len(COLOURS)])
                points.append((step, value, f"{policy}: success {value:.3f} [{low:.3f}, {high:.3f}]"))
    return points
