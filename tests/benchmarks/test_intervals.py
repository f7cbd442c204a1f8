"""Intervals over a few seeds, by hand."""

import math

import pytest
from findings import intervals


def test_quantiles_of_t_are_those_of_the_tables() -> None:
    known = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 9: 2.2622, 19: 2.0930, 120: 1.9799}
    assert {freedom: round(intervals.t_quantile(freedom), 4) for freedom in known} == known


def test_a_t_interval_is_never_shorter_than_the_evaluations_leave_open() -> None:
    found = intervals.t_interval([0.1, 0.2, 0.3])
    assert (found.mean, found.n) == (pytest.approx(0.2), 3)
    assert found.high - found.mean == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4)
    alike = intervals.t_interval([0.2, 0.2, 0.2], least=0.05)
    assert (alike.low, alike.high) == (pytest.approx(0.15), pytest.approx(0.25))
    with pytest.raises(ValueError, match="1 values have no interval"):
        intervals.t_interval([0.1])


def test_evaluations_leave_less_open_where_start_states_pair() -> None:
    ours, theirs = [[1, 1, 1, 0, 0, 0, 0, 0]], [[1, 1, 0, 0, 0, 0, 0, 0]]
    paired = intervals.start_state_arm(ours, theirs)  # one difference of 1 among eight
    assert paired == pytest.approx(1.96 * (2 - 1 / 10) ** 0.5 / 10, abs=1e-4)
    assert paired < intervals.evaluation_arm([[3 / 8, 2 / 8]], 8)
    assert intervals.evaluation_arm([[1.0, 1.0]], 256) > 0


def test_start_states_on_which_all_agree_leave_something_open() -> None:
    """Regression: two variants that always succeed had an interval without a length."""
    alike = [[1] * 256] * 3
    assert intervals.start_state_arm(alike, alike) == pytest.approx(1.96 / 258, abs=1e-5)


def test_a_baselines_only_evaluation_counts_once_however_many_seeds_are_compared_with_it() -> None:
    """Regression: its variance was divided by the number of seeds, as if each seed had played it again."""
    once = intervals.evaluation_arm([[0.5]], 256)
    found = intervals.above_one([0.7] * 100, 256, 0.5, 256)
    assert found.mean == pytest.approx(0.2) and once < found.high - found.mean < 1.01 * once
    spread = intervals.above_one([0.6, 0.7, 0.8], 256, 0.5, 256)
    seeds = intervals.t_interval([0.6, 0.7, 0.8])
    assert (spread.high - spread.mean) ** 2 == pytest.approx((seeds.high - seeds.mean) ** 2 + once**2)


def test_a_relative_difference_is_the_mean_over_games_with_what_evaluations_leave_open() -> None:
    games = [[(0.6, 0.5)] * 3, [(0.1, 0.2)] * 3]
    found = intervals.relative_interval(games, [256, 256])
    assert (found.mean, found.n) == (pytest.approx((0.2 - 0.5) / 2), 3)  # the ratio of means is 0
    arms = [[intervals.evaluation_arm([[rate]] * 3, 256) for rate in pair] for ((pair, *_)) in games]
    shares = [math.hypot(ours / 0.5, 1.2 * theirs / 0.5) for ours, theirs in arms[:1]]
    shares += [math.hypot(ours / 0.2, 0.5 * theirs / 0.2) for ours, theirs in arms[1:]]
    assert found.high - found.mean == pytest.approx(math.hypot(*shares) / 2)
    apart = [[(0.6, 0.5), (0.9, 0.5)], [(0.1, 0.2), (0.1, 0.2)]]
    residual = (0.9 - 0.75) / 0.5  # of both seeds of the first game, one up and one down
    expected = intervals.t_quantile(1) * residual / 2  # √(2 · residual² / 1 / 2), over two games, one without a spread
    assert intervals.relative_interval(apart, [10**9] * 2).high == pytest.approx((0.5 - 0.5) / 2 + expected)
    alike = intervals.relative_interval([apart[0]] * 2, [10**9] * 2)  # as much spread in both: their freedoms add up
    assert alike.high - alike.mean == pytest.approx(intervals.t_quantile(2) * residual / math.sqrt(2))


def test_the_bootstrap_draws_within_each_group_and_is_the_same_every_time() -> None:
    rows = [[0.0, 0.0], [1.0, 1.0]]  # runs differ between games only
    found = intervals.bootstrap_interval(rows, lambda drawn: sum(map(sum, drawn)) / 4)
    assert (found.low, found.mean, found.high, found.n) == (0.5, 0.5, 0.5, 4)
    spread = [[0.0, 1.0, 2.0, 5.0]]
    twice = [intervals.bootstrap_interval(spread, lambda drawn: max(drawn[0])) for _ in range(2)]
    assert twice[0] == twice[1]


def test_the_interquartile_mean_drops_a_quarter_at_both_ends() -> None:
    assert intervals.interquartile_mean([100.0, 1.0, 2.0, -50.0]) == 1.5
    assert intervals.interquartile_mean([3.0, 4.0, 8.0]) == 5.0  # a quarter of three is none
    assert intervals.performance_profile([0.2, 0.4], [0.1, 0.2, 0.3, 0.4]) == [1.0, 0.5, 0.5, 0.0]
