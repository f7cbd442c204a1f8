"""Draw a question: success on held-out start states against updates, a panel a game and a line a variant.

    python benchmarks/plot.py collapse                                  # runs/plots/collapse.png
    python benchmarks/plot.py collapse --games bandit_200 sokoban_200 --output collapse.png

A line is the mean over the seeds, its band from the smallest to the largest of them.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

RESULTS = Path(__file__).resolve().parent / "results"


def main(command_line: Sequence[str] | None = None) -> None:
    """Draw what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", help="name of a JSON in the folder of results")
    parser.add_argument("--games", nargs="+", help="of the question; without it, all")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--output", type=Path, help="the PNG; without it, runs/plots/QUESTION.png")
    options = parser.parse_args(command_line)
    content = json.loads((options.results / f"{options.question}.json").read_text(encoding="utf-8"))
    games = {name: content["games"][name] for name in options.games or content["games"]}
    target = options.output or Path("runs") / "plots" / f"{options.question}.png"
    draw(games, content["title"], target)
    print(f"written: {target}")


def draw(games: Mapping[str, Mapping[str, Any]], title: str, target: Path) -> None:
    """Draw the games of a question into a PNG."""
    columns = min(3, len(games))
    rows = math.ceil(len(games) / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.8 * rows), squeeze=False)
    for panel in axes.flat[len(games) :]:
        panel.axis("off")
    for panel, (name, game) in zip(axes.flat, games.items(), strict=False):
        draw_game(panel, name, game)
    figure.suptitle(title)
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=100)
    pyplot.close(figure)


def draw_game(panel: Axes, name: str, game: Mapping[str, Any]) -> None:
    """The variants of a game, with the success of random play and of the oracle where there are such."""
    baselines = next(iter(game["baselines"].values()))
    for policy, style in (("random", ":"), ("oracle", "--")):
        if policy in baselines:
            panel.axhline(baselines[policy]["success"], color="grey", linestyle=style, linewidth=1, label=policy)
    for variant in game["variants"].values():
        curves = [run["curve"] for run in variant["runs"] if "curve" in run]
        if not curves:
            continue
        length = min(len(curve["success"]) for curve in curves)
        steps = curves[0]["step"][:length]
        points = list(zip(*(curve["success"][:length] for curve in curves), strict=True))
        (line,) = panel.plot(steps, [fmean(each) for each in points], label=variant["label"])
        panel.fill_between(steps, [*map(min, points)], [*map(max, points)], color=line.get_color(), alpha=0.15)
    panel.set(title=name, xlabel="updates", ylabel="success, held out", ylim=(-0.02, 1.02))
    panel.legend(fontsize=7)


if __name__ == "__main__":
    main()
