"""Learning curves of the games: a picture a game, a panel an algorithm, mean and range over its seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learning.plots import draw_curves

from agents.games import CURVE_EPISODES
from agents.runs import MEMORY, label


def draw(content: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Write a PNG for each game with a finished training run.

    Args:
        content: What ``results.collect`` made.
        folder: Where to.
        name: That the files begin with.
    """
    games: dict[str, dict[str, list[Any]]] = {}
    for run in content["runs"].values():
        if run.get("curve") and run["game"] != MEMORY:
            games.setdefault(run["game"], {}).setdefault(label(run["stage"]).replace("\\", ""), []).append(run)
    written = []
    for game, variants in games.items():
        first = next(iter(variants.values()))[0]["evaluations"]["sampled"]
        baselines = {policy: next(iter(first.values()))[policy]["success"] for policy in ("random", "oracle")}
        written.append(folder / f"{name}_{game}.png")
        draw_curves(f"{game}: held out, n = {CURVE_EPISODES}", variants, baselines, written[-1])
    return written
