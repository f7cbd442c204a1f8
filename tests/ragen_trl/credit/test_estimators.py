"""Credit: every estimator's advantages stand at the right tokens, worked by hand on two trajectories; and the filter.

Columns of completions, which begin after the first prompt (e an environment token, a a sampled one, . padding)::

    LONG   a a e a    rewards 0.5 after the second column of a, 1.0 after the last
    SHORT  a a a .    reward -1.0 after the last
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from ragen_trl import StarPOConfig
from ragen_trl.algorithms.advantages import whiten
from ragen_trl.batching.batch import turn_columns
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.credit.estimators import (
    advantages_in_groups,
    critic_advantages,
    critic_credit,
    goes_on,
    uncertain_groups,
)
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import made_up, on_cpu, rollout_of

LONG = made_up((2, 2, 0.5), (1, 1, 1.0), states=["start", "left"], terminated=False, truncated=True, limit="context")
SHORT = made_up((1, 3, -1.0), states=["start"])
# 99 at environment tokens: no estimator may read what the critic says there.
VALUES = torch.tensor([[0.1, 0.2, 99.0, 0.3], [0.5, 0.5, 0.5, 0.0]])
TURNS = torch.tensor([[0, 0, -1, 1], [0, 0, 0, -1]])
AFTER = torch.tensor([0.4, 0.0])  # LONG was cut off by the context


class FakeCritic:
    """Says what it is told to, and learns nothing."""

    def __init__(self, values: torch.Tensor = VALUES, after: torch.Tensor = AFTER, total: Any = None) -> None:
        self._values, self._after, self.total = values, after, total

    def values(self, trajectories: Sequence[Trajectory], bootstrap: Sequence[bool]) -> tuple[torch.Tensor, ...]:
        return self._values, self._after * torch.tensor(bootstrap)

    def update(self, trajectories: Sequence[Trajectory], *lesson: Any) -> dict[str, float]:
        return {}


def credit_of(advantage: str, **options: float) -> Any:
    """The advantages of both trajectories, by their own rewards."""
    rewards = torch.tensor([[0.5, 1.0], [-1.0, 0.0]])
    assert torch.equal(turn_columns([LONG, SHORT]), TURNS)
    return critic_credit(TURNS, rewards, VALUES, AFTER, on_cpu(advantage=advantage, **options))


def test_token_gae_by_hand() -> None:
    """γ = λ = 0.5. LONG from the end: 1 + 0.2 - 0.3 = 0.9; 0.5 + 0.15 - 0.2 + 0.9 / 4; 0 + 0.1 - 0.1 + 0.675 / 4."""
    advantages, targets, mask = credit_of("gae", gamma=0.5, gae_lambda=0.5)
    expected = [[0.16875, 0.675, 0, 0.9], [-0.40625, -0.625, -1.5, 0]]
    torch.testing.assert_close(advantages, torch.tensor(expected))
    torch.testing.assert_close(targets, torch.tensor([[0.26875, 0.875, 0, 1.2], [0.09375, -0.125, -1.0, 0]]))
    assert mask.int().tolist() == [[1, 1, 0, 1], [1, 1, 1, 0]]


def test_turn_gae_by_hand_trains_one_token_a_turn() -> None:
    """γ = 0.5 and λ = 1 per turn, from the values 0.1 and 0.3 where the replies of LONG begin."""
    advantages, targets, mask = credit_of("turn_gae", turn_gamma=0.5, turn_lambda=1.0)
    expected = [[1.0, 1.0, 0, 0.9], [-1.5, -1.5, -1.5, 0]]  # 0.5 + 0.15 - 0.1 + 0.9 / 2 = 1
    torch.testing.assert_close(advantages, torch.tensor(expected))
    assert mask.int().tolist() == [[1, 0, 0, 1], [1, 0, 0, 0]]
    torch.testing.assert_close(targets[mask], torch.tensor([1.1, 1.2, -1.0]))  # advantage + value


def test_bi_level_gae_by_hand() -> None:
    """γ between turns 1, within them 0.5, λ = 0.5. LONG: 1 + 0.4 - 0.3; 0.5 + 0.3 - 0.2 + 1.1 / 2; 0.1 - 0.1 + /4."""
    advantages, targets, mask = credit_of("bi_level_gae", turn_gamma=1.0, gamma=0.5, gae_lambda=0.5)
    expected = torch.tensor([[0.2875, 1.15, 0, 1.1], [-0.40625, -0.625, -1.5, 0]])
    torch.testing.assert_close(advantages, expected)
    torch.testing.assert_close(targets, (expected + VALUES) * mask)
    assert torch.equal(mask, TURNS >= 0)


def test_advantages_are_whitened_over_the_sampled_tokens_of_all_processes() -> None:
    """Each process whitens its own row by the moments of both."""
    args = on_cpu(advantage="gae")
    expected = whiten(credit_of("gae")[0], TURNS >= 0)
    moments: list[torch.Tensor] = []

    def run(process: int, total: Any) -> torch.Tensor:
        width = 4 if process == 0 else 3
        critic = FakeCritic(VALUES[process : process + 1, :width], AFTER[process : process + 1], total)
        rollout = rollout_of([LONG, SHORT], 2, processes=2, process=process)
        return critic_advantages(critic, rollout, args, seed=0)[0]  # type: ignore[arg-type]

    for process in (0, 1):
        run(process, lambda local: moments.append(local) or local)
    both = sum(moments)
    torch.testing.assert_close(run(0, lambda _: both), expected[:1])
    torch.testing.assert_close(run(1, lambda _: both), expected[1:, :3])


@pytest.mark.parametrize("limit", ["turns", "actions", "env", "context", "crash", "timeout"])
@pytest.mark.parametrize("bootstrap", ["unseen", "all", "none"])
def test_which_ends_are_valued(limit: str, bootstrap: str) -> None:
    for told in (False,) if limit == "context" else (True, False):  # calls of tools are told of no limit
        cut = made_up((1, 1, 0.0), terminated=False, truncated=True, limit=limit)
        cut = replace(cut, turns=(replace(cut.turns[0], info={"limit_is_told": told}),))
        valued = bootstrap == "all" or (bootstrap == "unseen" and not told)
        assert goes_on(cut, bootstrap) == (valued and limit not in ("crash", "timeout"))  # then there is no state
    assert not goes_on(made_up((1, 1, 0.0)), bootstrap)
    both = made_up((1, 1, 0.0), terminated=True, truncated=True, limit=limit)  # the task's end is an end
    assert not goes_on(both, bootstrap)


def test_gigpo_by_hand() -> None:
    """Returns 1.5 and -1: ±1.25 as whole episodes. From "start" the step returns are 0.5 + 0.5 · 1 and -1: ±1."""
    args = on_cpu(advantage="gigpo", turn_gamma=0.5, step_weight=2.0, scale_rewards="none")
    columns = advantages_in_groups(rollout_of([LONG, SHORT], 2), args)
    torch.testing.assert_close(columns, torch.tensor([[3.25, 3.25, 0.0, 1.25], [-3.25, -3.25, -3.25, 0.0]]))


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
    found = advantages_in_groups(rollout_of(played, 4), on_cpu(advantage="mt_grpo", step_weight=0.5))
    first, later, outcome = 2 / 3**0.5, -1 / 3**0.5, 0.5 * 3**0.5 / 2
    expected = [
        [first + outcome, 0.0, outcome],
        [outcome, 0.0, 0.0],
        [later - outcome, 0.0, -outcome],
        [later - outcome, 0.0, -outcome],
    ]
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-3, rtol=0)


# Which groups are trained on


def of_groups(groups: int, **options: Any) -> StarPOConfig:
    """A rollout of so many groups of 2."""
    size = {"per_device_train_batch_size": 2 * groups, "gradient_accumulation_steps": 1, "num_generations": 2}
    return on_cpu(**size, **options)


def groups_of(spreads: list[float], envs: str = "") -> RolloutBatch:
    """Groups of two whose returns differ by so much, in environments named by letters."""
    played = [made_up((1, 1, reward)) for spread in spreads for reward in (0.0, spread)]
    names = [name for name in envs for _ in range(2)] or None
    return rollout_of(played, 2, envs=names)


def test_the_most_uncertain_groups_by_hand() -> None:
    rollout = groups_of([1.0, 0.0, 3.0, 2.0])
    assert uncertain_groups(rollout, of_groups(4, filter_ratio=0.5)) == [2, 3]
    assert uncertain_groups(rollout, of_groups(4, filter_ratio=0.25)) == [2]
    assert uncertain_groups(rollout, of_groups(4)) == [0, 1, 2, 3]
    share = of_groups(4, filter_strategy="top_p", filter_ratio=0.8)  # 3 + 2 of 6 are more than 0.8 of the spread
    assert uncertain_groups(rollout, share) == [2, 3]


def test_environments_are_filtered_apart() -> None:
    """What pays a hundred times as much would otherwise be all that is trained on."""
    rollout = groups_of([1.0, 300.0, 2.0, 100.0, 3.0, 200.0], "abaaab")
    assert rollout.group_tasks == [0, 1, 0, 0, 0, 1]
    kept = uncertain_groups(rollout, of_groups(6, filter_ratio=0.5))
    assert kept == [1, 3, 4]  # of four the best two, of two the best one


def test_groups_of_refills_compete_for_the_places_of_one_rollout() -> None:
    """4 groups a rollout, half of which are trained on; 12 were sampled."""
    spreads = [1.0, 0.0, 0.0, 0.0, 0.5, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0]
    args = of_groups(4, filter_ratio=0.5, max_refills=2)
    assert uncertain_groups(groups_of(spreads[:4]), args) == [0]
    assert uncertain_groups(groups_of(spreads[:8]), args) == [0, 5]
    assert uncertain_groups(groups_of(spreads), args) == [5, 10]


@pytest.mark.parametrize("ratio", [0.25, 0.4, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("envs", ["aaaaaaaa", "aaaabbbb", "aaaaaabb", "aaabbbcc"])
def test_where_every_group_has_spread_a_rollout_needs_no_refill(envs: str, ratio: float) -> None:
    """Regression: shares were rounded down in every environment, so that their sum never reached what was wanted."""
    args = of_groups(8, filter_ratio=ratio, max_refills=1)
    kept = uncertain_groups(groups_of([1.0 + place for place in range(8)], envs), args)
    assert len(kept) >= args.groups_per_update
