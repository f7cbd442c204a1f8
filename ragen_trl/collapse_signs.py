"""When signs of collapse fired in a run's logged rows, and when its success dropped.

Pure functions of the rows that a trainer logs (``trainer.state.log_history``, ``history.json``): the monitor, the
report and the benchmark ask the same question of the same numbers. The signs themselves are in ``known_signs.py``. Left
out: a score that adds signs up, which nobody could read.

Two conditions keep early signs from crying at progress. None fires while a run is *gaining* (`sign_rules.gaining`), and
those about behaviour fire only once returns within groups are more alike than at first (`NARROWED`): a policy that goes
about its task in another way still succeeds here and fails there. Runs without groups (A*-PO with one sample) have the
first condition alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen_trl.known_signs import SIGNS, Sign
from ragen_trl.sign_rules import below_best, far_below_best, fell_to, gaining

NARROWED = 0.8
"""Spread within groups, as a share of its first values, from which changed behaviour counts as narrower behaviour."""

# What a measure is called in the logs of our trainers, of a plain GRPOTrainer and of the monitor; the first one counts.
_KEYS = {
    "in_group_std": ("filter/in_group_std", "collapse/in_group_std"),
    "success": ("success",),
    "return": ("return", "reward"),
}


@dataclass(frozen=True)
class Fired:
    """A sign, the step whose row it first held at, the value there and what it was compared with."""

    sign: Sign
    step: int
    value: float
    threshold: float

    def in_words(self) -> str:
        """``step 25: actions_fall (early): collapse/actions_per_turn is 1.49, threshold 1.5``."""
        sign = self.sign
        return (
            f"step {self.step}: {sign.name} ({sign.kind}): {sign.metric} is {self.value:.3g}, "
            f"threshold {self.threshold:.3g}"
        )


class SignWatch:
    """Takes a run's rows one by one and says which signs each of them makes fire; a sign fires once.

    Attributes:
        fired: All that fired so far, in order.
    """

    def __init__(self) -> None:
        self.fired: list[Fired] = []
        self._values: dict[str, list[float]] = {}

    def add(self, row: Mapping[str, Any]) -> list[Fired]:
        """Look at the next row.

        Args:
            row: As logged, with its ``step``. Rows without a sign's metric say nothing about that sign.

        Returns:
            What fired at this row.
        """
        new = self._read(row)
        silent = {fired.sign.name for fired in self.fired}
        found = []
        for sign in SIGNS:
            if sign.metric not in new or sign.name in silent:
                continue
            verdict = sign.rule(self._values[sign.metric])
            if verdict is not None and self._counts(sign):
                found.append(Fired(sign, int(row["step"]), *verdict))
        self.fired += found
        return found

    def _read(self, row: Mapping[str, Any]) -> set[str]:
        """Append the row's values to their series. Only a gradient norm may be infinite: that is what it says."""
        read = set()
        for metric in {*_KEYS, *(sign.metric for sign in SIGNS)}:
            value = next((row[key] for key in _KEYS.get(metric, (metric,)) if row.get(key) is not None), None)
            if value is not None and (metric == "grad_norm" or math.isfinite(value)):
                self._values.setdefault(metric, []).append(float(value))
                read.add(metric)
        return read

    def _counts(self, sign: Sign) -> bool:
        earned = self._values.get("success") or self._values.get("return", [])
        if not sign.even_if_gaining and gaining(earned):
            return False
        if sign.if_falling and not self._falling():
            return False
        spread = self._values.get("in_group_std", [])
        return not (sign.if_narrowed and spread) or fell_to(spread, NARROWED) is not None

    def _falling(self) -> bool:
        """Success below 90 % of its best; a return, which may be negative, two standard deviations below."""
        if self._values.get("success"):
            return below_best(self._values["success"], 0.9, 8) is not None
        return far_below_best(self._values.get("return", []), 2.0, 8) is not None


def find_signs(rows: Iterable[Mapping[str, Any]]) -> list[Fired]:
    """Which signs fired in a run, at which step; the same that the monitor said while it went on.

    Args:
        rows: In the order of their logging, as in ``history.json``.

    Example:
        >>> rows = [{"step": step, "filter/in_group_std": 1.0 if step <= 10 else 0.2} for step in range(1, 31)]
        >>> [(fired.sign.name, fired.step) for fired in find_signs(rows)]
        [('spread_falls', 18)]
    """
    watch = SignWatch()
    for row in rows:
        watch.add(row)
    return watch.fired


def drop_step(steps: Sequence[int], success: Sequence[float], share: float = 0.85, window: int = 3) -> int | None:
    """When success dropped for good: from which step on it stays below ``share`` of its best before, or ``None``.

    Meant for success on held-out start states: a rollout's own success depends on which dozen start states it drew.
    Rates are smoothed by the mean of ``window`` evaluations around each, those ahead included, so that the drop is not
    dated late, which would flatter a warning. With 256 episodes an evaluation, such a mean of three has a standard
    error of 0.018 at a rate of 0.4, and 15 % of 0.4 is more than two standard errors of a difference.

    Args:
        steps: Of each evaluation, ascending.
        success: Rate at each, as many.
        share: Of the best smoothed rate so far.
        window: Evaluations in a mean, odd.

    Raises:
        ValueError: If lengths differ or ``window`` is even.

    Example:
        >>> drop_step([10, 20, 30, 40, 50], [0.4, 0.5, 0.5, 0.1, 0.1])  # (0.5 + 0.5 + 0.1) / 3 is below 0.85 · 0.47
        30
    """
    if len(steps) != len(success) or window % 2 == 0:
        raise ValueError(f"{len(steps)} steps, {len(success)} rates, window {window}; give as many, and an odd window")
    half = window // 2
    around = [success[max(0, place - half) : place + half + 1] for place in range(len(success))]
    smooth = [sum(part) / len(part) for part in around]
    dropped = None
    for place in range(len(smooth)):
        if smooth[place] >= share * max(smooth[: place + 1]):
            dropped = None
        elif dropped is None:
            dropped = steps[place]
    return dropped
