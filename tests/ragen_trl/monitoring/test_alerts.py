"""When alerts fire: the rules by hand, when they must not fire, and row by row the same as all at once."""

import json
import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import pytest

from ragen_trl.monitoring.alert_rules import (
    below_best,
    declines,
    far_below_best,
    fell_by,
    fell_suddenly,
    fell_to,
    gaining,
    is_spike,
    rose_by,
    rose_to,
    spikes,
    trailing_means,
    variance_gone,
)
from ragen_trl.monitoring.alerts import ALERT_RULES, AlertWatch, drop_step, find_alerts
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
    "spread_falls": (history(filter__in_group_std=step_down(1.0, 0.5)), 28),
    # One in a hundred a rollout from the 21st on: 8 % below the start at the 34th, enough of a trend at the 38th.
    "actions_fall": (history(collapse__actions_per_turn=lambda place: 2.0 - 0.02 * max(0, place - 20)), 38),
    "effect_falls": (history(collapse__effective=step_down(0.8, 0.4), filter__in_group_std=NARROWER), 23),
    "echo": (history(collapse__identical_replies=step_down(0.2, 0.6), filter__in_group_std=NARROWER), 26),
    "replies_shrink": (history(collapse__reply_tokens=step_down(40.0, 20.0), filter__in_group_std=NARROWER), 28),
    "replies_swell": (history(collapse__reply_tokens=step_down(40.0, 90.0), filter__in_group_std=NARROWER), 25),
    "thoughts_shrink": (history(collapse__thought_tokens=step_down(40.0, 20.0), filter__in_group_std=NARROWER), 28),
    "thoughts_ignore_prompts": (history(collapse__mi=step_down(0.4, 0.1)), 22),
    "entropy_drops": (history(entropy=step_down(0.6, 0.2, 30), filter__in_group_std=NARROWER), 33),
    "entropy_rises": (history(entropy=step_down(0.6, 1.5), filter__in_group_std=NARROWER), 25),
    "spread_gone": (history(filter__in_group_std=step_down(1.0, 0.05)), 30),
    "success_falls": (history(80, success=step_down(0.5, 0.2, 40)), 54),
    "eval_success_falls": (history(eval_success=step_down(0.5, 0.3, 10)), 12),
    "return_falls": (history(80, **{"return": lambda place: (-1.0) ** place - 6 * (place >= 40)}), 51),
    "gradient_spikes": (
        history(
            80,
            grad_norm=lambda place: 50.0 if place in (60, 65, 70) else 1.0,
            success=step_down(0.5, 0.4, 40),
        ),
        71,
    ),
    "format_breaks": (history(format_valid=step_down(1.0, 0.5)), 24),
}


def test_every_alert_has_a_story() -> None:
    assert STORIES.keys() == {rule.name for rule in ALERT_RULES}
    assert len({rule.name for rule in ALERT_RULES}) == len(ALERT_RULES)


def test_the_page_on_alerts_has_them_all() -> None:
    page = (ROOT / "docs" / "warning_signs.md").read_text(encoding="utf-8")
    assert [rule.name for rule in ALERT_RULES if f"`{rule.name}`" not in page] == []


@pytest.mark.parametrize("name", STORIES)
def test_an_alert_fires_at_the_step_that_its_threshold_says(name: str) -> None:
    rows, step = STORIES[name]
    assert fired(rows)[name] == step


@pytest.mark.parametrize("name", STORIES)
def test_no_alert_fires_before_the_story_turns(name: str) -> None:
    rows, step = STORIES[name]
    assert name not in fired(rows[: step - 1])


@pytest.mark.parametrize("name", STORIES)
def test_row_by_row_says_the_same_as_the_whole_history(name: str) -> None:
    rows, _ = STORIES[name]
    watch, said = AlertWatch(), []
    for end, row in enumerate(rows, start=1):
        said += watch.add(row)
        assert said == find_alerts(rows[:end])
    assert said == watch.fired


@pytest.mark.parametrize(
    "name", [rule.name for rule in ALERT_RULES if not rule.even_if_gaining and not rule.if_falling]
)
def test_early_alerts_are_silent_while_a_run_gains(name: str) -> None:
    rows, _ = STORIES[name]
    assert name not in fired([{**row, "success": min(0.9, 0.1 + 0.02 * row["step"])} for row in rows])
    assert name in fired([{**row, "success": 0.4} for row in rows])


@pytest.mark.parametrize("name", [rule.name for rule in ALERT_RULES if rule.if_narrowed])
def test_another_behaviour_is_no_alert_while_groups_differ_as_much_as_ever(name: str) -> None:
    rows, _ = STORIES[name]
    assert name not in fired([{**row, "filter/in_group_std": 1.0} for row in rows])
    without = [{key: value for key, value in row.items() if key != "filter/in_group_std"} for row in rows]
    assert name in fired(without)  # a run without groups has no spread to wait for


def test_spikes_are_none_of_a_solved_task() -> None:
    rows, _ = STORIES["gradient_spikes"]
    assert fired([{**row, "success": 1.0} for row in rows]) == {}


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_alert(seed: int) -> None:
    """A run of 300 rollouts that neither learns nor collapses, as noisy as 64 trajectories of 8 start states are."""
    rng = random.Random(seed)
    rows = history(
        300,
        success=lambda place: min(1.0, max(0.0, rng.gauss(0.42, 0.13))),
        filter__in_group_std=lambda place: rng.gauss(3.5, 0.55),
        entropy=lambda place: rng.gauss(0.55, 0.03),
        grad_norm=lambda place: rng.lognormvariate(0.0, 0.5),
        format_valid=lambda place: min(1.0, rng.gauss(0.97, 0.02)),
        collapse__actions_per_turn=lambda place: rng.gauss(1.8, 0.06),
        collapse__effective=lambda place: rng.gauss(0.82, 0.04),
        collapse__identical_replies=lambda place: min(1.0, max(0.0, rng.gauss(0.3, 0.07))),
        collapse__reply_tokens=lambda place: rng.gauss(40.0, 4.0),
        collapse__thought_tokens=lambda place: rng.gauss(25.0, 4.0),
        collapse__mi=lambda place: rng.gauss(0.3, 0.05),
    )
    for row in rows:
        row["return"] = 10 * row["success"] - 1
    assert fired(rows) == {}


def test_a_plain_trainers_names_are_known() -> None:
    rows = history(collapse__in_group_std=step_down(1.0, 0.01), reward=step_down(0.5, 0.5))
    assert fired(rows) == {"spread_falls": 24, "spread_gone": 30}
    gained = history(collapse__in_group_std=step_down(1.0, 0.01), reward=lambda place: place / 60)
    assert fired(gained) == {}


def test_rows_that_say_nothing_are_passed_over() -> None:
    rows, step = STORIES["spread_falls"]
    between: Rows = [{"step": 0, "train_runtime": 1.0}, {"step": 0, "filter/in_group_std": None}]
    assert fired([*rows[:12], *between, *rows[12:]]) == {"spread_falls": step}
    assert fired([{**row, "entropy": math.nan} for row in rows]) == {"spread_falls": step}


def test_it_says_in_words_what_fired() -> None:
    (found,) = find_alerts(STORIES["format_breaks"][0])
    assert found.in_words() == "step 24: format_breaks (confirmation): format_valid is 0.75, threshold 0.8"


def test_spikes_are_compared_with_what_came_before_them() -> None:
    def spike_indices(norms: list[float]) -> list[int]:
        return [index for index in range(len(norms)) if is_spike(norms, index)]

    assert spike_indices([1.0] * 5 + [10.1, 10.0]) == [5]
    assert spike_indices([1.0] * 4 + [99.0]) == []  # too little history
    assert spike_indices([math.inf, 1.0, math.nan]) == [0, 2]
    calm, wild = [1.0] * 20, [1.0, 11.0, 1.0, 11.0, 1.0, 11.0]
    assert spikes(calm + wild) == (3.0, 3.0)
    assert spikes(calm + wild[:5]) is None
    assert spikes([10.0] * 10 + [0.1] * 30 + [1.5] * 3) is None  # large against neighbours, small for the run


@pytest.mark.parametrize(
    ("rule", "values", "verdict"),
    [
        (variance_gone, [1.0] * 10 + [0.09] * 10, (0.09, 0.1)),
        (variance_gone, [1.0] * 10 + [0.09] * 9, None),
        (lambda values: fell_to(values, 0.5), [2.0] * 10 + [1.0] * 8, (1.0, 1.0)),
        (lambda values: fell_to(values, 0.5), [2.0] * 10 + [1.0] * 7, None),
        (lambda values: fell_to(values, 0.5), [0.0] * 18, None),  # nothing falls from zero
        (declines, [2.0] * 12 + [1.0] * 12, None),  # a step is no trend
        (declines, [-float(place) for place in range(40)], None),  # nor is there a share of less than nothing
        (declines, [float(64 - place) for place in range(60)], (8.5, pytest.approx(0.92 * 59.5))),
        (declines, [float(64 - place) for place in range(23)], None),
        (lambda values: fell_by(values, 0.25), [0.75] * 10 + [0.5] * 8, (0.5, 0.5)),
        (lambda values: rose_to(values, 2.0), [0.0] * 18, None),
        (fell_suddenly, [0.0] * 25, None),
        (lambda values: rose_to(values, 2.0), [2.0] * 10 + [4.0] * 8, (4.0, 4.0)),
        (lambda values: rose_to(values, 2.0), [2.0] * 10 + [4.0] * 4 + [3.9] * 4, None),
        (lambda values: rose_by(values, 0.25), [0.25] * 10 + [0.5] * 8, (0.5, 0.5)),
        (fell_suddenly, [1.0] * 20 + [0.5] * 5, (0.5, 0.5)),
        (fell_suddenly, [1.0] * 20 + [0.5] * 2 + [0.6] * 3, None),
        (lambda values: below_best(values, 0.5, 2), [0.0, 4.0, 4.0, 1.0], None),
        (lambda values: below_best(values, 0.75, 2), [0.0, 4.0, 4.0, 1.0], (2.5, 3.0)),
        # Means 1, 3, 1, -6; the deviation of 2 and 4 is √2, and so is that of 0 and 2. Then -4 and 2: 3 √2.
        (lambda values: far_below_best(values, 2.0, 2), [0, 2, 4, -2, -10], (-6.0, 3 - 2 * math.sqrt(2))),
        (lambda values: far_below_best(values, 2.0, 2), [-4, 2, 4, -2, -10], (-6.0, 3 - 6 * math.sqrt(2))),
        (lambda values: far_below_best(values, 2.0, 2), [4, 4, 4, 3.7], None),  # less than a twentieth
    ],
)
def test_rules_hold_where_their_thresholds_say(
    rule: Callable[[Sequence[float]], tuple[float, float] | None],
    values: list[float],
    verdict: tuple[float, float] | None,
) -> None:
    found = rule(values)
    assert found == (verdict if verdict is None else pytest.approx(verdict))


def test_trailing_means_agree_with_a_slow_loop() -> None:
    rng = random.Random(0)
    values = [rng.gauss(0, 1) for _ in range(50)]
    slow = [sum(values[end - 7 : end]) / 7 for end in range(7, 51)]
    assert trailing_means(values, 7) == pytest.approx(slow, abs=1e-12)


def test_a_solved_task_does_not_fall_because_one_rollout_was_not_perfect() -> None:
    """Its best window has no spread: 0.99 after forty times 1 was three standard deviations of nothing below."""
    climbed = [0.2 + 0.02 * place for place in range(40)]
    rows = [{"step": step, "return": value} for step, value in enumerate([*climbed, *[1.0] * 40, 0.99, 1.0, 0.98])]
    assert "return_falls" not in fired(rows)
    fallen = [*climbed, *[1.0] * 40, *[0.0] * 30]
    collapsed = [{"step": step, "return": value} for step, value in enumerate(fallen)]
    assert "return_falls" in fired(collapsed)


def test_a_steady_negative_return_is_no_fall() -> None:
    """0.9 of -50 is more than -50: three spikes of the gradient then were an alert in a run that lost nothing."""
    spiky = [50.0 if place in (60, 65, 70) else 1.0 for place in range(80)]
    rows = [{"step": step, "reward": -50.0 - step % 2, "grad_norm": norm} for step, norm in enumerate(spiky)]
    assert "gradient_spikes" not in fired(rows)
    lost = [{**row, "reward": row["reward"] - 30 * (row["step"] >= 40)} for row in rows]
    assert "gradient_spikes" in fired(lost)


def test_a_bump_that_is_within_the_noise_of_the_long_window_is_no_gain() -> None:
    """Sokoban's walker that stands still had one at rollout 20, and lost a warning that came 12 steps early to it."""
    bump = [0.28, 0.4] * 5 + [0.34, 0.44] * 10
    assert gaining(bump)
    assert not gaining([*bump, *[0.32, 0.36] * 4])


def test_a_run_gains_while_it_holds_most_of_what_it_gained() -> None:
    assert not gaining([0.2] * 17)
    assert gaining([0.2, 0.22] * 5 + [0.5] * 8)
    assert not gaining([0.2, 0.22] * 5 + [0.5] * 8 + [0.3] * 8)
    assert not gaining([0.2, 0.4] * 5 + [0.31] * 8)  # within the noise


def test_the_drop_is_the_first_step_of_the_last_stretch_below() -> None:
    steps = list(range(10, 100, 10))
    assert drop_step(steps, [0.4] * 9) is None
    assert drop_step(steps, [0.4] * 4 + [0.0] * 5) == 40  # 0.27, the mean of 30 to 50
    assert drop_step(steps, [0.4, 0.4, 0.0, 0.0, 0.4, 0.4, 0.4, 0.1, 0.1], window=1) == 80  # it had recovered before
    assert drop_step(steps, [0.4, 0.4, 0.0, 0.0, 0.0, 0.4, 0.4, 0.4, 0.4]) is None
    assert drop_step([], []) is None


def test_an_even_window_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="odd window"):
        drop_step([1], [0.5], window=2)
    with pytest.raises(ValueError, match="2 steps, 1 rates"):
        drop_step([1, 2], [0.5])


def main_job(seed: int) -> Rows:
    """What `make train` logged with this random seed, in the 300 rollouts in which success rose from 0.4 to 0.8."""
    columns = json.loads((ROOT / "tests" / "vectors" / "main_job.json").read_text(encoding="utf-8"))[str(seed)]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("seed", [42, 0])
def test_the_main_job_has_no_alert(seed: int) -> None:
    """`spread_falls` and `echo` fired in it: eight rollouts of hard start states were taken for a loss."""
    rows = main_job(seed)
    assert fmean(row["success"] for row in rows[-20:]) > fmean(row["success"] for row in rows[:10]) + 0.2
    assert fired(rows) == {}


@pytest.mark.parametrize("seed", [42, 0])
def test_a_run_that_learned_and_then_loses_it_is_found(seed: int) -> None:
    """The main job up to rollout 150. Then success falls to 0.1 in 50 rollouts, while groups stay as alike as they are.

    At rollout 165 it has lost 15 % of what it had.
    """
    rng, rows = random.Random(seed), main_job(seed)[:150]
    had = {name: fmean(row[name] for row in rows[-20:]) for name in ("success", "filter/in_group_std")}
    for place in range(1, 101):
        level = max(0.1, had["success"] - (had["success"] - 0.1) * place / 50)
        success = min(1.0, max(0.0, rng.gauss(level, 0.1)))
        rows.append({**rows[149], **had, "step": 150 + place, "success": success, "return": success})
    found = fired(rows)
    assert {"spread_falls", "success_falls"} <= found.keys()
    assert 155 <= found["spread_falls"] <= 175 < found["success_falls"] <= 200


def test_a_solved_task_is_no_echo() -> None:
    """A policy that nearly always succeeds from the first rollout on has little to gain; its replies become alike."""
    rows, _ = STORIES["echo"]
    solved = [{**row, "success": 0.96 + 0.02 * (row["step"] % 2)} for row in rows]
    assert fired(solved) == {}
    assert "echo" in fired([{**row, "success": 0.9} for row in rows])
