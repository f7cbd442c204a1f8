"""How series of a picture look: colours, dashes and markers that are all different, and a legend that is never cut.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; every series also has dashes and a marker of its
own, for print without colour.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from learning import plots
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from findings.claims import GAMES

SETTINGS = {**plots.SETTINGS, "legend.frameon": False}
# Okabe and Ito's palette without its yellow, which is too light for a line; then black and grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#777777")
MOST = len(COLOURS)
"""Series in a panel that can be told apart."""
_DASHES = ((1, 0), (5, 2), (1, 1.2), (6, 1.5, 1, 1.5), (3, 1), (8, 3), (2, 4), (1, 3))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
_DECADES = 30.0  # the largest value is so many times the smallest: a logarithmic axis
_SIZE, _LINE = 8.0, 0.17  # of a legend: points, and inches a line
_HANDLE, _PADDING = 4.0, 3.4  # of an entry: widths in ems of the line, and of what is around it


class Look(NamedTuple):
    """How a series is drawn."""

    colour: str
    dashes: tuple[float, ...]
    marker: str


def looks(names: Sequence[str], by_game: bool = False) -> dict[str, Look]:
    """A look for each name, all different.

    Args:
        names: Of the series.
        by_game: Series of one game share a colour and those of one form their dashes, as `parts` reads names. A game
            has the same colour in all pictures.
    """
    found = {}
    games = list(dict.fromkeys([*GAMES, *(parts(name)[0] for name in names)]))
    forms = list(dict.fromkeys(parts(name)[1] for name in names))
    for place, name in enumerate(dict.fromkeys(names)):
        colour, dashes = place, place + place // len(COLOURS)
        if by_game:
            colour, dashes = games.index(parts(name)[0]), forms.index(parts(name)[1])
        found[name] = Look(
            COLOURS[colour % len(COLOURS)], _DASHES[dashes % len(_DASHES)], _MARKERS[place % len(_MARKERS)]
        )
    return found


def parts(name: str) -> tuple[str, str]:
    """The game that a series' name begins with, before a comma or bracket, and its form: the rest.

    Example:
        >>> parts("sokoban (PPO), best")
        ('sokoban', 'PPO, best')
        >>> parts("sokoban, other symbols (PPO)")
        ('sokoban', 'other symbols (PPO)')
    """
    game = re.split(r",| \(", name)[0]
    return game, re.sub(r"^\(([^)]*)\)", r"\1", name[len(game) :].lstrip(", "))


def legend_height(names: Sequence[str], width: float, title: str = "") -> float:
    """The inches that the legend takes in a figure of that width."""
    columns, wrapped = _laid_out(names, width)
    lines = sum(name.count("\n") + 1 for name in wrapped) if columns == 1 else -(-len(wrapped) // columns)
    return _LINE * (lines + bool(title)) + 0.1


def draw_legend(figure: Figure, found: Mapping[str, Look], title: str = "", joined: bool = True) -> None:
    """Put names and looks below all panels, in as many columns as there is room for.

    Args:
        figure: Drawn so far.
        found: Name → look.
        title: Above the names.
        joined: Series have lines, and not markers only.
    """
    columns, names = _laid_out(list(found), figure.get_figwidth())
    handles = [
        Line2D([], [], color=look.colour, ls=(0, look.dashes), marker=look.marker, ms=5, lw=1.4 if joined else 0)
        for look in found.values()
    ]
    of_title = {"title": title or None, "title_fontsize": _SIZE, "alignment": "left"}
    figure.legend(
        handles, names, loc="outside lower left", ncols=columns, fontsize=_SIZE, handlelength=_HANDLE, **of_title
    )


def write_above(figure: Figure, text: str, size: float = 8.5) -> None:
    """Put a text above all panels, in as many lines as it needs."""
    figure.suptitle(in_lines(text, 70 * figure.get_figwidth(), size), x=0.01, ha="left", fontsize=size)


def _laid_out(names: Sequence[str], width: float) -> tuple[int, list[str]]:
    """The columns that fit into a figure so many inches wide, and the names, broken where one is longer than that."""
    room = 72 * width - 16
    around = (_HANDLE + _PADDING) * _SIZE
    widths = [_written(name) for name in names if name.strip()]
    columns = max(1, min(len(names), int(room / (max(widths, default=0.0) + around))))
    if columns > 1:
        return -(-len(names) // -(-len(names) // columns)), list(names)
    return 1, [in_lines(name, room - around) for name in names]


def in_lines(text: str, room: float, size: float = _SIZE) -> str:
    """A text in as many lines as it needs to be no wider than so many points."""
    share = room / _written(text, size) if text.strip() else 1.0
    return text if share >= 1 else textwrap.fill(text, max(8, int(0.95 * share * len(text))))


def _written(text: str, size: float = _SIZE) -> float:
    """The width of a text in points."""
    return float(TextPath((0, 0), text, size=size, prop=FontProperties("DejaVu Sans")).get_extents().width)


def are_decades(values: Sequence[float]) -> bool:
    """Whether values are so far apart that only a logarithmic axis shows them all.

    Example:
        >>> are_decades([0.1, 4.0]), are_decades([0.0, 4.0]), are_decades([])
        (True, False, False)
    """
    return bool(values) and min(values) > 0 and max(values) > _DECADES * min(values)


def as_decades(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with plain numbers: names are drawn as they are, so formulas would be too."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
