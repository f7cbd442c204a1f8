"""Credit: every estimator's advantages stand at the right tokens, worked by hand on two trajectories.

Columns as ``collate`` pads them (e an environment token, a a sampled one, . padding)::

    LONG   e e a a e a    rewards 0.5 after the second column of a, 1.0 after the last
    SHORT  e a a a . .    reward -1.0 after the last
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from ragen_trl import StarPOConfig
from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from ragen_trl.batching.batch import collate
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.credit.estimators import (
    critic_advantages,
    critic_credit,
    goes_on,
    trajectory_advantages,
    turn_advantages,
)
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import made_up, rollout_of

LONG = made_up((2, 2, 0.5), (1, 1, 1.0), states=["start", "left"], terminated=False, truncated=True, limit="context")
SHORT = made_up((1, 3, -1.0), states=["start"])
# 99 at environment tokens: no estimator may read what the critic says there.
VALUES = torch.tensor([[99.0, 99.0, 0.1, 0.2, 99.0, 0.3], [99.0, 0.5, 0.5, 0.5, 0.0, 0.0]])
AFTER = torch.tensor([0.4, 0.0])  # LONG was cut off by the context


def config(**options: Any) -> StarPOConfig:
    return StarPOConfig(output_dir="unused", **{"bf16": False, "use_cpu": True, "report_to": "none", **options})


class FakeCritic:
    """Says what it is told to and keeps what it is taught."""

    def __init__(self, values: torch.Tensor = VALUES, after: torch.Tensor = AFTER) -> None:
        self._values, self._after = values, after
        self.asked: list[bool] = []
        self.lessons: list[tuple[Any, ...]] = []

    def values(self, trajectories: Sequence[Trajectory], bootstrap: Sequence[bool]) -> tuple[torch.Tensor, ...]:
        self.asked = list(bootstrap)
        return self._values, self._after * torch.tensor(self.asked)

    def update(self, trajectories: Sequence[Trajectory], *lesson: Any) -> dict[str, float]:
        self.lessons.append(lesson)
        return {"critic/value_loss": 0.25}


def credit_of(advantage: str, **options: float) -> Any:
    """The advantages of both trajectories, by their own rewards."""
    rewards = torch.tensor([[0.5, 1.0], [-1.0, 0.0]])
    return critic_credit([LONG, SHORT], rewards, VALUES, AFTER, config(advantage=advantage, **options))


def test_token_gae_by_hand() -> None:
    """γ = λ = 0.5. LONG from the end: 1 + 0.2 - 0.3 = 0.9; 0.5 + 0.15 - 0.2 + 0.9 / 4; 0 + 0.1 - 0.1 + 0.675 / 4."""
    credit = credit_of("gae", gamma=0.5, gae_lambda=0.5)
    advantages = [[0, 0, 0.16875, 0.675, 0, 0.9], [0, -0.40625, -0.625, -1.5, 0, 0]]
    torch.testing.assert_close(credit.advantages, torch.tensor(advantages))
    targets = [[0, 0, 0.26875, 0.875, 0, 1.2], [0, 0.09375, -0.125, -1.0, 0, 0]]
    torch.testing.assert_close(credit.targets, torch.tensor(targets))
    acted = [[0, 0, 1, 1, 0, 1], [0, 1, 1, 1, 0, 0]]
    assert credit.mask.int().tolist() == credit.action_mask.int().tolist() == acted


def test_turn_gae_by_hand_trains_one_token_a_turn() -> None:
    """γ = 0.5 and λ = 1 per turn, from the values 0.1 and 0.3 where the replies of LONG begin."""
    credit = credit_of("turn_gae", turn_gamma=0.5, turn_lambda=1.0)
    advantages = [[0, 0, 1.0, 1.0, 0, 0.9], [0, -1.5, -1.5, -1.5, 0, 0]]  # 0.5 + 0.15 - 0.1 + 0.9 / 2 = 1
    torch.testing.assert_close(credit.advantages, torch.tensor(advantages))
    assert credit.mask.int().tolist() == [[0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0]]
    assert credit.action_mask.int().tolist() == [[0, 0, 1, 1, 0, 1], [0, 1, 1, 1, 0, 0]]
    torch.testing.assert_close(credit.targets[credit.mask], torch.tensor([1.1, 1.2, -1.0]))  # advantage + value


def test_bi_level_gae_by_hand() -> None:
    """γ between turns 1, within them 0.5, λ = 0.5. LONG: 1 + 0.4 - 0.3; 0.5 + 0.3 - 0.2 + 1.1 / 2; 0.1 - 0.1 + /4."""
    credit = credit_of("bi_level_gae", turn_gamma=1.0, gamma=0.5, gae_lambda=0.5)
    advantages = [[0, 0, 0.2875, 1.15, 0, 1.1], [0, -0.40625, -0.625, -1.5, 0, 0]]
    torch.testing.assert_close(credit.advantages, torch.tensor(advantages))
    torch.testing.assert_close(credit.targets, (torch.tensor(advantages) + VALUES) * credit.action_mask)
    assert torch.equal(credit.mask, credit.action_mask)


@pytest.mark.parametrize("advantage", ["gae", "turn_gae", "bi_level_gae"])
def test_completion_columns_begin_behind_the_first_prompt(advantage: str) -> None:
    """LONG's first prompt has two tokens, SHORT's one; TRL's completions are 4 columns wide."""
    critic, args = FakeCritic(), config(advantage=advantage, whiten_advantages=False)
    rollout = rollout_of([LONG, SHORT], 2)
    columns, metrics = critic_advantages(critic, rollout, args, lambda local: local, seed=3)  # type: ignore[arg-type]
    rewards = rollout.turn_rewards()[0]
    whole = critic_credit([LONG, SHORT], rewards, VALUES, AFTER, args)
    expected = torch.stack([whole.advantages[0, 2:6], torch.cat([whole.advantages[1, 1:4], torch.zeros(1)])])
    assert torch.equal(columns, expected)
    assert columns[0, 2] == columns[1, 3] == 0
    assert metrics == {"critic/value_loss": 0.25}
    (lesson,) = critic.lessons
    for given, wanted in zip(lesson, (whole.targets, whole.mask, VALUES), strict=False):
        assert torch.equal(given, wanted)
    assert lesson[3:] == (0.5, 4, 1, 3)  # value_clip, minibatches, epochs, seed


def test_the_critic_takes_a_step_for_each_of_the_policy() -> None:
    critic = FakeCritic()
    args = config(advantage="gae", steps_per_generation=8, gradient_accumulation_steps=4, num_iterations=3)
    critic_advantages(critic, rollout_of([LONG, SHORT], 2), args, lambda local: local, seed=0)  # type: ignore[arg-type]
    assert critic.lessons[0][4:6] == (2, 3)


def test_advantages_are_whitened_over_the_sampled_tokens_of_all_processes() -> None:
    """Each process whitens its own row by the moments of both."""
    args = config(advantage="gae")
    whole = critic_credit([LONG, SHORT], torch.tensor([[0.5, 1.0], [-1.0, 0.0]]), VALUES, AFTER, args)
    expected = whiten(whole.advantages, whole.action_mask)
    moments: list[torch.Tensor] = []

    def run(process: int, total: Any) -> torch.Tensor:
        width = 6 if process == 0 else 4
        critic = FakeCritic(VALUES[process : process + 1, :width], AFTER[process : process + 1])
        rollout = rollout_of([LONG, SHORT], 2, processes=2, process=process)
        return critic_advantages(critic, rollout, args, total, seed=0)[0]  # type: ignore[arg-type]

    for process in (0, 1):
        run(process, lambda local: moments.append(local) or local)
    both = sum(moments)
    torch.testing.assert_close(run(0, lambda _: both), expected[:1, 2:6])
    torch.testing.assert_close(run(1, lambda _: both), expected[1:, 1:4])


@pytest.mark.parametrize("advantage", ["gae", "turn_gae", "bi_level_gae", "gigpo", "mt_grpo"])
def test_a_process_none_of_whose_groups_were_kept_has_no_rows(advantage: str) -> None:
    """It takes part in the critic's update all the same, or the other processes would wait for it."""
    args = config(advantage=advantage)
    chosen = rollout_of([LONG, SHORT] * 2, 2, processes=2, process=1).select([0])
    assert chosen.trajectories == []
    if advantage in ("gigpo", "mt_grpo"):
        columns = turn_advantages(chosen, args)
    else:
        critic = FakeCritic(torch.zeros(0, 0), torch.zeros(0))
        columns, _ = critic_advantages(critic, chosen, args, lambda local: local, seed=0)  # type: ignore[arg-type]
        assert len(critic.lessons) == 1
    assert columns.shape == (0, chosen.completion_length)


@pytest.mark.parametrize("limit", ["turns", "actions", "env", "context"])
@pytest.mark.parametrize("bootstrap", ["unseen", "all", "none"])
def test_which_ends_are_valued(limit: str, bootstrap: str) -> None:
    for told in (False,) if limit == "context" else (True, False):  # calls of tools are told of no limit
        cut = made_up((1, 1, 0.0), terminated=False, truncated=True, limit=limit)
        cut = replace(cut, turns=(replace(cut.turns[0], info={"limit_is_told": told}),))
        assert goes_on(cut, bootstrap) == (bootstrap == "all" or (bootstrap == "unseen" and not told))
    assert not goes_on(made_up((1, 1, 0.0)), bootstrap)
    both = made_up((1, 1, 0.0), terminated=True, truncated=True, limit=limit)  # the task's end is an end
    assert not goes_on(both, bootstrap)


@pytest.mark.parametrize(("bootstrap", "asked"), [("unseen", [True, False]), ("none", [False, False])])
def test_only_an_end_that_is_valued_is_asked_of_the_critic(bootstrap: str, asked: list[bool]) -> None:
    critic, args = FakeCritic(), config(advantage="gae", bootstrap=bootstrap, whiten_advantages=False)
    columns, _ = critic_advantages(critic, rollout_of([LONG, SHORT], 2), args, lambda local: local, seed=0)  # type: ignore[arg-type]
    assert critic.asked == asked
    # γ = λ = 1: what follows LONG's last token is its reward, and 0.4 where the end is valued; its value is 0.3.
    assert columns[0, 3].item() == pytest.approx(1.0 - 0.3 + (0.4 if asked[0] else 0.0))


def spread(turns: torch.Tensor, rollout: RolloutBatch) -> torch.Tensor:
    """(L, T) by a slow loop: what a turn has goes to all its tokens, from after the first prompt on."""
    columns = torch.zeros(len(rollout.trajectories), rollout.completion_length)
    for place, row in enumerate(rollout.local_indices):
        trajectory = rollout.trajectories[place]
        first = len(trajectory.turns[0].prompt_ids)
        for column, turn in enumerate(trajectory.turn_ids[first:]):
            if turn >= 0:
                columns[place, column] = turns[row, turn]
    return columns


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("extra", [(), ([1.0, 0.0, 2.0, -1.0],)])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_gigpo_gives_every_token_what_its_turn_has(process: int, extra: Any, scale: str) -> None:
    """The second process holds the second half of each pair of trajectories; all states of the group are compared."""
    played = [LONG, SHORT, SHORT, LONG]
    rollout = rollout_of(played, 4, processes=2, process=process, extra=extra)
    args = config(advantage="gigpo", turn_gamma=0.5, step_weight=2.0, scale_rewards=scale)
    rewards, mask = rollout.turn_rewards()
    states = [["start", "left"], ["start"], ["start"], ["start", "left"]]
    turns = gigpo_advantages(rewards, mask, states, 4, 0.5, 2.0, scale)  # type: ignore[arg-type]
    torch.testing.assert_close(turn_advantages(rollout, args), spread(turns, rollout))
    assert turns.abs().max() > 0.5


def test_gigpo_by_hand() -> None:
    """Returns 1.5 and -1: ±1.25 as whole episodes. From "start" the step returns are 0.5 + 0.5 · 1 and -1: ±1."""
    args = config(advantage="gigpo", turn_gamma=0.5, step_weight=2.0, scale_rewards="none")
    columns = turn_advantages(rollout_of([LONG, SHORT], 2), args)
    torch.testing.assert_close(columns, torch.tensor([[3.25, 3.25, 0.0, 1.25], [-3.25, -3.25, -3.25, 0.0]]))


def test_mt_grpo_gives_every_token_what_its_turn_has() -> None:
    """The outcomes are the last turns' rewards with half of the extra ones: 1.5, -1, 0 and 0.5."""
    rollout = rollout_of([LONG, SHORT, SHORT, LONG], 4, extra=([1.0, 0.0, 2.0, -1.0],), weights=[1.0, 0.5])
    outcomes = torch.tensor([1.5, -1.0, 0.0, 0.5])
    earlier = torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0], [0.5, 0.0]])
    before_last = torch.tensor([[True, False], [False, False], [False, False], [True, False]])
    turns = mt_grpo_advantages(earlier, rollout.turn_rewards()[1], outcomes, 4, 0.25, compared=before_last)
    args = config(advantage="mt_grpo", step_weight=0.25)
    torch.testing.assert_close(turn_advantages(rollout, args), spread(turns, rollout))


def test_mt_grpo_pays_an_outcome_once() -> None:
    """Worked by hand, ε = 0 up to 1e-4. Two of four win 1 in their last turn; one paid 0.2 for its first turn.

    The outcomes 1, 1, 0, 0 have mean ½ and std 1/√3: ±0.866. First turns that are not last earned 0.2, 0 and 0: mean
    1/15, std 0.2/√3, so 1.1547, −0.5774 and −0.5774. A last turn has the outcome's part alone: before, a win was in
    the turn's part as well, and the first winner's last turn got 0.866 + 0.866 from one reward.
    """
    played = [
        made_up((1, 1, 0.2), (1, 1, 1.0)),
        made_up((1, 1, 1.0)),
        made_up((1, 1, 0.0), (1, 1, 0.0)),
        made_up((1, 1, 0.0), (1, 1, 0.0)),
    ]
    found = turn_advantages(rollout_of(played, 4), config(advantage="mt_grpo", step_weight=0.5))
    first, later, outcome = 2 / 3**0.5, -1 / 3**0.5, 0.5 * 3**0.5 / 2
    expected = [
        [first + outcome, 0.0, outcome],
        [outcome, 0.0, 0.0],
        [later - outcome, 0.0, -outcome],
        [later - outcome, 0.0, -outcome],
    ]
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-3, rtol=0)


def test_rewards_are_summed_and_then_normalised_by_hand() -> None:
    """Returns 1, 0, 0, 0 and 0.25 · (0, 4, 0, 0): with a standard deviation of 1 / √3."""
    played = [made_up((1, 1, reward)) for reward in (1.0, 0.0, 0.0, 0.0)]
    rollout = rollout_of(played, 4, extra=[[0.0, 4.0, 0.0, 0.0]], weights=[1.0, 0.25])
    advantages = trajectory_advantages(rollout, config()).tolist()
    assert advantages == pytest.approx([0.866024] * 2 + [-0.866024] * 2, abs=2e-6)
    left_out = trajectory_advantages(rollout, config(baseline="leave_one_out", scale_rewards="none")).tolist()
    assert left_out == pytest.approx([2 / 3, 2 / 3, -2 / 3, -2 / 3])


def test_rewards_are_normalised_and_then_summed_by_hand() -> None:
    """Each function ±1/√2 in its group; 1 · (1, -1)/√2 - 3 · (1, -1)/√2 = (-√2, √2), over the batch ±1/√2."""
    played = [made_up((1, 1, 10.0)), made_up((1, 1, 0.0))]
    rollout = rollout_of(played, 2, extra=[[0.0, 0.5]], weights=[1.0, 3.0])
    args = config(multi_objective_aggregation="normalize_then_sum")
    assert trajectory_advantages(rollout, args).tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=2e-4)


def test_normalised_and_then_summed_agrees_with_trls_formula_where_rewards_are_missing() -> None:
    """A function is normalised over the members that it gave something; the others get 0 of it."""
    nan = float("nan")
    environment, extra = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0], [0.5, nan, 2.0, 1.0, nan, nan, nan, nan]
    played = [made_up((1, 1, reward)) for reward in environment]
    rollout = rollout_of(played, 4, extra=[extra], weights=[1.0, 2.0])
    totals = torch.zeros(8)
    for column, weight in ((environment, 1.0), (extra, 2.0)):
        for first in (0, 4):
            members = [row for row in range(first, first + 4) if column[row] == column[row]]
            if members:
                given = torch.tensor([column[row] for row in members])
                for row in members:
                    totals[row] += weight * (column[row] - given.mean()) / (given.std() + 1e-4)
    expected = (totals - totals.mean()) / (totals.std() + 1e-4)
    found = trajectory_advantages(rollout, config(multi_objective_aggregation="normalize_then_sum"))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0.0)


def test_group_advantages_are_those_of_the_raw_returns() -> None:
    rollout = rollout_of([LONG, SHORT, SHORT, LONG], 2)
    expected = group_advantages(torch.tensor([1.5, -1.0, -1.0, 1.5]), 2)
    assert torch.equal(trajectory_advantages(rollout, config()), expected)


def test_the_columns_of_this_file_are_those_of_collate() -> None:
    assert collate([LONG, SHORT], 0)["action_mask"].tolist() == [[0, 0, 1, 1, 0, 1], [0, 1, 1, 1, 0, 0]]
