"""The alerts of collapse, when they fired in a run's logged rows, and when its success dropped.

An alert rule says what it looks at, its threshold, what it means and what to do. Early alerts see behaviour narrow,
confirmation alerts see the damage. Spread, entropy, return and gradient norm are those of RAGEN (arXiv 2504.20073,
section 4.1), the stop rule and the mutual information those of RAGEN-2 (arXiv 2604.06268); the rest is ours. Where each
threshold comes from: docs/warning_signs.md.

Pure functions of the rows that a trainer logs (``trainer.state.log_history``, ``history.json``): the monitor, the
report and the benchmark ask the same question of the same numbers.

Two conditions keep early alerts from firing at progress. None fires while a run is *gaining* (`alert_rules.gaining`),
and those about behaviour fire only once returns within groups are more alike than at first (`NARROWED`): a policy that
does its task in another way still succeeds here and fails there. Runs without groups (A*-PO with one sample) have the
first condition alone.

Left out: KL, which says how far a policy has gone and not whether it went astray; a score that adds alerts up, which
nobody could read.
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
    spikes,
    variance_gone,
)


@dataclass(frozen=True)
class AlertRule:
    """When an alert fires, and what it says.

    Attributes:
        name: Its name in logs and reports.
        kind: ``"early"`` (behaviour narrows) or ``"confirmation"`` (the damage is there).
        metric: The logged value it looks at.
        says: What it means, in one sentence.
        remedy: What to do first.
        condition: Holds or not at the end of the metric's values so far.
        even_if_gaining: Whether it may fire while the run gains.
        if_narrowed: Whether it waits until spread within groups is at most `NARROWED` of its first
            values.
        if_falling: Whether it waits until success (without it: the return) is below 90 % of its best.
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
        "Returns within groups are hardly more than half as spread as at first, and nothing was gained by it.",
        _FILTER,
        partial(fell_to, share=0.55),
    ),
    AlertRule(
        "actions_fall",
        "early",
        "collapse/actions_per_turn",
        "The agent does less and less in a turn: it is learning to stand still.",
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
        "look at replies in the report: what was left out? reward it, or keep a KL penalty (beta)",
        partial(fell_to, share=0.55),
        if_narrowed=True,
    ),
    AlertRule(
        "replies_swell",
        "early",
        "collapse/reply_tokens",
        "Replies are more than twice as long as at first.",
        "lower max_reply_length, or charge for length (length_reward)",
        partial(rose_to, factor=2.0),
        if_narrowed=True,
    ),
    AlertRule(
        "thoughts_shrink",
        "early",
        "collapse/thought_tokens",
        "Thoughts are hardly more than half as long as at first: reasoning becomes a template.",
        "see whether collapse/mi_retrieval falls too; if so, reward thoughts that fit their prompt, or turn them off",
        partial(fell_to, share=0.55),
        if_narrowed=True,
    ),
    AlertRule(
        "thoughts_ignore_prompts",
        "early",
        "collapse/mi",
        "What is said depends on the prompt half as much as at first: RAGEN-2's template collapse.",
        f"{_FILTER}; RAGEN-2's filter by mass (filter_strategy='top_p') was made for this",
        partial(fell_to, share=0.5, start=3, window=3),
    ),
    AlertRule(
        "entropy_drops",
        "early",
        "entropy",
        "The entropy over action tokens halved at once; in runs that learn it decays slowly.",
        f"{_LESS}; or add an entropy bonus (entropy_coef)",
        fell_suddenly,
        if_narrowed=True,
    ),
    AlertRule(
        "entropy_rises",
        "early",
        "entropy",
        "The entropy over action tokens is twice that of the beginning: the policy is coming apart.",
        f"{_LESS}; switch the entropy bonus off (entropy_coef=0)",
        partial(rose_to, factor=2.0),
        if_narrowed=True,
    ),
    AlertRule(
        "spread_gone",
        "confirmation",
        "in_group_std",
        "RAGEN-2's stop rule: spread within groups below 10 % of the first ten rollouts', ten rollouts long.",
        _BACK,
        variance_gone,
    ),
    AlertRule(
        "success_falls",
        "confirmation",
        "success",
        "Success over 20 rollouts is below 60 % of its best.",
        _BACK,
        partial(below_best, share=0.6, window=20),
        even_if_gaining=True,
    ),
    AlertRule(
        "eval_success_falls",
        "confirmation",
        "eval_success",
        "Success on held-out start states, over three evaluations, is below 80 % of its best.",
        _BACK,
        partial(below_best, share=0.8, window=3),
        even_if_gaining=True,
    ),
    AlertRule(
        "return_falls",
        "confirmation",
        "return",
        "The return over 20 rollouts is three standard deviations of a rollout below its best.",
        _BACK,
        partial(far_below_best, deviations=3.0, window=20),
        even_if_gaining=True,
    ),
    AlertRule(
        "gradient_spikes",
        "confirmation",
        "grad_norm",
        "Three spikes of the gradient norm within 20 updates, each ten times what was usual.",
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
"""Spread within groups, as a share of its first values, from which changed behaviour counts as narrower behaviour."""

# What a measure is called in the logs of our trainers, of a plain GRPOTrainer and of the monitor; the first one counts.
_KEYS = {
    "in_group_std": ("filter/in_group_std", "collapse/in_group_std"),
    "success": ("success",),
    "return": ("return", "reward"),
}


@dataclass(frozen=True)
class Alert:
    """The rule of an alert, the step at which it first held, the value there and the threshold."""

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
    """Takes a run's rows one by one and says which alerts each of them makes fire; each rule fires once.

    Attributes:
        fired: All that fired so far, in order.
    """

    def __init__(self) -> None:
        self.fired: list[Alert] = []
        self._values: dict[str, list[float]] = {}

    def add(self, row: Mapping[str, Any]) -> list[Alert]:
        """Look at the next row.

        Args:
            row: As logged, with its ``step``. Rows without a rule's metric say nothing about that rule.

        Returns:
            What fired at this row.
        """
        new = self._read(row)
        silent = {fired.rule.name for fired in self.fired}
        found = []
        for rule in ALERT_RULES:
            if rule.metric not in new or rule.name in silent:
                continue
            verdict = rule.condition(self._values[rule.metric])
            if verdict is not None and self._counts(rule):
                found.append(Alert(rule, int(row["step"]), *verdict))
        self.fired += found
        return found

    def _read(self, row: Mapping[str, Any]) -> set[str]:
        """Append the row's values to their series. Only a gradient norm may be infinite: that is what it says."""
        read = set()
        for metric in {*_KEYS, *(rule.metric for rule in ALERT_RULES)}:
            value = next((row[key] for key in _KEYS.get(metric, (metric,)) if row.get(key) is not None), None)
            if value is not None and (metric == "grad_norm" or math.isfinite(value)):
                self._values.setdefault(metric, []).append(float(value))
                read.add(metric)
        return read

    def _counts(self, rule: AlertRule) -> bool:
        earned = self._values.get("success") or self._values.get("return", [])
        if not rule.even_if_gaining and gaining(earned):
            return False
        if rule.if_falling and not self._falling():
            return False
        spread = self._values.get("in_group_std", [])
        return not (rule.if_narrowed and spread) or fell_to(spread, NARROWED) is not None

    def _falling(self) -> bool:
        """Success below 90 % of its best; a return, which may be negative, two standard deviations below."""
        if self._values.get("success"):
            return below_best(self._values["success"], 0.9, 8) is not None
        return far_below_best(self._values.get("return", []), 2.0, 8) is not None


def find_alerts(rows: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """Which alerts fired in a run, at which step; the same that the monitor said while it went on.

    Args:
        rows: In the order of their logging, as in ``history.json``.

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


