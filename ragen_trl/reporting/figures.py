"""The report's drawings: learning curves and intervals as SVG text to put inside a page.

The same runs give the same bytes: matplotlib's defaults, a fixed salt for the ids, no date. Text stays text.
"""

import io
import math
import re
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ragen_trl.reporting.run_folder import POLICIES, Family, Run, played, policy_label

# Okabe and Ito's palette without its yellow, then three dark colours. Colour-blind readers can tell them apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b3f8c", "#7f4f24", "#555555")
_MEAN_COLOUR = "#111111"
MARKS = {"early": ("#b3530d", (4, 3)), "confirmation": ("#b0132b", (1, 0))}
"""Colour and dashes of the lines where an alert fired, by its kind."""
MAX_POINTS = 2000
_FEWEST_FOR_INTERVAL = 5
# Student's t, 97.5 %, for 4, 5, … 19 degrees of freedom. The last one is used for more as well, which is conservative.
_T = (2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)
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
        note: One line about what is measured; "" if the title says it.
        metrics: Log key → name in the legend; the second is dashed.
        baseline: Field of the evaluation results that is drawn as well, or "".
        limits: Range of the vertical axis if it is known in advance.
        least_height: Of the vertical axis, so noise does not look like a change.
    """

    title: str
    note: str
    metrics: dict[str, str]
    baseline: str = ""
    limits: tuple[float, float] | None = None
    least_height: float = 0.0


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
    Panel(
        "Entropy",
        "nats per sampled token; near 0 before success is high, nothing new is tried",
        {"entropy": "entropy"},
    ),
    Panel("Gradient norm", "before clipping; look for spikes", {"grad_norm": "gradient norm"}),
    Panel(
        "Readable replies",
        "share of the turns of an episode, mean over episodes",
        {"format_valid": "format ok", "action_valid": "actions valid too"},
        limits=_SHARE,
    ),
    Panel("Reply tokens", "sampled per episode", {"reply_tokens": "reply tokens"}),
    Panel("Turns", "per episode", {"turns": "turns"}),
    Panel(
        "Actions per turn",
        "a fall early on: the agent learns to stand still",
        {"collapse/actions_per_turn": "actions per turn"},
    ),
    Panel(
        "Echo",
        "share of pairs of a group that are alike",
        {"collapse/identical_replies": "first replies", "collapse/identical_episodes": "actions of all turns"},
        limits=_SHARE,
    ),
    Panel("Thought tokens", "per thought", {"collapse/thought_tokens": "thought tokens"}),
    Panel(
        "Thoughts and answers",
        "shares of thoughts, and of those that name an action",
        {"collapse/thought_names": "name an action", "collapse/thought_followed": "the answer follows it"},
        limits=_SHARE,
    ),
    Panel(
        "Thoughts and the request",
        "share of thoughts that say nothing else",
        {"collapse/thought_restates": "only repeat it"},
        limits=_SHARE,
    ),
    Panel(
        "Variety of thoughts",
        "share of tokens, and of pairs of tokens, in the thoughts of a rollout that are distinct",
        {"collapse/thought_distinct_1": "tokens", "collapse/thought_distinct_2": "pairs"},
        limits=_SHARE,
    ),
    Panel(
        "Mutual information",
        "nats a token, between prompts and thoughts (replies where there are none); 0 is a template",
        {"collapse/mi": "mutual information"},
        least_height=0.1,
    ),
    Panel("Seconds per step", "wall clock", {"step_time": "whole step", "rollout/seconds": "rollout"}),
)


@dataclass(frozen=True)
class Mark:
    """A step at which an alert of a kind fired; drawn as a line in the panel of its metric and in success."""

    step: float
    kind: str
    metric: str = ""


def draw_panel(panel: Panel, families: Sequence[Family], marks: Sequence[Mark] = ()) -> str | None:
    """A panel's learning curves and alerts as SVG, or ``None`` if no run has one of its metrics.

    Repetitions get a mean and a band, at the steps that all of them have. A single family is coloured by run, several
    families by family, in the order of ``COLOURS``.
    """
    runs = [run for family in families for run in family.runs]
    if not any(run.series(metric)[0] for metric in panel.metrics for run in runs):
        return None
    with matplotlib.rc_context():
        axes = _axes(panel.title, height=2.75)
        for order, metric in enumerate(panel.metrics):
            _draw_metric(axes, panel, metric, order, families)
        if panel.baseline:
            _draw_evaluations(axes, panel.baseline, families)
        _draw_marks(axes, [mark for mark in marks if "success" in panel.metrics or _watches(mark, panel)])
        if panel.limits:
            axes.set_ylim(*panel.limits)
        elif axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)  # a share of a scale is read as a share only if the scale begins at 0
        low, high = axes.get_ylim()
        if high - low < panel.least_height:
            axes.set_ylim((low + high - panel.least_height) / 2, (low + high + panel.least_height) / 2)
        if len({step for metric in panel.metrics for run in runs for step in run.series(metric)[0]}) == 1:
            axes.set_xlim(axes.get_xlim()[0] - 1, axes.get_xlim()[1] + 1)  # else the ticks are fractions of a step
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, handlelength=1.8, columnspacing=1.2)
        return _svg(axes)


def draw_intervals(families: Sequence[Family]) -> str:
    """Success of every policy with its 95 % interval as SVG: a row for each policy, a mark for each run."""
    coloured = run_colours(families)
    number = len(coloured)
    with matplotlib.rc_context():
        axes = _axes("intervals", height=0.75 + 0.3 * len(POLICIES) * max(1.0, number / 4))
        for row, policy in enumerate(POLICIES):
            for order, (run, colour) in enumerate(coloured):
                result = played(run.summary).get(policy)
                if result is None:
                    continue
                offset = 0.16 * (order - (number - 1) / 2) * min(1.0, 4 / number)
                axes.errorbar(
                    result["success"], row + offset, xerr=_bars(result), fmt="o", ms=4, capsize=2, color=colour
                )
        axes.set_yticks(range(len(POLICIES)), [policy_label(coloured[0][0].summary, policy) for policy in POLICIES])
        axes.set_ylim(len(POLICIES) - 0.5, -0.5)
        axes.set_xlim(*_SHARE)
        axes.set_xlabel("success, held out")
        axes.grid(visible=False, axis="y")
        return _svg(axes)


def run_colours(families: Sequence[Family]) -> list[tuple[Run, str]]:
    """Each run with its colour: one per run in a single family, else one per family."""
    if len(families) == 1:
        return [(run, COLOURS[order % len(COLOURS)]) for order, run in enumerate(families[0].runs)]
    return [(run, COLOURS[order % len(COLOURS)]) for order, family in enumerate(families) for run in family.runs]


def _draw_metric(axes: Axes, panel: Panel, metric: str, order: int, families: Sequence[Family]) -> None:
    """One metric of every run: each step light, then the moving average, then mean and band of repetitions."""
    coloured = run_colours(families)
    alone = len(coloured) == 1
    window, style = averaging_window(max(len(run.history) for run, _ in coloured)), ("-", (0, (4, 2)))[order]
    compared = len(families) > 1 and len(coloured) > len(families)
    smooth: dict[int, dict[float, float]] = {}
    for number, (run, colour) in enumerate(coloured):
        steps, values = run.series(metric)
        colour = COLOURS[order] if alone else colour
        average = moving_average(values, window)
        smooth[number] = dict(zip(steps, average, strict=True))
        if not compared:  # the means of several families are enough lines
            _line(axes, steps, values, color=colour, alpha=0.5, lw=0.9)
        _line(axes, steps, average, color=colour, lw=0.7 if compared else 1.4, alpha=0.45 if compared else 1, ls=style)
        if alone:
            axes.lines[-1].set_label(panel.metrics[metric])
    _draw_means(axes, families, list(smooth.values()), style, panel.metrics[metric])


def _draw_means(
    axes: Axes, families: Sequence[Family], smooth: list[dict[float, float]], style: Any, name: str
) -> None:
    """Mean and band of every family of several runs; without any, only the metric's name for the legend."""
    named = len(smooth) == 1
    for order, family in enumerate(families):
        averages, smooth = smooth[: len(family.runs)], smooth[len(family.runs) :]
        shared = sorted(set.intersection(*map(set, averages)))
        if len(averages) == 1 or not shared:
            continue
        columns = [[one[step] for one in averages] for step in shared]
        colour = _MEAN_COLOUR if len(families) == 1 else COLOURS[order % len(COLOURS)]
        low, high = zip(*map(band, columns), strict=True)
        kept = sorted({*thin(low, MAX_POINTS // 2), *thin(high, MAX_POINTS // 2)})
        ends = [[side[i] for i in kept] for side in (low, high)]
        axes.fill_between([shared[i] for i in kept], *ends, color=colour, alpha=0.13, lw=0)
        _line(axes, shared, [statistics.fmean(column) for column in columns], color=colour, lw=1.7, ls=style)
        if len(families) == 1:
            axes.lines[-1].set_label(f"mean, {name}")
            named = True
    if not named:
        axes.plot([], [], color="#555555", lw=1.4, ls=style, label=name)


def _line(axes: Axes, steps: Sequence[float], values: Sequence[float], **look: Any) -> None:
    kept = thin(values)
    marker = "o" if len(kept) == 1 else None  # a line of one point has no length
    axes.plot([steps[i] for i in kept], [values[i] for i in kept], marker=marker, markersize=4, **look)


def _watches(mark: Mark, panel: Panel) -> bool:
    """Whether the panel shows the alert's metric; the prefix before the slash only says who logged it."""
    return mark.metric.rpartition("/")[2] in {metric.rpartition("/")[2] for metric in panel.metrics}


def _draw_marks(axes: Axes, marks: Sequence[Mark]) -> None:
    for kind, (colour, dashes) in MARKS.items():
        for number, step in enumerate(sorted({mark.step for mark in marks if mark.kind == kind})):
            label = {"early": "early alert", "confirmation": "confirmed"}[kind] if number == 0 else None
            axes.axvline(step, color=colour, ls=(0, dashes), lw=1.1, label=label)


def _draw_evaluations(axes: Axes, field: str, families: Sequence[Family]) -> None:
    coloured = run_colours(families)
    for policy, colour in (("random", "#777777"), ("oracle", "#2b8a3e")):
        known = [played(run.summary, [policy]) for run, _ in coloured]
        levels = dict.fromkeys(found[policy][field] for found in known if found)
        for number, level in enumerate(levels):
            label = policy if number == 0 else None
            axes.axhline(level, color=colour, ls=(0, (1, 1.5) if policy == "oracle" else (5, 3)), lw=1.1, label=label)
    longest = max(run.steps for run, _ in coloured)
    for order, (run, colour) in enumerate(coloured):
        aside = 0.012 * longest * order  # so that the bars of several runs do not cover each other
        for policy, step in (("before", -aside), ("trained", run.steps + aside)):
            result = run.summary["results"][policy]
            bars = _bars(result) if field == "success" else 1.96 * result["return_stderr"]
            axes.errorbar(step, result[field], yerr=bars, fmt="o", ms=4.5, capsize=2.5, color=colour)


def _bars(result: dict[str, float]) -> list[list[float]]:
    """Lengths of the two arms of the success interval, shape (2, 1); rounding makes none negative."""
    centre = result["success"]
    return [[max(0.0, centre - result["success_low"])], [max(0.0, result["success_high"] - centre)]]


def _axes(name: str, height: float) -> Axes:
    """Axes in a figure of a phone's width. ``name`` makes the ids of several drawings in one page differ."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_SETTINGS | {"svg.hashsalt": name})
    return Figure(figsize=(4.7, height), layout="constrained").subplots()


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


def averaging_window(rows: int) -> int:
    """The window of the moving average for runs of at most ``rows`` logged rows: a twentieth of them, at least 5."""
    return max(5, math.ceil(rows / 20))


def thin(values: Sequence[float], limit: int = MAX_POINTS) -> list[int]:
    """Indices of at most ``limit`` values to draw: the lowest and the highest of each section.

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


def band(values: Sequence[float]) -> tuple[float, float]:
    """The band around the mean of repetitions: the 95 % t interval of the mean for five or more, else the range.

    Example:
        >>> band([1.0, 2.0, 6.0])
        (1.0, 6.0)
        >>> [round(end, 3) for end in band([1.0, 2.0, 3.0, 4.0, 5.0])]
        [1.037, 4.963]
    """
    if len(values) < _FEWEST_FOR_INTERVAL:
        return min(values), max(values)
    mean = statistics.fmean(values)
    freedom = len(values) - 1
    arm = _T[min(freedom - 4, len(_T) - 1)] * statistics.stdev(values) / math.sqrt(len(values))
    return mean - arm, mean + arm


def band_in_words(sizes: Collection[int]) -> str:
    """The meaning of the bands, for families of these sizes; "" if there is no band."""
    kinds = []
    if any(1 < size < _FEWEST_FOR_INTERVAL for size in sizes):
        kinds.append("from the lowest to the highest run, no confidence interval")
    if any(size >= _FEWEST_FOR_INTERVAL for size in sizes):
        kinds.append("95 % t interval of the mean over runs")
    return f"Band: {'; or, with five runs or more, '.join(kinds)}." if kinds else ""
