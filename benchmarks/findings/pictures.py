"""The pictures of claims: a paper's values beside those measured here, the signs of a collapse, and any logged series.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; every series also has a line style and a marker
of its own, for print without colour.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from learning import plots
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from findings.claims import Pair
from findings.intervals import Interval, performance_profile, t_interval
from findings.measures import Run, Series, logged
from findings.published import Comparison, Ours
from findings.signs import GRADIENT, SIGNS, dropped, series, turn
from findings.verdicts import BASELINES, Results, baseline, difference, runs_of

SETTINGS = {**plots.SETTINGS, "legend.frameon": False}
# Okabe and Ito's palette without its yellow, which is too light for a line; then black and grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#777777")
_DASHES = ((1, 0), (5, 2), (1, 1.2), (6, 1.5, 1, 1.5), (3, 1), (8, 3), (2, 4), (1, 3))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Look(NamedTuple):
    """How a series is drawn."""

    colour: str
    dashes: tuple[float, ...]
    marker: str


def looks(names: Sequence[str], by_game: bool = False) -> dict[str, Look]:
    """A look for each name, all different for the first eight.

    Args:
        names: Of the series.
        by_game: Series of one game share a colour: the name begins with it, before a comma or bracket.
    """
    of = {name: re.split(r",| \(", name)[0] if by_game else name for name in names}
    colours = dict(zip(dict.fromkeys(of.values()), cycle(COLOURS), strict=False))
    lines = zip(names, cycle(_DASHES), cycle(_MARKERS), strict=False)
    return {name: Look(colours[of[name]], dashes, marker) for name, dashes, marker in lines}


def draw_comparison(comparison: Comparison, results: Results, path: Path) -> bool:
    """Write the paper's values beside ours as a PNG; whether there was anything of ours to draw."""
    ours = measured(comparison, results)
    if not ours:
        return False
    lines = -(-max(len(ours), len(comparison.published)) // 2)
    with plots.figure(path, (9.0, 3.4 + 0.17 * lines), SETTINGS) as figure:
        names = [*comparison.published, *(name for name in ours if name not in comparison.published)]
        look = looks(names, by_game=True)
        there = {
            name: [None if each is None else Interval(each, each, each, 1) for each in row]
            for name, row in comparison.published.items()
        }
        if comparison.note:
            figure.suptitle(f"Published: {comparison.note}.", x=0.01, ha="left", fontsize=8.5)
        panels = ((there, f"published: {comparison.source}"), (ours, "measured here"))
        for half, (found, title) in zip(figure.subfigures(1, 2), panels, strict=True):
            axes = half.subplots()
            _draw_categories(axes, comparison, found, look)
            axes.set_title(title, loc="left", fontsize=9.5, fontweight="bold")
            axes.set_ylabel(comparison.quantity)
            if comparison.quantity == "success":
                axes.set_ylim(-0.03, 1.05)
            half.legend(loc="outside lower left", fontsize=7.5, ncols=2, handlelength=4.5)
    return True


def measured(comparison: Comparison, results: Results) -> dict[str, list[Interval | None]]:
    """The values here, a row a series, without series that have none; ratios as ratios."""
    found = {}
    for name, row in comparison.here.items():
        for game in comparison.games if "{}" in name else ("",):
            values = [_value(comparison.question, each, game, results) for each in row]
            if any(values):
                found[name.format(game)] = values
    return found


def _value(question: str, asked: Ours, game: str, results: Results) -> Interval | None:
    """One value with its interval over seeds; a single seed has none."""
    task = asked.task.format(game)
    if asked.theirs:
        found = difference(Pair("", question, asked.variant, asked.theirs), task, asked.measure, results)
        if found is None or not asked.measure.ratio:
            return found
        return Interval(math.exp(found.mean), math.exp(found.low), math.exp(found.high), found.n)
    if task not in results.get(question, {}).get("tasks", {}):
        return None
    if asked.variant in BASELINES:
        rate = asked.measure.of(baseline(results[question]["tasks"][task], asked.variant))
        return None if rate is None else Interval(rate, rate, rate, 1)
    values = [asked.measure.of(run) for run in runs_of(results, question, task, asked.variant).values()]
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Interval(known[0], known[0], known[0], 1) if known else None
    return t_interval(known)


def _draw_categories(
    axes: Axes, comparison: Comparison, found: Mapping[str, Sequence[Interval | None]], look: Mapping[str, Look]
) -> None:
    width = min(0.09, 0.6 / max(1, len(found)))
    for order, (name, row) in enumerate(found.items()):
        colour, dashes, marker = look[name]
        aside = width * (order - (len(found) - 1) / 2)
        points = [(place + aside, value) for place, value in enumerate(row) if value is not None]
        x, means = [place for place, _ in points], [value.mean for _, value in points]
        arms = [[value.mean - value.low for _, value in points], [value.high - value.mean for _, value in points]]
        joined = {"ls": (0, dashes), "lw": 1.3} if comparison.ordered or len(row) == 2 else {"ls": "none"}
        axes.errorbar(
            x, means, yerr=arms, color=colour, marker=marker, ms=5, capsize=2, elinewidth=0.8, label=name, **joined
        )
    axes.set_xticks(range(len(comparison.categories)), comparison.categories)
    axes.set_xlim(-0.5, len(comparison.categories) - 0.5)
    axes.set_xlabel(comparison.across, fontsize=8.5)
    axes.grid(visible=False, axis="x")
    if comparison.quantity == "times":
        _logarithmic(axes)
        axes.set_ylim(0.2, 12.0)  # a few intervals are longer
        axes.set_yticks([0.25, 0.5, 1, 2, 4, 8])
        axes.axhline(1.0, color="#888888", lw=0.8)


def draw_signs(title: str, variants: Mapping[str, Sequence[Run]], path: Path) -> None:
    """RAGEN's Figure 6: success and the logged signs of a game, seeds light and the mean dark, marked where they turn.

    Args:
        title: Over the picture.
        variants: Label → runs.
        path: Where to.
    """
    look = looks(list(variants))
    shown = [sign for sign in SIGNS if any(series(run, sign) for runs in variants.values() for run in runs)]
    with plots.figure(path, (7.6, 2.2 + 1.8 * len(shown)), SETTINGS) as figure:
        panels = figure.subplots(1 + len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for label, runs in variants.items():
            held_out = [_by_trajectories(run, logged(run)["held_out"]) for run in runs]
            _draw_runs(panels[0], held_out, look[label], f"{label} ({len(runs)} seeds)")
            drops = [_sampled(run, step) for run in runs if (step := dropped(run)) is not None]
            for panel in panels:
                for place in drops:
                    panel.vlines(
                        place, 0, 1, color=look[label].colour, ls=[(0, look[label].dashes)], lw=0.7, alpha=0.7,
                        transform=panel.get_xaxis_transform(),
                    )
            for panel, sign in zip(panels[1:], shown, strict=True):
                _draw_runs(panel, [_by_trajectories(run, series(run, sign)) for run in runs], look[label])
                turns = [_sampled(run, step) for run in runs if (step := turn(run, sign)) is not None]
                height = panel.get_xaxis_transform()
                place = 0.97 - 0.07 * list(variants).index(label)
                mark = {"color": look[label].colour, "s": 28, "ec": "white", "lw": 0.5, "transform": height}
                panel.scatter(turns, [place] * len(turns), marker=look[label].marker, **mark)
        for panel, name in zip(panels, ("success, held out", *(sign.says for sign in shown)), strict=True):
            panel.set_ylabel(name)
        panels[0].set_ylim(-0.03, 1.03)
        if GRADIENT in shown:
            _scale_by_decades(panels[1 + shown.index(GRADIENT)])
        panels[-1].set_xlabel("sampled trajectories, thousands")
        figure.legend(loc="outside lower left", ncols=2, fontsize=8.5, handlelength=3.5)
        said = f"{title}\nvertical lines: success drops; marks at the top of a panel: it turns"
        figure.suptitle(said, x=0.01, ha="left", fontsize=10)


def draw_profiles(variants: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The performance profile of each variant: the share of its runs above each normalised success.

    Args:
        variants: As ``matched.aggregate`` gives them.
        path: Where to.
    """
    levels = [place / 200 for place in range(-20, 201)]
    look = looks([each["label"] for each in variants])
    with plots.figure(path, (6.4, 4.2), SETTINGS) as figure:
        axes = figure.subplots()
        for each in variants:
            colour, dashes, _ = look[each["label"]]
            shares = performance_profile([score for row in each["scores"] for score in row], levels)
            axes.plot(levels, shares, color=colour, ls=(0, dashes), lw=1.6, label=each["label"])
        axes.set_xlabel("normalised success at the end: 0 is random play, 1 the oracle")
        axes.set_ylabel("share of runs above")
        axes.legend(fontsize=8, handlelength=3.5)


def draw_measures(measures: Sequence[str], families: Mapping[str, Sequence[Run]], path: Path) -> list[str]:
    """Logged series of runs, a panel a measure, against steps: each run light, the mean of a family dark.

    Args:
        measures: Names, as ``find`` reads them.
        families: Label → runs.
        path: Where to.

    Returns:
        Labels of families that have none of the measures.

    Raises:
        UnknownMeasureError: If no run has one of the measures.
    """
    known = sorted({name for runs in families.values() for run in runs for name in logged(run)})
    empty = set(families)
    with plots.figure(path, (7.6, 0.8 + 2.4 * len(measures) + 0.1 * len(families)), SETTINGS) as figure:
        look = looks(list(families))
        panels = figure.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
        for panel, measure in zip(panels, measures, strict=True):
            if not any(find(logged(run), measure) for runs in families.values() for run in runs):
                raise UnknownMeasureError(f"no run logged {measure!r}; they logged {', '.join(known) or 'nothing'}")
            for label, runs in families.items():
                found = [points for run in runs if (points := find(logged(run), measure))]
                if found:
                    _draw_runs(panel, found, look[label], label if label in empty else None)
                    empty.discard(label)
            panel.set_ylabel(measure)
            _scale_by_decades(panel)
        panels[-1].set_xlabel("step")
        figure.legend(fontsize=8, handlelength=4.5, loc="outside lower left", ncols=2)
    return sorted(empty)


class UnknownMeasureError(ValueError):
    """No run has a series of that name."""


def find(found: Mapping[str, Series], measure: str) -> Series:
    """A series by its name; the prefix before the slash may be left out.

    Example:
        >>> find({"filter/in_group_std": [(1.0, 0.5)]}, "in_group_std")
        [(1.0, 0.5)]
    """
    if measure in found:
        return found[measure]
    return next((points for name, points in found.items() if name.rpartition("/")[2] == measure), [])


def _scale_by_decades(axes: Axes, spread: float = 30.0) -> None:
    """Make the vertical axis logarithmic where the largest value is so many times the smallest."""
    values = [value for line in axes.lines for value in line.get_ydata()]
    if values and min(values) > 0 and max(values) > spread * min(values):
        _logarithmic(axes)


def _logarithmic(axes: Axes) -> None:
    """A logarithmic vertical axis with plain numbers: names are drawn as they are, so formulas would be too."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_runs(axes: Axes, runs: Sequence[Series], look: Look, label: str | None = None) -> None:
    """Each run light; dark the mean at the points that all runs have."""
    for points in runs:
        axes.plot(*_columns(points), color=look.colour, lw=0.6, alpha=0.35)
    shared = sorted(set.intersection(*({place for place, _ in points} for points in runs))) if runs else []
    means = [(place, fmean(dict(points)[place] for points in runs)) for place in shared]
    axes.plot(*_columns(means), color=look.colour, ls=(0, look.dashes), lw=1.6, label=label)


def _columns(points: Series) -> tuple[list[float], list[float]]:
    return [place for place, _ in points], [value for _, value in points]


def _by_trajectories(run: Run, points: Series) -> Series:
    return [(_sampled(run, step), value) for step, value in points]


def _sampled(run: Run, step: float) -> float:
    """Thousands of trajectories sampled up to a step, linear between evaluations."""
    rows = [(float(row["step"]), float(row["trajectories"])) for row in run["curve"]]
    for (before, low), (after, high) in zip(rows, rows[1:], strict=False):
        if step <= after:
            return (low + (step - before) / (after - before) * (high - low)) / 1000
    return rows[-1][1] / 1000
