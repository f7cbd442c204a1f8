"""When alerts fire: the rules by hand, when they must not fire, and row by row the same as all at once."""

import json
import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import pytest

from ragen_trl.monitoring.alerts import AlertWatch, below_best, declines, find_alerts, rose_by
from tests.support.project import ROOT

Rows = list[dict[str, Any]]


def history(length: int = 60, **metrics: Callable[[int], float]) -> Rows:
    """Rows of a run whose metrics are functions of the row's index."""
    names = {name: name.replace("__", "/") for name in metrics}
    return [
        {"step": place + 1, **{names[name]: value(place) for name, value in metrics.items()}} for place in range(length)
    ]


def fired(rows: Rows) -> dict[str, int]:
    return {one.rule.name: one.step for one in find_alerts(rows)}


def step_down(high: float, low: float, at: int = 20) -> Callable[[int], float]:
    return lambda place: high if place < at else low


NARROWER = step_down(1.0, 0.75, 10)  # enough for behaviour to count, too little to be an alert
# For each alert the shortest story that makes it fire, and the step at which it must fire.
STORIES: dict[str, tuple[Rows, int]] = {
    # One in a hundred a rollout from the 21st on: 8 % below the start at the 34th, enough of a trend at the 38th.
    "actions_fall": (history(collapse__actions_per_turn=lambda place: 2.0 - 0.02 * max(0, place - 20)), 38),
    "echo": (history(collapse__identical_replies=step_down(0.2, 0.6), filter__in_group_std=NARROWER), 26),
    "spread_gone": (history(filter__in_group_std=step_down(1.0, 0.05)), 30),
    "success_falls": (history(80, success=step_down(0.5, 0.2, 40)), 54),
    "eval_success_falls": (history(eval_success=step_down(0.5, 0.3, 10)), 12),
}


@pytest.mark.parametrize("name", STORIES)
def test_an_alert_fires_at_the_step_that_its_threshold_says(name: str) -> None:
    rows, step = STORIES[name]
    assert fired(rows)[name] == step
    assert name not in fired(rows[: step - 1])


@pytest.mark.parametrize("name", STORIES)
def test_row_by_row_says_the_same_as_the_whole_history(name: str) -> None:
    rows, _ = STORIES[name]
    watch, said = AlertWatch(), []
    for end, row in enumerate(rows, start=1):
        said += watch.add(row)
        assert said == find_alerts(rows[:end])
    assert said == watch.fired


def test_what_a_run_that_learns_or_has_learnt_does_is_no_alert() -> None:
    """Replies become alike because the task is solved, or on the way there; and as long as the spread is as before."""
    alike: dict[str, Any] = {"collapse__identical_replies": step_down(0.2, 0.6), "filter__in_group_std": NARROWER}
    assert fired(history(**alike, success=lambda place: 0.4)) == {"echo": 26}
    assert fired(history(**alike, success=lambda place: 0.4 + 0.01 * place)) == {}
    assert fired(history(**alike, success=lambda place: 0.96)) == {}
    assert fired(history(**{**alike, "filter__in_group_std": lambda place: 1.0})) == {}


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_alert(seed: int) -> None:
    """A run of 300 rollouts that neither learns nor collapses, as noisy as 64 trajectories of 8 start states are."""
    rng = random.Random(seed)
    rows = history(
        300,
        success=lambda place: min(1.0, max(0.0, rng.gauss(0.42, 0.13))),
        filter__in_group_std=lambda place: rng.gauss(3.5, 0.55),
        collapse__actions_per_turn=lambda place: rng.gauss(1.8, 0.06),
        collapse__identical_replies=lambda place: min(1.0, max(0.0, rng.gauss(0.3, 0.07))),
    )
    for row in rows:
        row["return"] = 10 * row["success"] - 1
    assert fired(rows) == {}


@pytest.mark.parametrize(
    ("rule", "values", "verdict"),
    [
        (declines, [2.0] * 12 + [1.0] * 12, None),  # a step is no trend
        (declines, [-float(place) for place in range(40)], None),  # nor is there a share of less than nothing
        (declines, [float(64 - place) for place in range(60)], (8.5, pytest.approx(0.92 * 59.5))),
        (declines, [float(64 - place) for place in range(23)], None),
        (lambda values: rose_by(values, 0.25), [0.25] * 10 + [0.5] * 8, (0.5, 0.5)),
        (lambda values: below_best(values, 0.5, 2), [0.0, 4.0, 4.0, 1.0], None),
        (lambda values: below_best(values, 0.75, 2), [0.0, 4.0, 4.0, 1.0], (2.5, 3.0)),
    ],
)
def test_rules_hold_where_their_thresholds_say(
    rule: Callable[[Sequence[float]], tuple[float, float] | None],
    values: list[float],
    verdict: tuple[float, float] | None,
) -> None:
    found = rule(values)
    assert found == (verdict if verdict is None else pytest.approx(verdict))


def on_the_lake(seed: int) -> Rows:
    """What a run on the lake logged with this random seed, in 300 rollouts in which success rose from 0.4 to 0.8."""
    columns = json.loads((ROOT / "tests" / "vectors" / "main_job.json").read_text(encoding="utf-8"))[str(seed)]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("seed", [42, 0])
def test_a_run_that_learns_has_no_alert(seed: int) -> None:
    """`echo` fired in it: eight rollouts of hard start states were taken for a loss."""
    rows = on_the_lake(seed)
    assert fmean(row["success"] for row in rows[-20:]) > fmean(row["success"] for row in rows[:10]) + 0.2
    assert fired(rows) == {}
