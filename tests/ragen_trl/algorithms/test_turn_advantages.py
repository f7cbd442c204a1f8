"""GiGPO and MT-GRPO: slow obvious loops over single turns, and identities."""

import math
import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages

SEEDS = range(10)
GROUP = 4
each_seed = pytest.mark.parametrize("seed", SEEDS)
each_scale = pytest.mark.parametrize("scale", ["group", "none"])


@dataclass
class Play:
    """One episode: (state, reward) of each turn, and an outcome."""

    turns: list[tuple[str, float]]
    outcome: float


def some_groups(seed: int, num_groups: int = 3, states: str = "abcd") -> list[Play]:
    """Episodes of one to five turns in few states, which therefore recur, within an episode too."""
    rng = random.Random(seed)
    return [
        Play(
            [(rng.choice(states), rng.choice([0.0, 0.5, 1.0, -0.1])) for _ in range(rng.randint(1, 5))],
            rng.choice([0.0, 1.0]),
        )
        for _ in range(num_groups * GROUP)
    ]


def tensors(plays: list[Play], dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, K) rewards and mask."""
    rewards = torch.zeros(len(plays), max(len(play.turns) for play in plays), dtype=dtype)
    mask = torch.zeros_like(rewards)
    for row, play in enumerate(plays):
        rewards[row, : len(play.turns)] = torch.tensor([reward for _, reward in play.turns], dtype=dtype)
        mask[row, : len(play.turns)] = 1
    return rewards, mask


def anchors(plays: list[Play]) -> list[list[str]]:
    return [[state for state, _ in play.turns] for play in plays]


def gigpo(plays: list[Play], **options: Any) -> torch.Tensor:
    return gigpo_advantages(*tensors(plays), anchors(plays), GROUP, **options)


def mt_grpo(plays: list[Play], **options: Any) -> torch.Tensor:
    outcomes = torch.tensor([play.outcome for play in plays], dtype=torch.float64)
    return mt_grpo_advantages(*tensors(plays), outcomes, GROUP, **options)


def slow_compare(value: float, compared: list[float], ddof: int, eps: float | None) -> float:
    mean = sum(compared) / len(compared)
    if max(abs(other - mean) for other in compared) < 1e-9:
        return 0.0
    std = math.sqrt(sum((other - mean) ** 2 for other in compared) / (len(compared) - ddof))
    return (value - mean) / (1.0 if eps is None else std + eps)


def slow_gigpo(plays: list[Play], gamma: float, weight: float, eps: float | None) -> list[list[float]]:
    found = []
    for row, play in enumerate(plays):
        first = row // GROUP * GROUP
        group = plays[first : first + GROUP]
        totals = [sum(reward for _, reward in other.turns) for other in group]
        of_episode = slow_compare(totals[row - first], totals, 1, eps)
        steps = []
        for k, (state, _) in enumerate(play.turns):
            alike = [
                step_return(other, j, gamma)
                for other in group
                for j, (met, _) in enumerate(other.turns)
                if met == state
            ]
            steps.append(of_episode + weight * slow_compare(step_return(play, k, gamma), alike, 1, eps))
        found.append(steps)
    return found


def step_return(play: Play, start: int, gamma: float) -> float:
    return sum(gamma**j * reward for j, (_, reward) in enumerate(play.turns[start:]))


def slow_mt_grpo(plays: list[Play], weight: float, ddof: int, eps: float) -> list[list[float]]:
    found = []
    for row, play in enumerate(plays):
        group = plays[row // GROUP * GROUP :][:GROUP]
        of_outcome = slow_compare(play.outcome, [other.outcome for other in group], ddof, eps)
        turns = []
        for k, (_, reward) in enumerate(play.turns):
            alike = [other.turns[k][1] for other in group if k < len(other.turns)]
            turns.append(slow_compare(reward, alike, ddof, eps) + weight * of_outcome)
        found.append(turns)
    return found


def assert_turns(found: torch.Tensor, expected: list[list[float]]) -> None:
    for row, wanted in zip(found.tolist(), expected, strict=True):
        assert row == pytest.approx(wanted + [0.0] * (len(row) - len(wanted)), abs=1e-9)


@each_seed
@pytest.mark.parametrize(("scale", "eps"), [("group", 1e-6), ("group", 1e-4), ("none", 1e-6)])
def test_gigpo_agrees_with_a_slow_loop(seed: int, scale: Any, eps: float) -> None:
    plays = some_groups(seed)
    found = gigpo(plays, gamma=0.9, step_weight=0.7, scale=scale, eps=eps)
    assert_turns(found, slow_gigpo(plays, 0.9, 0.7, eps if scale == "group" else None))


@each_seed
@pytest.mark.parametrize("ddof", [0, 1])
def test_mt_grpo_agrees_with_a_slow_loop(seed: int, ddof: int) -> None:
    plays = some_groups(seed)
    assert_turns(mt_grpo(plays, weight=0.7, ddof=ddof), slow_mt_grpo(plays, 0.7, ddof, 1e-4))


@each_seed
@each_scale
def test_gigpo_without_repeated_states_is_the_group_advantage(seed: int, scale: Any) -> None:
    plays = some_groups(seed)
    rewards, mask = tensors(plays)
    unique = [[f"{row}.{k}" for k in range(len(play.turns))] for row, play in enumerate(plays)]
    expected = group_advantages(rewards.sum(dim=1), GROUP, scale=scale)[:, None] * mask
    found = gigpo_advantages(rewards, mask, unique, GROUP, scale=scale)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(gigpo(plays, scale=scale, step_weight=0.0), expected, atol=1e-12, rtol=0)


@each_seed
@pytest.mark.parametrize("estimate", [gigpo, mt_grpo])
def test_a_group_does_not_see_the_others(seed: int, estimate: Any) -> None:
    """The same state in another prompt's group is another state."""
    plays = some_groups(seed)
    together = estimate(plays)
    for first in range(0, len(plays), GROUP):
        alone = estimate(plays[first : first + GROUP])
        torch.testing.assert_close(together[first : first + GROUP, : alone.shape[1]], alone, atol=1e-12, rtol=0)


@each_seed
@pytest.mark.parametrize("estimate", [gigpo, mt_grpo])
def test_reordering_a_groups_members_reorders_their_advantages(seed: int, estimate: Any) -> None:
    plays = some_groups(seed)
    order = [1, 3, 0, 2, *range(GROUP, len(plays))]
    there = estimate(plays)[order]
    torch.testing.assert_close(estimate([plays[row] for row in order]), there, atol=1e-12, rtol=0)


@each_seed
@each_scale
def test_the_step_part_of_a_state_sums_to_zero(seed: int, scale: Any) -> None:
    plays = some_groups(seed, num_groups=1)
    steps = gigpo(plays, scale=scale) - gigpo(plays, scale=scale, step_weight=0.0)
    sums = dict.fromkeys("abcd", 0.0)
    for row, play in enumerate(plays):
        for k, (state, _) in enumerate(play.turns):
            sums[state] += steps[row, k].item()
    assert list(sums.values()) == pytest.approx([0.0] * 4, abs=1e-9)


def test_a_states_name_does_not_matter() -> None:
    plays = some_groups(0)
    numbers = [[(7, "abcd".index(state)) for state in row] for row in anchors(plays)]
    renamed = gigpo_advantages(*tensors(plays), numbers, GROUP)
    assert renamed.tolist() == gigpo(plays).tolist()


def test_turns_of_an_unequal_number_are_compared_with_those_there_are() -> None:
    """By hand: second turns 0.2 and 0.6, mean 0.4; the third has no other; outcomes 1, 0, 0, 1 with mean 0.5."""
    plays = [
        Play([("", 1.0), ("", 0.2)], 1.0),
        Play([("", 0.0), ("", 0.6), ("", 5.0)], 0.0),
        Play([("", 0.0)], 0.0),
        Play([("", 1.0)], 1.0),
    ]
    found = mt_grpo(plays, weight=1.0, eps=0.0)
    first, second = 0.5 / math.sqrt(1 / 3), 0.2 / math.sqrt(0.08)
    expected = [[2 * first, first - second], [-2 * first, second - first, -first], [-2 * first], [2 * first]]
    assert_turns(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rewards_equal_up_to_rounding_give_exactly_zero(dtype: torch.dtype) -> None:
    """Regression: 0.1 + 0.2 against 0.3 is a spread of rounding alone, which a division would blow up to one."""
    rewards = torch.tensor([[0.1 + 0.2], [0.3], [0.3], [0.3]], dtype=dtype)
    mask, states = torch.ones(4, 1), [["s"]] * 4
    assert gigpo_advantages(rewards, mask, states, 4, eps=0.0).tolist() == [[0.0]] * 4
    assert mt_grpo_advantages(rewards, mask, rewards[:, 0], 4, eps=0.0).tolist() == [[0.0]] * 4
    assert gigpo_advantages(rewards, mask, states, 4).dtype == dtype
    assert mt_grpo_advantages(rewards, mask, rewards[:, 0], 4).dtype == dtype


def test_what_stands_in_turns_that_were_not_played_does_not_matter_to_mt_grpo() -> None:
    plays = some_groups(1)
    rewards, mask = tensors(plays)
    outcomes = torch.tensor([play.outcome for play in plays], dtype=torch.float64)
    garbage = rewards.masked_fill(mask == 0, float("nan"))
    assert mt_grpo_advantages(garbage, mask, outcomes, GROUP).tolist() == mt_grpo(plays).tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"anchors": [["a", "b"]]}, "1 rows of anchors for 2 trajectories"),
        ({"anchors": [["a", "b"], ["a", "b"]]}, "row 1 has 2 anchors for 1 turns; give one per played turn"),
        ({"turn_rewards": torch.ones(2, 2)}, "reward 1 at row 1, column 1 is masked out"),
        ({"turn_rewards": torch.zeros(2, 3)}, r"have shapes \[\(2, 3\), \(2, 3\), \(2, 2\)\]"),
        ({"scale": "batch"}, "scale is 'batch'; choose 'group' or 'none'"),
        ({"group_size": 1}, "group_size is 1"),
    ],
)
def test_gigpo_names_what_does_not_fit(changed: dict[str, Any], message: str) -> None:
    fitting = {
        "turn_rewards": torch.zeros(2, 2),
        "turn_mask": torch.tensor([[1, 1], [1, 0]]),
        "anchors": [["a", "b"], ["a"]],
        "group_size": 2,
    }
    with pytest.raises(ValueError, match=message):
        gigpo_advantages(**{**fitting, **changed})


@pytest.mark.parametrize(
    ("shapes", "group_size", "message"),
    [
        (((4, 2), (4, 2), (4, 1)), 2, r"have shapes \[\(4, 2\), \(4, 2\), \(4, 1\)\]"),
        (((4, 2), (4, 1), (4,)), 2, r"have shapes \[\(4, 2\), \(4, 1\), \(4,\)\]"),
        (((4, 2), (4, 2), (4,)), 3, "4 returns do not divide into groups of 3"),
    ],
)
def test_mt_grpo_names_what_does_not_fit(shapes: Any, group_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mt_grpo_advantages(torch.zeros(shapes[0]), torch.zeros(shapes[1]), torch.zeros(shapes[2]), group_size)
