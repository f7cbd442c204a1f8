"""The alerts of collapse: their rules, when they fired in a run's logged rows, and when its success dropped.

Early alerts see behaviour narrow, confirmation alerts see the damage. Spread, entropy, return and gradient norm are
RAGEN's (arXiv 2504.20073, section 4.1), the stop rule and the mutual information RAGEN-2's (arXiv 2604.06268); the rest
is ours (docs/warning_signs.md). To tell collapse from progress, no early alert fires while a run is *gaining* or its
task is *solved* (`alert_rules`), and alerts about behaviour wait until the spread of returns within groups has narrowed
(`NARROWED`): a policy that only acts in another way still succeeds in some episodes of a group and fails in others.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ragen_trl.monitoring.alert_rules import (
    Condition,
    below_best,
    declines,
    far_below_best,
    fell_by,
    fell_suddenly,
    fell_to,
    gaining,
    rose_by,
    rose_to,
    solved,
    spikes,
    variance_gone,
)


@dataclass(frozen=True)
class AlertRule:
    """When an alert fires, and what it says.

    Attributes:
        name: Its name in logs and reports.
        kind: ``"early"`` (behaviour narrows) or ``"confirmation"`` (the damage is there).
        metric: The logged value that it watches.
        says: What it means, in one sentence.
        remedy: What to do first.
        condition: Decides whether it holds at the last of the metric's values so far.
        even_if_gaining: Whether it may fire while the run is gaining or its task is solved.
        if_narrowed: Whether it waits until the spread within groups is at most `NARROWED` of its first values.
        if_falling: Whether it waits until success (or the return, where no success is logged) is below 90 % of its
            best.
    """

    name: str
    kind: Literal["early", "confirmation"]
    metric: str
    says: str
    remedy: str
    condition: Condition
    even_if_gaining: bool = False
    if_narrowed: bool = False
    if_falling: bool = False


_FILTER = "keep the most uncertain groups (StarPOSConfig), or do not divide by a group's std (scale_rewards='none')"
_LESS = "lower the learning rate or the number of updates on one rollout (num_iterations)"
_BACK = "go back to the best checkpoint (CollapseMonitor(action='rollback')) and change the settings from there"

ALERT_RULES = (
    AlertRule(
        "spread_falls",
        "early",
        "in_group_std",
        "The spread of returns within groups is hardly more than half of what it was at first, and nothing was gained.",
        _FILTER,
        partial(fell_to, share=0.55),
    ),
    AlertRule(
        "actions_fall",
        "early",
        "collapse/actions_per_turn",
        "The agent acts less and less in a turn: it is learning to stand still.",
        _FILTER,
        declines,
    ),
    AlertRule(
        "effect_falls",
        "early",
        "collapse/effective",
        "Fewer turns change anything in the environment.",
        _FILTER,
        partial(fell_to, share=0.85),
        if_narrowed=True,
    ),
    AlertRule(
        "echo",
        "early",
        "collapse/identical_replies",
        "Members of a group give the same first reply much more often than at first: RAGEN's echo trap.",
        f"{_FILTER}; or add an entropy bonus (entropy_coef)",
        partial(rose_by, amount=0.3),
        if_narrowed=True,
    ),
    AlertRule(
        "replies_shrink",
        "early",
        "collapse/reply_tokens",
        "Replies are hardly more than half as long as at first.",
        "read replies in the report: what is missing now? reward it, or add a KL penalty (beta)",
        partial(fell_to, share=0.55),
        if_narrowed=True,
    ),
    AlertRule(
        "replies_swell",
        "early",
        "collapse/reply_tokens",
        "Replies are more than twice as long as at first.",
        "lower max_reply_length, or add a cost of length (length_reward)",
        partial(rose_to, factor=2.0),
        if_narrowed=True,
    ),
    AlertRule(
        "thoughts_shrink",
        "early",
        "collapse/thought_tokens",
        "Thoughts are hardly more than half as long as at first: reasoning becomes a template.",
        "look at collapse/mi_retrieval; if it falls too, reward thoughts that fit their prompt, or turn thoughts off",
        partial(fell_to, share=0.55),
        if_narrowed=True,
    ),
    AlertRule(
        "thoughts_ignore_prompts",
        "early",
        "collapse/mi",
        "Thoughts depend on their prompts half as much as at first: RAGEN-2's template collapse.",
        f"{_FILTER}; RAGEN-2's filter by mass (filter_strategy='top_p') was made for this",
        partial(fell_to, share=0.5, start=3, window=3),
    ),
    AlertRule(
        "entropy_drops",
        "early",
        "entropy",
        "The entropy over action tokens halved suddenly; in runs that learn it decays slowly.",
        f"{_LESS}; or add an entropy bonus (entropy_coef)",
        fell_suddenly,
        if_narrowed=True,
    ),
    AlertRule(
        "entropy_rises",
        "early",
        "entropy",
        "The entropy over action tokens is twice that of the beginning: the policy becomes random.",
        f"{_LESS}; switch the entropy bonus off (entropy_coef=0)",
        partial(rose_to, factor=2.0),
        if_narrowed=True,
    ),
    AlertRule(
        "spread_gone",
        "confirmation",
        "in_group_std",
        "RAGEN-2's stop rule: in ten rollouts in a row the spread within groups was below 10 % of its start.",
        _BACK,
        variance_gone,
    ),
    AlertRule(
        "success_falls",
        "confirmation",
        "success",
        "The mean success of 20 rollouts is below 60 % of its best.",
        _BACK,
        partial(below_best, share=0.6, window=20),
        even_if_gaining=True,
    ),
    AlertRule(
        "eval_success_falls",
        "confirmation",
        "eval_success",
        "The mean success of three evaluations on held-out start states is below 80 % of its best.",
        _BACK,
        partial(below_best, share=0.8, window=3),
        even_if_gaining=True,
    ),
    AlertRule(
        "return_falls",
        "confirmation",
        "return",
        "The mean return of 20 rollouts is three standard deviations of a rollout below its best.",
        _BACK,
        partial(far_below_best, deviations=3.0, window=20),
        even_if_gaining=True,
    ),
    AlertRule(
        "gradient_spikes",
        "confirmation",
        "grad_norm",
        "The gradient norm spiked three times within 20 updates, each time above ten times its usual value.",
        f"lower max_grad_norm; {_LESS}",
        spikes,
        if_falling=True,
    ),
    AlertRule(
        "format_breaks",
        "confirmation",
        "format_valid",
        "The share of readable replies is 0.2 below that of the beginning.",
        _BACK,
        partial(fell_by, amount=0.2),
        even_if_gaining=True,
    ),
)
"""All of them, in the order in which alerts are reported."""


NARROWED = 0.8
"""At this share of its first values or less, the spread within groups counts as narrowed."""

_OWN_KEYS = {
    "in_group_std": ("filter/in_group_std", "collapse/in_group_std"),
    "success": ("success",),
    "return": ("return", "reward"),
}
LOG_KEYS: Mapping[str, tuple[str, ...]] = {
    **{rule.metric: (rule.metric,) for rule in ALERT_RULES},
    **_OWN_KEYS,
}
"""All that alerts read: metric → its log keys, of our trainers, of the monitor, of a plain ``GRPOTrainer``. The first
one that was logged counts."""


@dataclass(frozen=True)
class Alert:
    """An alert that fired: its rule, the step at which the rule first held, the value there and the threshold."""

    rule: AlertRule
    step: int
    value: float
    threshold: float

    def in_words(self) -> str:
        """``step 25: actions_fall (early): collapse/actions_per_turn is 1.49, threshold 1.5``."""
        rule = self.rule
        return (
            f"step {self.step}: {rule.name} ({rule.kind}): {rule.metric} is {self.value:.3g}, "
            f"threshold {self.threshold:.3g}"
        )


class AlertWatch:
    """Takes a run's rows one by one and says which alerts fire at each of them. Each rule fires once.

    Attributes:
        fired: The alerts that fired so far, in order.
    """

    def __init__(self) -> None:
        self.fired: list[Alert] = []
        self._values: dict[str, list[float]] = {}

    def add(self, row: Mapping[str, Any]) -> list[Alert]:
        """The alerts that fire at the next logged row, with its ``step``. A rule ignores rows without its metric."""
        new = self._read(row)
        silent = {fired.rule.name for fired in self.fired}
        found = []
        for rule in ALERT_RULES:
            if rule.metric not in new or rule.name in silent:
                continue
            verdict = rule.condition(self._values[rule.metric])
            if verdict is not None and self._may_fire(rule):
                found.append(Alert(rule, int(row["step"]), *verdict))
        self.fired += found
        return found

    def _read(self, row: Mapping[str, Any]) -> set[str]:
        """Append the row's values to their series; returns their names. Only a gradient norm may be infinite."""
        read = set()
        for metric, keys in LOG_KEYS.items():
            value = next((row[key] for key in keys if row.get(key) is not None), None)
            if value is not None and (metric == "grad_norm" or math.isfinite(value)):
                self._values.setdefault(metric, []).append(float(value))
                read.add(metric)
        return read

    def _may_fire(self, rule: AlertRule) -> bool:
        """Whether the conditions beside the rule's own hold."""
        earned = self._values.get("success") or self._values.get("return", [])
        if not rule.even_if_gaining and (gaining(earned) or solved(self._values.get("success", []))):
            return False
        if rule.if_falling and not self._falling():
            return False
        spread = self._values.get("in_group_std", [])
        return not (rule.if_narrowed and spread) or fell_to(spread, NARROWED) is not None

    def _falling(self) -> bool:
        """Whether success is below 90 % of its best; a return, which may be negative, two standard deviations below."""
        if self._values.get("success"):
            return below_best(self._values["success"], 0.9, 8) is not None
        return far_below_best(self._values.get("return", []), 2.0, 8) is not None


def find_alerts(rows: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """The alerts that fired in a run, from its rows in order; the same ones that a monitor finds during the run.

    Example:
        >>> rows = [{"step": step, "filter/in_group_std": 1.0 if step <= 10 else 0.2} for step in range(1, 31)]
        >>> [(fired.rule.name, fired.step) for fired in find_alerts(rows)]
        [('spread_falls', 18)]
    """
    watch = AlertWatch()
    for row in rows:
        watch.add(row)
    return watch.fired


def drop_step(steps: Sequence[int], success: Sequence[float], share: float = 0.85, window: int = 3) -> int | None:
    """The step from which success stays below ``share`` of its best before that step; ``None`` if it never does.

    Meant for success on held-out start states. Each rate is smoothed by the mean of the ``window`` evaluations around
    it, so the drop is not dated late, which would make an alert look early.

    Args:
        steps: The step of each evaluation, ascending.
        success: The success rate of each.
        share: A drop is below this share of the best smoothed rate so far.
        window: How many evaluations are in a mean; odd.

    Raises:
        ValueError: If lengths differ or ``window`` is even.

    Example:
        >>> drop_step([10, 20, 30, 40, 50], [0.4, 0.5, 0.5, 0.1, 0.1])  # (0.5 + 0.5 + 0.1) / 3 is below 0.85 · 0.47
        30
    """
    if len(steps) != len(success) or window % 2 == 0:
        raise ValueError(
            f"{len(steps)} steps, {len(success)} rates, window {window}; give a rate for each step, and an odd window"
        )
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


