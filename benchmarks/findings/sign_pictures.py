"""RAGEN's Figure 6: success and its signs in each run of a game, and when they turn, beside the paper's rollouts.

A sign is drawn as ``signs.turn`` looks at it: its mean from one evaluation to the next, dated at the later one. What
updates logged between them jumps up and down, so that the lines of three seeds would cover each other.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from learning import plots
from learning.summary import seed_of
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from findings.looks import SETTINGS, Look, are_decades, as_decades, draw_legend, legend_height, looks, write_above
from findings.measures import Run, logged
from findings.published import FIGURE_6, ROLLOUTS, SUCCESS_DROPS
from findings.signs import GRADIENT, SIGNS, SPREAD, Sign, between_evaluations, dropped, series, turn
from findings.verdicts import Results, runs_of

_STRIP = 0.08  # of a panel's height: a seed's line of marks
_FARTHEST = 2000.0  # which reaches no further down: where groups are alike there is no gradient
_VANILLA = {"ppo_four": "PPO", "grpo_four": "GRPO"}


def draw_signs(title: str, variants: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Success and the signs of a game: a column a variant, a line a seed, marked where each turns.

    Args:
        title: Over the picture.
        variants: Label → runs.
        path: Where to.
    """
    runs = [run for its in variants.values() for run in its]
    seeds = sorted({seed_of(run) for run in runs})
    look = looks([f"seed {seed}" for seed in seeds])
    shown = [sign for sign in SIGNS if any(series(run, sign) for run in runs)]
    said = "Marks at the top of a panel: success drops, or the sign turns. Vertical lines: success drops."
    width = max(6.5, 0.7 + 2.5 * len(variants))
    height = 1.1 + 1.5 * (1 + len(shown)) + legend_height(list(look), width, said)
    with plots.figure(path, (width, height), SETTINGS) as figure:
        grid = figure.subplots(1 + len(shown), len(variants), sharex="col", sharey="row", squeeze=False)
        for column, (label, its) in zip(grid.T, variants.items(), strict=True):
            _draw_runs(column, its, shown, dict(zip(seeds, look.values(), strict=True)))
            column[0].set_title(_heading(label, its), loc="left", fontsize=9)
            column[-1].set_xlabel("updates")
        names = ("success, held out", *(sign.says for sign in shown))
        for panels, name in zip(grid, names, strict=True):
            panels[0].set_ylabel(name)
            _leave_room(panels, _STRIP * (len(seeds) + 0.5), decades=name == GRADIENT.says)
        write_above(figure, f"{title}: means between evaluations", 10)
        draw_legend(figure, look, said)


def _heading(label: str, runs: Sequence[Run]) -> str:
    """What a column shows. Columns of one game have as many trajectories, in more or fewer updates."""
    seeds = f"{len(runs)} seed{'s' * (len(runs) != 1)}"
    return f"{label}\n{seeds}, {runs[0]['curve'][-1]['trajectories']:,} trajectories"


def _draw_runs(panels: Sequence[Axes], runs: Sequence[Run], shown: Sequence[Sign], look: Mapping[int, Look]) -> None:
    """A column: success above its signs, the seeds' marks in lines of their own."""
    for run in runs:
        colour, dashes, marker = look[seed_of(run)]
        height = 1 - _STRIP * (0.6 + list(look).index(seed_of(run)))
        drop = dropped(run)
        lines = [logged(run)["held_out"], *(between_evaluations(run, series(run, sign)) for sign in shown)]
        marks = [drop, *(turn(run, sign) if series(run, sign) else None for sign in shown)]
        for panel, points, mark in zip(panels, lines, marks, strict=True):
            panel.plot([step for step, _ in points], [y for _, y in points], color=colour, ls=(0, dashes), lw=1.3)
            upright = panel.get_xaxis_transform()
            if drop is not None:
                panel.vlines(drop, 0, 1, color=colour, ls=[(0, dashes)], lw=0.8, alpha=0.7, transform=upright)
            if mark is not None:
                style = {"color": colour, "marker": marker, "s": 30, "ec": "white", "lw": 0.4, "zorder": 5}
                panel.scatter([mark], [height], transform=upright, **style)


def _leave_room(panels: Sequence[Axes], share: float, decades: bool) -> None:
    """Limits by the data of a row of panels, with a share of the height above it for marks."""
    values = [value for panel in panels for line in panel.lines for value in line.get_ydata()]
    low, high = min(values), max(values)
    if decades and are_decades(values):
        as_decades(panels[0])  # the row shares its axis
        low = max(low, high / _FARTHEST)
        panels[0].set_ylim(low / 1.2, high * (high / low) ** (share / (1 - share)) * 1.1)
    else:
        span = (high - low) or 0.1
        panels[0].set_ylim(low - 0.05 * span, high + span * (0.05 + share / (1 - share)))
    bottom, top = panels[0].get_ylim()
    band = top - share * (top - bottom) if panels[0].get_yscale() == "linear" else top * (bottom / top) ** share
    panels[0].set_yticks([tick for tick in panels[0].get_yticks() if bottom <= tick <= band])
    for panel in panels:
        panel.add_patch(Rectangle((0, 1 - share), 1, share, transform=panel.transAxes, color="#f3f3f3", lw=0, zorder=0))


def draw_turns(results: Results, path: Path) -> None:
    """When the signs turn and success drops, in rollouts: RAGEN's Figure 6 above each run of vanilla StarPO here."""
    games = [*FIGURE_6, "frozenlake"]
    marks = looks([SPREAD.says, GRADIENT.says, SUCCESS_DROPS])
    found = {game: _turns(results, game) for game in games}
    lines = list(dict.fromkeys(name for rows in found.values() for name in rows))
    with plots.figure(path, (10.4, 1.7 + 0.26 * len(lines)), SETTINGS) as figure:
        panels = figure.subplots(1, len(games), sharex=True, sharey=True)
        for panel, (game, rows) in zip(panels, found.items(), strict=True):
            for place, name in enumerate(lines):
                for aside, (sign, (colour, _, marker)) in enumerate(marks.items()):
                    at = rows.get(name, {}).get(sign)
                    if at is not None:
                        style = {"color": colour, "marker": marker, "ls": "none", "ms": 6, "clip_on": False}
                        panel.plot([at], [place + 0.24 * (aside - 1)], **style)
            panel.set_title(game, loc="left", fontsize=9.5, fontweight="bold")
            panel.axhline(0.5, color="#888888", lw=0.8)
            panel.set_xlabel("rollouts")
        panels[0].set_yticks(range(len(lines)), lines)
        panels[0].set_ylim(len(lines) - 0.5, -0.5)
        panels[0].set_xlim(0, ROLLOUTS)
        said = "No mark: it does not turn, success does not drop, or RAGEN has no such run or rollout."
        title = f"When the signs turn and success drops: RAGEN, and vanilla StarPO here, 4 updates a rollout. {said}"
        write_above(figure, title, 9)
        names = [f"{SPREAD.says} falls", f"{GRADIENT.says} rises (RAGEN: spikes)", SUCCESS_DROPS]
        draw_legend(figure, dict(zip(names, marks.values(), strict=True)), joined=False)


def _turns(results: Results, game: str) -> dict[str, dict[str, float | None]]:
    """The paper's rollouts of a game, and those of each run of RAGEN's schedule."""
    found: dict[str, dict[str, float | None]] = {"RAGEN, Figure 6": dict(FIGURE_6.get(game, {}))}
    for variant, form in _VANILLA.items():
        for seed, run in runs_of(results, "collapse", f"{game}_{ROLLOUTS}", variant).items():
            steps = {SUCCESS_DROPS: dropped(run), **{sign.says: turn(run, sign) for sign in (SPREAD, GRADIENT)}}
            last = run["curve"][-1]["step"]
            found[f"{form}, seed {seed}"] = {
                name: None if step is None else ROLLOUTS * step / last for name, step in steps.items()
            }
    return found
