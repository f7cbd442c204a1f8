"""What the memory of a plan is counted from: tokens of rows, by hand."""

from typing import Any

import pytest

from ragen_trl.cli.memory_plan import likely_tokens, longest_row, shown_tokens
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.trajectory import Trajectory, Turn


def options(**changes: Any) -> StarPOConfig:
    """Replies of at most 8 tokens, where those of the episodes below have 2."""
    given = {"max_turns": 3, "max_reply_length": 8, "max_completion_length": 90, **changes}
    return StarPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **given)


def turn(prompt: int, context: int | None = None) -> Turn:
    """A turn of so many tokens before a reply of 2."""
    before = None if context is None else (1,) * context
    return Turn((1,) * prompt, (2, 2), (), observation="?", reply="!", reward=0.0, context_ids=before)


def test_a_context_that_grows_is_one_row() -> None:
    episode = Trajectory((turn(10), turn(5), turn(5)), seed=0)
    assert (longest_row(episode), shown_tokens(episode)) == (26, 20)
    assert likely_tokens(options(), [episode], None) == (20 + 3 * 8, 20 + 3 * 8)
    assert likely_tokens(options(max_completion_length=12), [episode], None) == (10 + 12, 10 + 12)
    assert likely_tokens(options(), [episode], 40) == (40, 40)
    endless = options(max_completion_length=None)  # regression: the first prompt alone was counted
    assert likely_tokens(endless, [episode], None) == likely_tokens(options(), [episode], None)
    assert likely_tokens(endless, [], None)[0] == endless.max_turns * endless.max_reply_length
    assert likely_tokens(options(), [], 40) == (40, 40)


def test_a_window_divides_a_trajectory_into_rows() -> None:
    """Regression: the window had no effect on the estimate. The third turn reads an opening of 10 and a reply of 2."""
    episode = Trajectory((turn(10), turn(5), turn(5, context=12)), seed=0)
    assert (longest_row(episode), shown_tokens(episode)) == (19, 17 + 15)
    two_replies_each = 15 + 2 * 8
    assert likely_tokens(options(window_turns=2), [episode], None) == (two_replies_each, 2 * two_replies_each)
    assert likely_tokens(options(window_turns=2), [episode], 30) == (30, 60)
    short = Trajectory((turn(10),), seed=1)  # it ended before the window was full
    assert likely_tokens(options(window_turns=2), [short], None) == (10 + 2 * 8, 10 + 2 * 8)


def test_what_a_function_writes_is_a_row_each_turn() -> None:
    """Regression: the rows were taken for one row as long as all of them, which no rollout holds."""
    episode = Trajectory((turn(10), turn(14, context=0), turn(18, context=0)), seed=0)
    assert (longest_row(episode), shown_tokens(episode)) == (20, 42)
    args = options(context="actions_so_far")
    assert likely_tokens(args, [episode], None) == (18 + 8, 42 + 3 * 8)
    args = options(context="actions_so_far", max_completion_length=10)  # the rows are no part of the completion
    assert likely_tokens(args, [episode], None) == (18 + 8, 42 + 3 * 8)


@pytest.mark.parametrize("window", [2, 3])
def test_the_longest_of_several_episodes_counts(window: int) -> None:
    episodes = [Trajectory((turn(first),), seed=first) for first in (4, 30, 7)]
    assert likely_tokens(options(window_turns=window), episodes, None) == (30 + window * 8, 30 + window * 8)
