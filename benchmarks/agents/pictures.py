"""Learning curves of the games: a picture a game, a panel an algorithm, mean and range over its seeds.

On the way there are other start states, and fewer, than before and after training. So the evaluations at both ends are
points of their own, with their intervals, which the line does not meet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learning.plots import draw_curves

from agents.games import CURVE_EPISODES
from agents.results import beginnings
from agents.runs import MEMORY


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
            games.setdefault(run["game"], {}).setdefault(run["stage"], []).append(run)
    written = []
    for game, variants in games.items():
        first = next(iter(variants.values()))[0]["evaluations"]["sampled"]
        baselines = {policy: next(iter(first.values()))[policy]["success"] for policy in ("random", "oracle")}
        written.append(folder / f"{name}_{game}.png")
        lines = {stage: [{**run, "curve": _on_the_way(run)} for run in runs] for stage, runs in variants.items()}
        ends = {stage: [end for run in runs for end in _ends(content, run)] for stage, runs in variants.items()}
        at_ends = " or ".join(map(str, sorted({found["n"] for each in ends.values() for _, found in each})))
        on_the_way = any(len(run["curve"]) > 2 for runs in variants.values() for run in runs)
        counts = f"{CURVE_EPISODES} start states on the way, {at_ends}" if on_the_way else f"{at_ends} start states"
        title = f"{game}: {counts} at both ends"
        draw_curves(title, lines, baselines, written[-1], ends)
    return written


def _on_the_way(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curve without its first point, which is of start states of the evaluations at both ends."""
    return [{**point, "reference_trajectories": 0} for point in run["curve"][1:]]


def _ends(content: Mapping[str, Any], run: Mapping[str, Any]) -> list[tuple[float, Mapping[str, float]]]:
    """Trajectories and success of the model that a run began with, if that is known, and of what came out."""
    name, found = next(iter(run["evaluations"]["sampled"].items()))
    before = [each["evaluations"]["sampled"][name]["model"] for each in beginnings(content, run)]
    return [*((0.0, each) for each in before[:1]), (run["curve"][-1]["trajectories"], found["model"])]
