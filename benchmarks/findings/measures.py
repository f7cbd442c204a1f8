"""What is read from a run: the quantities that claims are about, and every series that a run logged.

A run is an entry of ``results/QUESTION.json`` (``learning/collect.py``), a single result of ``runs/experiments``, or
the ``history.json`` of a run folder. The JSON of a question has means over the updates between two evaluations; the
other two have a row an update.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import correlation, fmean
from typing import Any

from findings.intervals import best_by_chance
from ragen_trl.monitoring.alerts import drop_step

Run = Mapping[str, Any]
Series = list[tuple[float, float]]
# Columns that count and do not measure.
_COUNTS = {"step", "trajectories", "reference_trajectories", "seconds", "cpu_seconds", "epoch"}


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        says: What it is called in a sentence.
        of: Reads it; ``None`` where the run does not have it.
        rates: The success rates that it is made of, which evaluations of a few hundred episodes leave uncertain.
        ratio: It is compared as a ratio: ``of`` gives its logarithm.
        grain: The smallest difference that a run can show, such as one evaluation of a date.
        cost: It depends on the commit and the machine, so that only runs of the same ones compare.
        level: It is a success rate, which the oracle bounds and of which the warm start has its own.
        unit: What the rates are divided by.
        chance: How much larger it may be by chance because it is of the best of several evaluations (smaller: below 0).
            The interval reaches so much further on that side.
        limit: The value of a run that ended before there was anything to measure.
        lacking: Why there is none.
    """

    says: str
    of: Callable[[Run], float | None]
    rates: Callable[[Run], Sequence[float]] = lambda run: ()
    ratio: bool = False
    grain: Callable[[Run], float] = lambda run: 0.0
    cost: bool = False
    level: bool = False
    unit: Callable[[Run], float] = lambda run: 1.0
    chance: Callable[[Run], float] = lambda run: 0.0
    limit: float | None = None
    lacking: str = "fewer than two seeds have it"


def final_success(run: Run) -> float:
    """Success at the last evaluation."""
    return float(run["curve"][-1]["success"])


def best_success(run: Run) -> float:
    """Success at the best evaluation."""
    return float(max(row["success"] for row in run["curve"]))


def lasting_best(run: Run) -> float:
    """The best success that lasted: of means over three neighbouring evaluations, the first and the last evaluation."""
    success = [row["success"] for row in run["curve"]]
    around = [fmean(success[place - 1 : place + 2]) for place in range(1, len(success) - 1)]
    return max(*around, success[0], success[-1])


def fall(run: Run) -> float:
    """The share of its best success (`lasting_best`) that a run has lost at its last evaluation.

    Example:
        >>> run = {"curve": [{"success": rate} for rate in (0.8, 0.9, 0.7, 0.2, 0.1)]}
        >>> round(fall(run), 3)  # 1 - 0.1 / 0.8
        0.875
    """
    best = lasting_best(run)
    return 1 - final_success(run) / best if best else 0.0


def fall_by_chance(run: Run) -> float:
    """The fall that a run whose success stands still has by chance, because its best is that of many evaluations.

    Means over three neighbours count as a third as many evaluations, each of three times the episodes. Where a single
    evaluation is the best, the first or the last, it has its own error.

    Example:
        >>> rows = [{"success": rate} for rate in (0.4, 0.5, 0.5, 0.5, *[0.4] * 17)]
        >>> round(fall_by_chance({"curve": rows}), 3)  # 1.35 · √(0.25 / 256 / 3) / 0.5
        0.049
    """
    best = lasting_best(run)
    episodes = next(iter(run.get("final", {}).get("evaluations", {}).values()), {}).get("n", 256)
    alone = best in (run["curve"][0]["success"], run["curve"][-1]["success"])
    error = math.sqrt(best * (1 - best) / episodes / (1 if alone else 3))
    return best_by_chance(max(1.0, len(run["curve"]) / 3)) * error / best if best else 0.0


def lasted(run: Run) -> float:
    """The share of the sampled trajectories after which success began to drop for good; 1 if it never did."""
    rows = run["curve"]
    step = drop_step([row["step"] for row in rows], [row["success"] for row in rows])
    if step is None:
        return 1.0
    return float(next(row["trajectories"] for row in rows if row["step"] == step) / rows[-1]["trajectories"])


def one_evaluation(run: Run) -> float:
    """The time between two evaluations, as a share of the run."""
    return 1 / (len(run["curve"]) - 1)


def elsewhere(name: str) -> Measure:
    """Success at the end in a further evaluation, by its name."""

    def of(run: Run) -> float | None:
        found = run["final"]["evaluations"].get(name)
        return None if found is None else float(found["success"])

    return Measure(f"success at the end ({name})", of, lambda run: [of(run) or 0.0], level=True)


def _cost(says: str, name: str) -> Measure:
    """A cost of the whole run, compared as a ratio."""
    return Measure(says, lambda run: math.log(run["final"][name]), ratio=True, cost=True)


def _brevity(run: Run) -> float | None:
    """Logarithm of the replies per sampled token in the first evaluation at the end; ``None`` for scripts.

    Tokens an episode would not do: they fall as episodes that succeed end sooner.
    """
    found = next(iter(run["final"]["evaluations"].values()))
    return math.log(found["turns"] / found["reply_tokens"]) if found.get("reply_tokens") else None


def _by_spread(run: Run, name: str) -> float | None:
    """Logarithm of the gradient norm of the quarter of groups with the most spread over that with the least."""
    found = logged(run)
    least, most = (found.get(f"signal/{name}_{quarter}") for quarter in (1, 4))
    if not least or not most:
        return None
    return math.log(fmean(value for _, value in most) / max(fmean(value for _, value in least), 1e-12))


def _goes_with_success(run: Run, name: str) -> float | None:
    """Spearman's rank correlation of a series with success on held-out start states, at the evaluations.

    The series is read at the last logged step before an evaluation. ``None`` with fewer than four, or without a spread.
    """
    points = logged(run).get(name, [])
    pairs = []
    for step, success in logged(run)["held_out"]:
        before = [value for at, value in points if at <= step]
        if before:
            pairs.append((before[-1], success))
    if len(pairs) < 4 or any(len({pair[side] for pair in pairs}) == 1 for side in (0, 1)):
        return None
    return correlation(*(ranks([pair[side] for pair in pairs]) for side in (0, 1)))


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share the mean of theirs.

    Example:
        >>> ranks([0.5, 0.1, 0.5])
        [2.5, 1.0, 2.5]
    """
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


SUCCESS = Measure("success at the end", final_success, lambda run: [final_success(run)], level=True)
BEST = Measure("best success on the way", best_success, lambda run: [best_success(run)], level=True)
FALL = Measure(
    "share of the best success that is lost at the end",
    fall,
    lambda run: [lasting_best(run), final_success(run)],
    unit=lambda run: lasting_best(run) or 1.0,
    chance=fall_by_chance,
)
KEPT = replace(
    FALL,
    says="change from the best success to the last, as a share",
    of=lambda run: -fall(run),
    chance=lambda run: -fall_by_chance(run),
)
LASTED = Measure(
    "share of the run before the drop", lasted, grain=one_evaluation, limit=1.0, lacking="no run of either side drops"
)
INFORMATION = Measure(
    "rank correlation of mutual information with success", lambda run: _goes_with_success(run, "collapse/mi")
)
TASK_GRADIENT = Measure("task gradient, most to least spread", lambda run: _by_spread(run, "task"), ratio=True)
ENTROPY_GRADIENT = Measure("entropy gradient, most to least spread", lambda run: _by_spread(run, "entropy"), ratio=True)
DISTANCE = Measure("KL to the warm start", lambda run: math.log(max(run["curve"][-1]["kl"], 1e-3)), ratio=True)
CPU = _cost("CPU seconds", "cpu_seconds")
MEMORY = _cost("peak of memory", "peak_mib")
SHORTER = Measure("length of a reply, start to end", _brevity, ratio=True)


def logged(run: Run) -> dict[str, Series]:
    """Every series of a run: name → (step, value), without rows that have no finite number.

    What each update logged is preferred (``history``, or ``series`` as the committed logs have it); the rows of the
    evaluations add what is not in there, success on held-out start states as ``held_out``.

    Example:
        >>> run = {"curve": [{"step": 0, "success": 0.5}], "history": [{"step": 1, "entropy": 2.0, "success": 0.4}]}
        >>> logged(run)
        {'entropy': [(1.0, 2.0)], 'success': [(1.0, 0.4)], 'held_out': [(0.0, 0.5)]}
    """
    found: dict[str, dict[float, float]] = {}
    for row in run.get("history", ()):
        _add(found, row, row)
    for part in run.get("series", ()):
        for name, values in part["values"].items():
            found[name] = dict(zip(map(float, part["steps"]), values, strict=True))
    in_rows: dict[str, dict[float, float]] = {}
    for row in run.get("curve", ()):
        _add(in_rows, row, {"held_out" if name == "success" else name: value for name, value in row.items()})
    known = {name.rpartition("/")[2] for name in found}
    found |= {name: points for name, points in in_rows.items() if name not in known}
    return {name: sorted(points.items()) for name, points in found.items()}


def _add(found: dict[str, dict[float, float]], row: Run, values: Run) -> None:
    """The row's numbers to their series; of a step that was logged twice, the last value counts."""
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if number and name not in _COUNTS and "train_runtime" not in row:
            found.setdefault(name, {})[float(row["step"])] = float(value)
