"""The alerts of collapse: their rules, and which of them fire in a run's logged rows.

Of the signs that RAGEN (arXiv 2504.20073, section 4.1), RAGEN-2 (arXiv 2604.06268) and we have tried, these are the
ones that told anything in 475 runs (docs/evaluation.md). Early alerts see behaviour narrow, confirmation alerts see
the damage. Windows count logged values: with ``logging_steps=5``, ten values are fifty steps. A rollout has about a
dozen start states and says little, so means of windows are compared with the run's own beginning or best.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, variance
from typing import Any, Literal, NamedTuple

Verdict = tuple[float, float] | None
"""The value and the threshold that it passed, or ``None``."""

START = 10
"""How many values at the beginning a run is compared with."""
RECENT = 8
"""How many of the last values are compared with these."""


def declines(values: Sequence[float]) -> Verdict:
    r"""A steady decline: little at a time, and nearly always downwards.

    The mean of the last 8 values is at most 92 % of the mean of the first 10, and the Mann-Kendall score of the last 60
    values, of which there are at least 24, is at most -6. In a series without a trend the score is normal with mean 0
    and variance 1. The threshold was found by trial and implies no probability of error, because rollouts are not
    independent.

    .. math:: S = \sum_{i<j} \operatorname{sign}(x_j - x_i), \quad z = S / \sqrt{n (n - 1) (2 n + 5) / 18}
    """
    threshold, now, last = 0.92 * fmean(values[:START]), fmean(values[-RECENT:]), values[-60:]
    if len(values) < 24 or threshold <= 0 or now > threshold:
        return None
    count = len(last)
    balance = sum((later > one) - (later < one) for place, one in enumerate(last) for later in last[place + 1 :])
    score = balance / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (now, threshold) if score <= -6.0 else None


def rose_by(values: Sequence[float], amount: float) -> Verdict:
    """The mean of the last 8 values is ``amount`` above the mean of the first 10; for shares."""
    if len(values) < START + RECENT:
        return None
    threshold, recent = fmean(values[:START]) + amount, fmean(values[-RECENT:])
    return (recent, threshold) if recent >= threshold else None


def variance_gone(values: Sequence[float], start: int = START, window: int = 10, share: float = 0.1) -> Verdict:
    """RAGEN-2's stop rule: each of the last ``window`` values is below ``share`` of the mean of the first ``start``.

    RAGEN-2's code waits for 10 values, its paper for 5. The comparison is strict.
    """
    if len(values) < max(start, window):
        return None
    threshold, highest = share * fmean(values[:start]), max(values[-window:])
    return (highest, threshold) if highest < threshold else None


def below_best(values: Sequence[float], share: float, window: int) -> Verdict:
    """The mean of the last ``window`` values is below ``share`` of the best such mean; for values from 0 up."""
    if len(values) < 2 * window:
        return None
    means = trailing_means(values, window)
    threshold = share * max(means)
    return (means[-1], threshold) if means[-1] < threshold else None


def trailing_means(values: Sequence[float], window: int) -> list[float]:
    """The mean of every ``window`` values in a row."""
    return [fmean(values[end - window : end]) for end in range(window, len(values) + 1)]


def gaining(values: Sequence[float]) -> bool:
    """Whether a run earns more than at its beginning and has kept most of what it gained, by one of two windows.

    In a run that learns, the same changes are progress: the spread within groups falls as tasks are solved. "Most"
    means 70 % of the way from the beginning to the best mean of a window. The last 8 values see a gain soon: one
    standard error of the difference of the two means is enough. The last 20 are for the noise, and ask for three, since
    an early bump stays in them while a run already declines.
    """
    for window, errors in ((RECENT, 1.0), (20, 3.0)):
        if len(values) < START + window:
            continue
        first, recent = values[:START], values[-window:]
        error = math.sqrt(variance(first) / START + variance(recent) / window)
        gain, best = fmean(recent) - fmean(first), max(trailing_means(values, window)) - fmean(first)
        if gain > errors * error and gain >= 0.7 * best:
            return True
    return False


class AlertRule(NamedTuple):
    """When an alert fires, and what that means.

    Attributes:
        kind: ``"early"`` (behaviour narrows) or ``"confirmation"`` (the damage is there).
        metric: The logged value that it watches; ``condition`` gets all of them so far.
        if_narrowed: Whether it waits until the spread within groups is at most 80 % of its first values: a policy that
            only acts in another way still succeeds in some episodes of a group and fails in others.
    """

    name: str
    kind: Literal["early", "confirmation"]
    metric: str
    condition: Callable[[Sequence[float]], Verdict]
    means: str
    if_narrowed: bool = False


_STILL = "The agent acts less and less in a turn: it is learning to stand still."
_ECHO = "Members of a group give the same first reply much more often than at first: RAGEN's echo trap."
_GONE = "RAGEN-2's stop rule: in ten rollouts in a row the spread within groups was below 10 % of its start."
_FALLS = "The mean success of 20 rollouts is below 60 % of its best."
_EVAL = "The mean success of three evaluations on held-out start states is below 80 % of its best."

ALERT_RULES = (
    AlertRule("actions_fall", "early", "collapse/actions_per_turn", declines, _STILL),
    AlertRule("echo", "early", "collapse/identical_replies", partial(rose_by, amount=0.3), _ECHO, if_narrowed=True),
    AlertRule("spread_gone", "confirmation", "in_group_std", variance_gone, _GONE),
    AlertRule("success_falls", "confirmation", "success", partial(below_best, share=0.6, window=20), _FALLS),
    AlertRule("eval_success_falls", "confirmation", "eval_success", partial(below_best, share=0.8, window=3), _EVAL),
)
"""All of them, in the order in which alerts are reported."""

ADVICE = {
    "early": "Keep the most uncertain groups (StarPOSConfig), do not divide by a group's std (scale_rewards='none'), "
    "or add an entropy bonus (entropy_coef).",
    "confirmation": "Go back to the best checkpoint (CollapseMonitor's action 'rollback') and change the settings.",
}
"""What to do first, by the kind of an alert."""

LOG_KEYS: Mapping[str, tuple[str, ...]] = {
    **{rule.metric: (rule.metric,) for rule in ALERT_RULES},
    "in_group_std": ("filter/in_group_std", "collapse/in_group_std"),
    "return": ("return", "reward"),
}
"""All that alerts read: metric → its log keys, of our trainers, of the monitor, of a plain ``GRPOTrainer``. The first
one that was logged counts."""


class Alert(NamedTuple):
    """An alert that fired: its rule, the step at which the rule first held, the value there and the threshold."""

    rule: AlertRule
    step: int
    value: float
    threshold: float

    @property
    def says(self) -> str:
        """What it means, and what to do first."""
        return f"{self.rule.means} {ADVICE[self.rule.kind]}"

    def in_words(self) -> str:
        """``step 25: actions_fall (early): collapse/actions_per_turn is 1.49, threshold 1.5``."""
        rule, numbers = self.rule, f"is {self.value:.3g}, threshold {self.threshold:.3g}"
        return f"step {self.step}: {rule.name} ({rule.kind}): {rule.metric} {numbers}"


class AlertWatch:
    """Takes a run's rows one by one and says which alerts fire at each; each rule fires once. ``fired`` has all."""

    def __init__(self) -> None:
        self.fired: list[Alert] = []
        self._values: dict[str, list[float]] = {metric: [] for metric in LOG_KEYS}

    def add(self, row: Mapping[str, Any]) -> list[Alert]:
        """The alerts that fire at the next logged row, with its ``step``. A rule ignores rows without its metric."""
        new = set()
        for metric, keys in LOG_KEYS.items():
            value = next((row[key] for key in keys if row.get(key) is not None), None)
            if value is not None and math.isfinite(value):
                self._values[metric].append(float(value))
                new.add(metric)
        known = {one.rule.name for one in self.fired}
        verdicts = [
            (rule, rule.condition(self._values[rule.metric]))
            for rule in ALERT_RULES
            if rule.metric in new and rule.name not in known
        ]
        found = [Alert(rule, int(row["step"]), *held) for rule, held in verdicts if held and self._may_fire(rule)]
        self.fired += found
        return found

    def _may_fire(self, rule: AlertRule) -> bool:
        """Whether the conditions beside the rule's own hold.

        Only success itself may fall while the run is `gaining` or its task is solved: replies of a policy that knows
        what to do are alike.
        """
        success, spread = self._values["success"], self._values["in_group_std"]
        solved = len(success) >= RECENT and fmean(success[-RECENT:]) >= 0.95
        if rule.metric not in ("success", "eval_success") and (solved or gaining(success or self._values["return"])):
            return False
        if not rule.if_narrowed or not spread:
            return True
        return len(spread) >= START + RECENT and fmean(spread[-RECENT:]) <= 0.8 * fmean(spread[:START])


def find_alerts(rows: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """The alerts that fired in a run, from its rows in order; the same ones that a monitor finds during the run.

    Example:
        >>> rows = [{"step": step, "filter/in_group_std": 1.0 if step <= 10 else 0.05} for step in range(1, 31)]
        >>> [(fired.rule.name, fired.step) for fired in find_alerts(rows)]
        [('spread_gone', 20)]
    """
    watch = AlertWatch()
    for row in rows:
        watch.add(row)
    return watch.fired
