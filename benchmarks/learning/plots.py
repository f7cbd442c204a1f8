"""The pictures of ``learning_curves.py``: success against sampled trajectories, a panel a variant.

Eight lines in one panel cover each other. Here each variant has its own, with all others' means in grey behind it, on
the same axes. Left out: single seeds (the band is their range) and what needs a second scale; the table has it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from learning.summary import Run, mean_curve

_COLOUR, _OTHERS, _RANDOM, _ORACLE = "#0072b2", "#c4c4c4", "#777777", "#2b8a3e"
_SETTINGS = {
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


def draw(title: str, variants: Mapping[str, Sequence[Run]], baselines: Mapping[str, float], path: Path) -> None:
    """Write a PNG.

    Args:
        title: Over the whole picture.
        variants: Label → runs, at least one each.
        baselines: Success of ``random`` and ``oracle``.
        path: Where to.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        columns = min(_COLUMNS, len(variants))
        rows = -(-len(variants) // columns)
        figure = Figure(figsize=(2.75 * columns + 0.6, 2.3 * rows + 0.75), layout="constrained", dpi=130)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        curves = {label: mean_curve(runs) for label, runs in variants.items()}
        panels = list(grid.flat)
        for panel, label in zip(panels, variants, strict=False):
            _draw_panel(panel, label, curves)
            _draw_baselines(panel, baselines, named=panel is panels[0])
        for panel in panels[len(variants) :]:
            panel.remove()
        for row in range(rows):
            grid[row, 0].set_ylabel("success")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
        figure.supxlabel("sampled trajectories, thousands", fontsize=9)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})


def _draw_panel(axes: Axes, label: str, curves: Mapping[str, tuple[list[float], ...]]) -> None:
    """One variant: mean and range over its seeds, and the final mean as a number."""
    for other, (x, mean, _, _) in curves.items():
        if other != label:
            axes.plot(_thousands(x), mean, color=_OTHERS, lw=0.9, zorder=2)
    x, mean, low, high = curves[label]
    axes.fill_between(_thousands(x), low, high, color=_COLOUR, alpha=0.22, lw=0, zorder=3)
    axes.plot(_thousands(x), mean, color=_COLOUR, lw=2, zorder=4)
    axes.set_title(label, loc="left", fontsize=9.5, fontweight="bold")
    axes.set_title(f"ends at {100 * mean[-1]:.0f} %", loc="right", fontsize=9, color=_COLOUR)
    axes.set_ylim(-0.02, 1.04)


def _draw_baselines(axes: Axes, baselines: Mapping[str, Any], named: bool) -> None:
    for name, colour, style in (("random", _RANDOM, (5, 3)), ("oracle", _ORACLE, (1, 1.5))):
        axes.axhline(baselines[name], color=colour, lw=1.1, ls=(0, style), zorder=1.5)
        if named:
            axes.annotate(
                name,
                (1.0, baselines[name]),
                xycoords=("axes fraction", "data"),
                xytext=(-2, -3),
                textcoords="offset points",
                ha="right",
                va="top",
                color=colour,
                fontsize=8,
            )


def _thousands(values: Sequence[float]) -> list[float]:
    return [value / 1000 for value in values]
