"""Variants side by side at equal cost: equal trajectories, equal updates, equal CPU seconds.

Variants of a question sample as many trajectories, but one takes an update where another takes sixteen, and a filter
saves most of the time. So success is read off every curve at the same number of each, the largest that all runs have
reached, by straight lines between evaluations. A variant is called worse than the first of the ranking only where the
interval of their difference, paired by seed, lies below 0.

All means are over the seeds that all variants of a ranking have; a variant that shares fewer than two with the others
is ranked by itself or left out. CPU seconds depend on the commit and the machine; the package became twice as fast on
the way. So variants are ranked at equal CPU seconds only beside those that were run at the same commits on the same
machines in each of these seeds.
"""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from learning.summary import at_one_origin, lacking, seed_of, shared_seeds, start_of, success_along

from findings.intervals import bootstrap_interval, evaluation_arm, interquartile_mean, standard_error, t_interval
from findings.measures import Run, final_success

AXES = {"trajectories": "trajectories", "step": "updates", "cpu_seconds": "CPU seconds"}
Variants = Mapping[str, Sequence[Run]]
WARM_START = ", warm start "
"""Between a task and a number, in the name of a group of runs that began with one of several warm starts."""


def groups(content: Mapping[str, Any], across: bool = False) -> dict[str, dict[str, Sequence[Run]]]:
    """What a question compares: the variants of a task, or its tasks where each has one variant. By name and label.

    Variants that end long before the others, by their settings, are left out.

    Args:
        content: The question's results.
        across: It asks about the difference between tasks, so that each variant's are compared where there are several.
    """
    tasks = content["tasks"]
    whole = {
        name: {key: each for key, each in task["variants"].items() if _is_whole(each, task)}
        for name, task in tasks.items()
    }
    several = {name: variants for name, variants in whole.items() if len(variants) > 1}
    found: dict[str, dict[str, Sequence[Run]]] = {}
    for name, variants in several.items():
        found |= _by_start(name, {each["label"]: each["runs"] for each in variants.values()})
    alike: dict[tuple[str, str, str], dict[str, Sequence[Run]]] = {}  # by environment, evaluations and variant
    for name, task in tasks.items():
        settings = task["prepared"]["settings"]
        for each in whole[name].values() if across or name not in several else ():
            of_variant = f", {each['label']}" if across else ""
            game = (settings["env"], json.dumps(settings["evaluations"]), of_variant)
            alike.setdefault(game, {})[name] = each["runs"]
    for (env, _, of_variant), labelled in alike.items():
        if len(labelled) > 1:
            title = f"{env}{of_variant}"
            found[title if title not in found else f"{title}, as in {next(iter(labelled))}"] = labelled
    return found


def _by_start(name: str, variants: Variants) -> dict[str, dict[str, Sequence[Run]]]:
    """The variants of a task; where runs began with other weights, those of each warm start by themselves."""
    found: dict[Any, dict[str, list[Run]]] = {}
    for label, runs in variants.items():
        for run in runs:
            found.setdefault(start_of(run), {}).setdefault(label, []).append(run)
    return {
        f"{name}{WARM_START}{place + 1}" if len(found) > 1 else name: dict(labelled)
        for place, labelled in enumerate(found.values())
        if len(labelled) > 1
    }


def _is_whole(variant: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    return all(run["curve"][-1]["trajectories"] > 0.9 * task["trajectories"] for run in variant["runs"])


def matched(variants: Variants, episodes: int) -> dict[str, Any]:
    """The ranking at equal cost, for each way to count it.

    Args:
        variants: Label → runs.
        episodes: Of an evaluation.

    Returns:
        By axis a list of rankings, one for each set of two variants and more that compare. Each has ``budget``,
        ``seeds``, ``missing`` (label → those that another variant of the ranking has and this one lacks) and
        ``ranking``, the best first, with ``label``, ``success`` and ``worse`` (than the first, by an interval that
        excludes 0).
    """
    return {
        axis: [ranked(each, axis, episodes) for each in comparable(variants, axis == "cpu_seconds") if len(each) > 1]
        for axis in AXES
    }


def comparable(variants: Variants, cost: bool) -> list[dict[str, Sequence[Run]]]:
    """Variants in sets that share their seeds, of a cost at one commit and on one machine each.

    Those with the fewest seeds come first: the others may have been run in more of them at other commits.
    """
    sets: list[dict[str, Sequence[Run]]] = []
    for label, runs in sorted(variants.items(), key=lambda variant: len(variant[1])):
        for each in sets:
            joined = {**each, label: runs}
            seeds = shared_seeds(joined.values())
            enough = len(seeds) > 1 or all({seed_of(run) for run in one} == set(seeds) for one in joined.values())
            if seeds and enough and (not cost or at_one_origin(joined.values())):
                each[label] = runs
                break
        else:
            sets.append({label: runs})
    return sets


def ranked(variants: Variants, axis: str, episodes: int) -> dict[str, Any]:
    """Variants by success, over shared seeds, at the largest cost that all these runs have reached; see `matched`."""
    seeds = shared_seeds(variants.values())
    runs = {label: [run for run in each if seed_of(run) in seeds] for label, each in variants.items()}
    budget = min(run["curve"][-1][axis] for each in runs.values() for run in each)
    rates = {label: {seed_of(run): success_at(run, axis, budget) for run in each} for label, each in runs.items()}
    order = sorted(rates, key=lambda label: -fmean(rates[label].values()))
    ranking = [
        {
            "label": label,
            "success": fmean(rates[label].values()),
            "worse": is_worse(rates[label], rates[order[0]], episodes),
        }
        for label in order
    ]
    return {"budget": budget, "seeds": seeds, "missing": lacking(variants), "ranking": ranking}


def is_worse(rates: Mapping[int, float], first: Mapping[int, float], episodes: int) -> bool:
    """Whether success by seed is below that of the first, by an interval of the difference that excludes 0."""
    if len(rates) < 2:
        return False
    pairs = [[rates[seed], first[seed]] for seed in sorted(rates)]
    return t_interval([ours - theirs for ours, theirs in pairs], evaluation_arm(pairs, episodes)).high < 0


def success_at(run: Run, axis: str, budget: float) -> float:
    """Success at that much of the axis, linear between evaluations.

    Example:
        >>> rows = [(0, 0, 0.2), (100, 40, 0.2), (200, 40, 0.6)]
        >>> run = {"curve": [dict(zip(("trajectories", "reference_trajectories", "success"), row)) for row in rows]}
        >>> round(success_at(run, "trajectories", 150), 3)
        0.4
    """
    points = success_along(run, axis)
    for (before, low), (after, high) in zip(points, points[1:], strict=False):
        if budget <= after:
            share = (budget - before) / (after - before) if after > before else 1.0
            return low + share * (high - low)
    return points[-1][1]


def aggregate(content: Mapping[str, Any], games: Sequence[str]) -> list[dict[str, Any]]:
    """The interquartile mean of normalised success over all runs in these games, of each variant that all of them have.

    Normalised: 0 is random play, 1 is the oracle.

    Returns:
        By variant: ``label``, ``scores`` (a row a game), ``iqm`` with ``low`` and ``high`` of a bootstrap that draws
        runs within each game, or of what the evaluations of these runs leave open where that is longer; the best first.
    """
    tasks = [content["tasks"][game] for game in games]
    names = [name for name in tasks[0]["variants"] if all(name in task["variants"] for task in tasks)]
    found = []
    for name in names:
        scores = [[normalised(run, task) for run in task["variants"][name]["runs"]] for task in tasks]
        errors = [[_error(run, task) for run in task["variants"][name]["runs"]] for task in tasks]
        iqm = bootstrap_interval(scores, _iqm)
        evaluations = bootstrap_interval(
            [list(zip(*both, strict=True)) for both in zip(scores, errors, strict=True)],
            lambda rows: _iqm([[score for score, _ in row] for row in rows]),
            again=lambda row, draw: [(draw.gauss(*run), run[1]) for run in row],
        )
        low, high = min(iqm.low, evaluations.low), max(iqm.high, evaluations.high)
        label = tasks[0]["variants"][name]["label"]
        found.append({"label": label, "scores": scores, "iqm": iqm.mean, "low": low, "high": high})
    return sorted(found, key=lambda row: -row["iqm"])


def _iqm(rows: Sequence[Sequence[float]]) -> float:
    return interquartile_mean([score for row in rows for score in row])


def normalised(run: Run, task: Mapping[str, Any]) -> float:
    """Success at the end, on the scale from random play (0) to the oracle (1)."""
    random, oracle = _scale(task)
    return (final_success(run) - random) / (oracle - random)


def _error(run: Run, task: Mapping[str, Any]) -> float:
    """The standard error of that, of the evaluation's episodes."""
    random, oracle = _scale(task)
    return standard_error(final_success(run), int(task["prepared"]["settings"]["episodes"])) / (oracle - random)


def _scale(task: Mapping[str, Any]) -> tuple[float, float]:
    policies = next(iter(task["prepared"]["results"].values()))
    return float(policies["random"]["success"]), float(policies["oracle"]["success"])
