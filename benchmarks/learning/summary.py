"""What several seeds of a variant say together: pure functions on the JSON of ``run.py``.

Three seeds are too few for an interval of their mean that anyone should trust, so there are the mean and the range.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from records.committed import origin

Run = Mapping[str, Any]
_STEP = 0.05  # an equal success is rounded down to a multiple of it


def summary(runs: Sequence[Run], level: float) -> dict[str, Any]:
    """The figures of a variant.

    Args:
        runs: One a seed.
        level: The success to be reached.

    Returns:
        Spreads over the seeds of what the run ends with; ``kept``, final success as a share of the best evaluation's, a
        number a seed; ``reached``, what each seed had spent at the first evaluation at ``level`` (``None``: never).
    """
    finals = [run["curve"][-1] for run in runs]
    peaks = [max(row["success"] for row in run["curve"]) for run in runs]
    return {
        "seeds": [run["seed"] for run in runs],
        "success": spread([row["success"] for row in finals]),
        "peak": spread(peaks),
        "kept": [row["success"] / peak if peak else 1.0 for row, peak in zip(finals, peaks, strict=True)],
        "kl": spread([row["kl"] for row in finals]),
        "trajectories": spread([row["trajectories"] for row in finals]),
        "steps": spread([row["step"] for row in finals]),
        **{name: spread([run["final"][name] for run in runs]) for name in ("seconds", "cpu_seconds", "peak_mib")},
        "loss_min": min(run["final"]["loss_min"] for run in runs),
        "reached": [spent_at(run, level) for run in runs],
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, smallest and largest.

    Example:
        >>> spread([1.0, 2.0, 6.0])
        {'mean': 3.0, 'low': 1.0, 'high': 6.0}
    """
    return {"mean": fmean(values), "low": min(values), "high": max(values)}


def spent_at(run: Run, level: float) -> dict[str, float] | None:
    """What a run had spent at its first evaluation with that success, or ``None`` if it never had it."""
    row = next((row for row in run["curve"] if row["success"] >= level), None)
    if row is None:
        return None
    own = row["trajectories"] - row["reference_trajectories"]
    spent = {name: row[name] for name in ("step", "trajectories", "seconds", "cpu_seconds", "kl")}
    return {**spent, "policy_trajectories": own}


def equal_success(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any] | None:
    """Two variants at the highest success, in steps of 0.05, that every run of both has reached, in shared seeds.

    Args:
        ours: Runs of one variant.
        theirs: Runs of the other.

    Returns:
        That ``level`` and, of each quantity, the means over the ``seeds`` that both have and the ratio of ours to
        theirs: ``trajectories`` of all stages, ``policy_trajectories`` without those of a reference, ``cpu_seconds``,
        ``kl``, and the peak of memory; ``missing`` has the seeds that one of the two lacks. ``None`` if they began with
        different weights, share no seed, or the level is not above where both began; ``cpu_seconds`` and ``peak_mib``
        are ``None`` if the two runs of a seed were made at different commits or on different machines.
    """
    missing = lacking({"ours": ours, "theirs": theirs})
    seeds = shared_seeds([ours, theirs])
    ours, theirs = ([run for run in runs if seed_of(run) in seeds] for runs in (ours, theirs))
    if len(starts([*ours, *theirs])) > 1:
        return None
    reached = min((max(row["success"] for row in run["curve"]) for run in (*ours, *theirs)), default=0.0)
    level = round(int(reached / _STEP + 1e-9) * _STEP, 2)
    if level <= max((run["curve"][0]["success"] for run in (*ours, *theirs)), default=0.0):
        return None
    found: dict[str, Any] = {"level": level, "seeds": seeds, "missing": missing}
    for name in ("trajectories", "policy_trajectories", "cpu_seconds", "kl"):
        means = [fmean((spent_at(run, level) or {})[name] for run in runs) for runs in (ours, theirs)]
        found[name] = _compared(*means)
    found["peak_mib"] = _compared(*(fmean(run["final"]["peak_mib"] for run in runs) for runs in (ours, theirs)))
    return found if at_one_origin([ours, theirs]) else {**found, "cpu_seconds": None, "peak_mib": None}


def shared_seeds(variants: Iterable[Sequence[Run]]) -> list[int]:
    """The seeds that all variants were run with, ascending."""
    return sorted(set.intersection(*({seed_of(run) for run in runs} for runs in variants)))


def lacking(variants: Mapping[str, Sequence[Run]]) -> dict[str, list[int]]:
    """Label → the seeds that another variant was run with and this one was not; without those that lack none."""
    seeds = {label: {seed_of(run) for run in runs} for label, runs in variants.items()}
    found = {label: sorted(set.union(*seeds.values()) - its) for label, its in seeds.items()}
    return {label: missing for label, missing in found.items() if missing}


def at_one_origin(variants: Iterable[Sequence[Run]]) -> bool:
    """Whether the variants' runs of each shared seed have one commit and machine, so that their costs compare."""
    variants = list(variants)
    seeds = shared_seeds(variants)
    made = {(seed_of(run), origin(run)) for runs in variants for run in runs if seed_of(run) in seeds}
    return len(made) == len(seeds)


def starts(runs: Iterable[Run]) -> list[Run]:
    """The first evaluations of runs, each once: runs that began with the same weights have the same.

    A warm start that another commit makes again may have other weights. No seed of training stands for that: on
    FrozenLake three runs of StarPO from one ended at 0.53 to 0.58, and all three from another at 0.49.
    """
    return list({start_of(run): run["curve"][0] for run in runs}.values())


def start_of(run: Run) -> tuple[float | None, ...]:
    """The figures of a run's first evaluation by which weights are told apart."""
    return tuple(run["curve"][0].get(name) for name in ("success", "return", "reply_tokens"))


def seed_of(run: Run) -> int:
    """The seed of a run, of a question's JSON or a single result."""
    return int(run["seed"] if "seed" in run else run["settings"]["seed"])


def mean_curve(runs: Sequence[Run], points: int = 200) -> tuple[list[float], ...]:
    """Success against sampled trajectories over the seeds, linear between evaluations.

    Returns:
        Trajectories, mean, smallest and largest success, each ``points`` long, over the range that all runs have.
    """
    curves = [tuple(zip(*success_along(run), strict=True)) for run in runs]
    first, last = (choose(found[end] for found, _ in curves) for choose, end in ((max, 0), (min, -1)))
    x = np.linspace(first, last, points)
    y = np.array([np.interp(x, trajectories, success) for trajectories, success in curves])  # (seeds, points)
    return x.tolist(), y.mean(axis=0).tolist(), y.min(axis=0).tolist(), y.max(axis=0).tolist()


def success_along(run: Run, axis: str = "trajectories") -> list[tuple[float, float]]:
    """Success at each evaluation, by trajectories, ``"step"`` or ``"cpu_seconds"``.

    While a reference is played the policy does not change: to the end of its trajectories success is that of the start.
    """
    points = [(float(row[axis]), float(row["success"])) for row in run["curve"]]
    reference = run["curve"][-1]["reference_trajectories"]
    if axis == "trajectories" and reference:
        points.insert(1, (min(float(reference), points[1][0]), points[0][1]))
    return points


def _compared(ours: float, theirs: float) -> dict[str, float | None]:
    return {"ours": ours, "theirs": theirs, "ratio": ours / theirs if theirs else None}
