"""The pictures of claims: a paper's values beside those measured here, and the profiles of all games together.

Up to eight series stand in two halves, the paper's and ours. More of them have a panel a game, the paper's above ours.
Vertical axes go as far as the data: the halves have one scale where both need nearly the same, and a word where not.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from learning import plots
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from findings.claims import GAMES, Pair
from findings.intervals import Interval, performance_profile, t_interval
from findings.looks import MOST, SETTINGS, Look, as_decades, draw_legend, legend_height, looks, parts, write_above
from findings.measures import Run, logged
from findings.published import Comparison, Ours
from findings.verdicts import BASELINES, Results, baseline, began_with, difference, runs_of

FORMS = 'In tables the GRPO form is also called "group", and the PPO form "GAE".'
BARS = (
    "Bars: 95 % t interval over the seeds of one value, not of a difference, of a success within 0 and 1; an arrow "
    "where it goes on."
)
_Row = Sequence[Interval | None]
_Rows = Mapping[str, _Row]
_ITSELF = "the game itself"
_ALIKE = 1.6  # how many times one scale may be as long as the other for the halves to have the longer one
_SHORTEST = 0.2  # of success: no scale is shorter
_TICKS = [0.25, 0.5, *(digit * 10**power for power in range(4) for digit in (1, 2, 5))]
_LEAST = -50  # of normalised success in a profile, in steps of 1/200
# As a ratio, and of tokens as a ratio to the values: a few intervals are longer, and end in an arrow.
_FARTHEST, _FURTHER = 12.0, 2.5


def draw_comparison(comparison: Comparison, results: Results, path: Path) -> bool:
    """Write the paper's values beside ours as a PNG; whether there was anything of ours to draw."""
    ours = measured(comparison, results)
    if not ours:
        return False
    there: _Rows = {
        name: [None if each is None else Interval(each, each, each, 1) for each in row]
        for name, row in comparison.published.items()
    }
    games = dict.fromkeys(parts(name)[0] for name in (*there, *ours))
    draw = _draw_by_game if len(there) + len(ours) > MOST and len(games) > 1 else _draw_halves
    draw(comparison, there, ours, path)
    return True


def measured(comparison: Comparison, results: Results) -> dict[str, list[Interval | None]]:
    """The values here, a row a series, without series that have a single one or none; ratios as ratios."""
    found = {}
    for name, row in comparison.here.items():
        for game in comparison.games if "{}" in name else ("",):
            values = [_value(each.question or comparison.question, each, game, results) for each in row]
            if sum(value is not None for value in values) >= min(2, len(values)):
                found[name.format(game)] = values
    return found


def _value(question: str, asked: Ours, game: str, results: Results) -> Interval | None:
    """One value with its interval over seeds; a single seed has none."""
    task, measure = asked.task.format(game), asked.measure
    if asked.theirs:
        found = difference(Pair("", question, asked.variant, asked.theirs), task, measure, results)
        return _as_ratio(found) if found and measure.ratio else found
    if task not in results.get(question, {}).get("tasks", {}):
        return None
    began = list(runs_of(results, question, task, asked.began).values())[:1]
    if began and not began_with(began[0], baseline(results[question]["tasks"][task], asked.variant)):
        return None
    if asked.variant in BASELINES:
        values = [measure.of(baseline(results[question]["tasks"][task], asked.variant))]
    else:
        values = [measure.of(run) for run in runs_of(results, question, task, asked.variant).values()]
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = t_interval(known) if len(known) > 1 else Interval(known[0], known[0], known[0], 1)
    return _as_ratio(found) if measure.ratio else found


def _as_ratio(found: Interval) -> Interval:
    return Interval(math.exp(found.mean), math.exp(found.low), math.exp(found.high), found.n)


def _draw_halves(comparison: Comparison, there: _Rows, ours: _Rows, path: Path) -> None:
    """The paper's values at the left, ours at the right."""
    look = looks([*there, *(name for name in ours if name not in there)], by_game=True)
    title = _about_forms(look)
    with plots.figure(path, (9.0, 3.3 + legend_height(list(look), 9.0, title)), SETTINGS) as figure:
        panels = figure.subplots(1, 2)
        scales = _scales(comparison, there, ours)
        other = "" if scales[0] == scales[1] else " (another scale)"
        titles = (f"published: {comparison.source}", f"measured here{other}")
        for axes, rows, said, scale in zip(panels, (there, ours), titles, scales, strict=True):
            _draw_series(axes, comparison, rows, look, scale)
            axes.set_title(said, loc="left", fontsize=9.5, fontweight="bold")
            axes.set_ylabel(comparison.quantity)
        write_above(figure, _note(comparison, there, ours))
        draw_legend(figure, look, title, _joined(comparison))


def _draw_by_game(comparison: Comparison, there: _Rows, ours: _Rows, path: Path) -> None:
    """A column a game, the paper's values above ours; forms of the algorithm look the same in all."""
    games = list(dict.fromkeys(parts(name)[0] for name in (*there, *ours)))
    look = looks(list(dict.fromkeys(parts(name)[1] or _ITSELF for name in (*there, *ours))))
    title = _about_forms(look)
    width = max(7.0, 0.7 + 2.3 * len(games))
    with plots.figure(path, (width, 4.6 + legend_height(list(look), width, title)), SETTINGS) as figure:
        grid = figure.subplots(2, len(games), sharex=True, sharey="row", squeeze=False)
        scales = _scales(comparison, there, ours)
        other = "" if scales[0] == scales[1] else "\n(another scale)"
        for (line, column), axes in zip(product((0, 1), range(len(games))), grid.flat, strict=True):
            every = (there, ours)[line].items()
            rows = {parts(name)[1] or _ITSELF: row for name, row in every if parts(name)[0] == games[column]}
            _draw_series(axes, comparison, rows, look, scales[line])
            if not rows:
                place = {"transform": axes.transAxes, "ha": "center", "color": "#777777"}
                axes.text(0.5, 0.5, ("not published", "not run here")[line], **place)
        for axes, game in zip(grid[0], games, strict=True):
            axes.set_title(game, loc="left", fontsize=9.5, fontweight="bold")
            axes.set_xlabel("")
        grid[0, 0].set_ylabel(f"published\n{comparison.quantity}")
        grid[1, 0].set_ylabel(f"measured here\n{comparison.quantity}{other}")
        write_above(figure, f"{comparison.source}, and the same here. {_note(comparison, there, ours)}")
        draw_legend(figure, look, title, _joined(comparison))


def _note(comparison: Comparison, there: _Rows, ours: _Rows) -> str:
    """What must be known of the published numbers, what bars are, and that the halves are of other games."""
    sides = [list(dict.fromkeys(parts(name)[0] for name in rows)) for rows in (there, ours)]
    said = f"Published: {comparison.note}. {BARS}" if comparison.note else BARS
    if set(sides[0]) & set(sides[1]) or not set(sides[0]) <= set(GAMES):
        return said
    published, here = map(", ".join, sides)
    return f"{said} No game is in both halves: {published} there, {here} here."


def _about_forms(names: Iterable[str]) -> str:
    """What the forms are called elsewhere, where a name has one."""
    return FORMS if re.search("GRPO|PPO", " ".join(names).replace("A*-PO", "")) else ""


def _draw_series(
    axes: Axes, comparison: Comparison, rows: _Rows, look: Mapping[str, Look], scale: tuple[float, float]
) -> None:
    """Values with their intervals, side by side in each category."""
    width = min(0.09, 0.6 / max(1, len(rows)))
    low, high = scale
    if comparison.quantity == "success":
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    else:
        _logarithmic(axes, comparison, scale)
    axes.set_ylim(low, high)
    for order, (name, row) in enumerate(rows.items()):
        colour, dashes, marker = look[name]
        aside = width * (order - (len(rows) - 1) / 2)
        points = [(place + aside, value) for place, value in enumerate(row) if value is not None]
        x, means = [place for place, _ in points], [value.mean for _, value in points]
        ends = [_ends(value, comparison) for _, value in points]
        arms = [[mean - end for mean, (end, _) in zip(means, ends, strict=True)]]
        arms += [[end - mean for mean, (_, end) in zip(means, ends, strict=True)]]
        line = {"ls": (0, dashes), "lw": 1.3} if _joined(comparison) else {"ls": "none"}
        axes.errorbar(x, means, yerr=arms, color=colour, marker=marker, ms=5, capsize=2, elinewidth=0.8, **line)
        for place, (end, other) in zip(x, ends, strict=True):
            for edge, mark in [(low, "v")] * (end < low) + [(high, "^")] * (other > high):
                axes.plot([place], [edge], marker=mark, color=colour, ms=4, clip_on=False)  # it goes on
    long = max(map(len, comparison.categories)) > 12
    short = [textwrap.fill(each, 10 if long else 12, break_long_words=False) for each in comparison.categories]
    axes.set_xticks(range(len(short)), short)
    axes.set_xlim(-0.5, len(short) - 0.5)
    axes.set_xlabel(comparison.across, fontsize=8.5)
    axes.grid(visible=False, axis="x")


def _joined(comparison: Comparison) -> bool:
    """Whether lines join the categories."""
    return comparison.ordered or len(comparison.categories) == 2


def _ends(value: Interval, comparison: Comparison) -> tuple[float, float]:
    """The ends of an interval; a rate is not below 0 or above 1, whatever Student's t says."""
    if comparison.quantity != "success":
        return value.low, value.high
    return min(value.mean, max(0.0, value.low)), max(value.mean, min(1.0, value.high))


def _scales(comparison: Comparison, there: _Rows, ours: _Rows) -> list[tuple[float, float]]:
    """The vertical limits of the two halves: one scale where both need nearly the same."""
    ends = [
        [_ends(value, comparison) for row in rows.values() for value in row if value is not None]
        for rows in (there, ours)
    ]
    spans = [(min(low for low, _ in half), max(high for _, high in half)) for half in ends]
    if comparison.quantity == "success":
        (_, one), (_, two) = spans
        if max(one, two) <= _ALIKE * min(one, two):
            spans = [(min(low for low, _ in spans), max(one, two))] * 2
        spans = [(min(low, high - _SHORTEST), high) for low, high in spans]
        spans = [(0.0 if low < 0.6 * high else low, high) for low, high in spans]
        return [(low - 0.05 * (high - low), high + 0.06 * (high - low)) for low, high in spans]
    if comparison.quantity == "times":
        spans = [(min(low for low, _ in spans), max(high for _, high in spans))] * 2
        return [(max(low / 1.2, 0.2), min(high * 1.2, _FARTHEST)) for low, high in spans]
    means = [[value.mean for row in rows.values() for value in row if value is not None] for rows in (there, ours)]
    return [
        (max(low / 1.3, min(half) / _FURTHER), min(high * 1.3, max(half) * _FURTHER))
        for (low, high), half in zip(spans, means, strict=True)
    ]


def _logarithmic(axes: Axes, comparison: Comparison, scale: tuple[float, float]) -> None:
    as_decades(axes)
    low, high = scale
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if low <= tick <= high]))
    axes.yaxis.set_minor_locator(NullLocator())
    if comparison.quantity == "times":
        axes.axhline(1.0, color="#888888", lw=0.8)


def draw_profiles(questions: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The performance profile of each variant, a panel a question: the share of its runs above each normalised success.

    A run further below random play than a quarter of the way to the oracle is at the left, and is not seen.

    Args:
        questions: Each with ``games`` and ``variants``, as ``matched.aggregate`` gives them.
        path: Where to.
    """
    look = looks(list(dict.fromkeys(in_forms(each["label"]) for found in questions for each in found["variants"])))
    title = _about_forms(look)
    with plots.figure(path, (9.0, 4.0 + legend_height(list(look), 9.0, title)), SETTINGS) as figure:
        for axes, found in zip(figure.subplots(1, len(questions), squeeze=False)[0], questions, strict=True):
            every = [score for each in found["variants"] for row in each["scores"] for score in row]
            levels = [place / 200 for place in range(max(_LEAST, math.floor(20 * min(0.0, *every)) * 10), 201)]
            for place, each in enumerate(found["variants"]):
                colour, dashes, marker = look[in_forms(each["label"])]
                shares = performance_profile([score for row in each["scores"] for score in row], levels)
                marked = {"marker": marker, "ms": 4.5, "markevery": (3 * place, 27)}
                axes.plot(levels, shares, color=colour, ls=(0, dashes), lw=1.6, **marked)
            axes.set_title(textwrap.fill(", ".join(found["games"]), 48), loc="left", fontsize=9.5)
            axes.set_xlabel("normalised success at the end:\n0 is random play, 1 the oracle")
            axes.set_ylabel("share of runs above")
        draw_legend(figure, look, title)


def draw_gradients(tasks: Mapping[str, Sequence[Run]], path: Path) -> None:
    """RAGEN-2's bound: gradients by the spread of a group's returns, each as a multiple of that with the least spread.

    Args:
        tasks: By the name of the game, runs; of those that logged ``signal/task_1`` to ``_4`` and so on, a line each.
        path: Where to.
    """
    series = {"task": "gradient of the task", "std": "std of the returns", "entropy": "gradient of the entropy"}
    look = looks(list(series.values()))
    width = 2.9 * len(tasks) + 0.4
    with plots.figure(path, (width, 3.2 + legend_height(list(look), width)), SETTINGS) as figure:
        panels = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        for axes, (game, runs) in zip(panels, tasks.items(), strict=True):
            for (name, said), run in product(series.items(), runs):
                quarters = [logged(run).get(f"signal/{name}_{place}", []) for place in range(1, 5)]
                means = [fmean(value for _, value in points) if points else 0.0 for points in quarters]
                if not means[0]:
                    continue
                marked = {"marker": look[said].marker, "ms": 4.5, "ls": (0, look[said].dashes), "lw": 1.3}
                axes.plot(range(1, 5), [mean / means[0] for mean in means], color=look[said].colour, **marked)
            axes.set_xticks(range(1, 5), ["least", "2", "3", "most"])
            axes.set_xlabel("quarter of the groups, by spread")
            axes.set_title(game, loc="left", fontsize=9.5, fontweight="bold")
        as_decades(panels[0])
        low, high = panels[0].get_ylim()
        panels[0].set_yticks([tick for tick in _TICKS if low <= tick <= high])
        panels[0].set_ylabel("times that of the first quarter")
        write_above(figure, "Means over a run; a line a seed. The advantages are not divided by the std.")
        draw_legend(figure, look)


def in_forms(label: str) -> str:
    """A variant's label with the names that the papers give to its form.

    Example:
        >>> in_forms("StarPO-S, group"), in_forms("StarPO, GAE"), in_forms("bi-level GAE")
        ('StarPO-S (GRPO)', 'StarPO (PPO)', 'bi-level GAE')
    """
    return re.sub(r", GAE$", " (PPO)", re.sub(r", group$", " (GRPO)", label))
