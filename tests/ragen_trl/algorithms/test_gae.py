"""GAE beyond the vectors: a slow obvious loop over both levels of single episodes, and the Monte Carlo return."""

import random
from dataclasses import dataclass

import pytest
import torch

from ragen_trl.algorithms.gae import bi_level_gae, gae

NAN = float("nan")

each_seed = pytest.mark.parametrize("seed", range(8))


@dataclass
class Episode:
    """What a loop over one episode needs: rewards of its turns, and the turn and value of each of its tokens."""

    rewards: list[float]
    turn_ids: list[int]
    values: list[float]
    bootstrap: float

    def actions(self) -> list[tuple[int, float]]:
        """(turn, value) of each action token."""
        return [(k, value) for k, value in zip(self.turn_ids, self.values, strict=True) if k >= 0]


def some_episode(rng: random.Random) -> Episode:
    """Environment tokens carry no number that may count; about half of the turns earn nothing."""
    rewards: list[float] = []
    turn_ids: list[int] = []
    for k in range(rng.randint(1, 4)):
        turn_ids += [-1] * rng.randint(0, 3)
        for _ in range(rng.randint(1, 4)):
            turn_ids += [k] + [-1] * rng.choice([0, 0, 1])  # inside replies too, where a cut one would be closed
        rewards.append(rng.choice([0.0, rng.uniform(-1, 1)]))
    values = [rng.uniform(-1, 1) if k >= 0 else rng.choice([NAN, float("inf"), -1e30]) for k in turn_ids]
    return Episode(rewards, turn_ids, values, rng.choice([0.0, rng.uniform(-1, 1)]))


def some_batch(seed: int) -> list[Episode]:
    rng = random.Random(seed)
    return [some_episode(rng) for _ in range(5)]


def padded(rows: list[list[float]], filler: float) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows], dtype=torch.float64)


def tensors(batch: list[Episode]) -> dict[str, torch.Tensor]:
    """The arguments of `bi_level_gae` without its discounts."""
    return {
        "turn_rewards": padded([episode.rewards for episode in batch], 0.0),
        "values": padded([episode.values for episode in batch], NAN),
        "turn_ids": padded([[float(k) for k in episode.turn_ids] for episode in batch], -1).long(),
        "bootstrap": torch.tensor([episode.bootstrap for episode in batch], dtype=torch.float64),
    }


def token_rewards(batch: list[Episode]) -> torch.Tensor:
    """(B, T), each turn's reward on its last token."""
    rows = []
    for episode in batch:
        ends = {k: position for position, k in enumerate(episode.turn_ids)}
        places = enumerate(episode.turn_ids)
        rows.append([episode.rewards[k] if k >= 0 and ends[k] == position else 0.0 for position, k in places])
    return padded(rows, 0.0)


def token_level(batch: list[Episode], gamma: float, lam: float) -> tuple[torch.Tensor, torch.Tensor]:
    given = tensors(batch)
    mask = given["turn_ids"] >= 0
    return gae(token_rewards(batch), given["values"], mask, gamma, lam, given["bootstrap"])


def at_actions(batch: list[Episode], dense: torch.Tensor) -> list[list[float]]:
    """The numbers at action tokens; all others must be exactly 0."""
    mask = tensors(batch)["turn_ids"] >= 0
    assert (dense[~mask] == 0).all()
    return [row[on].tolist() for row, on in zip(dense, mask, strict=True)]


def of_actions(batch: list[Episode], advantages: torch.Tensor) -> torch.Tensor:
    """Advantages plus values at action tokens, 0 elsewhere."""
    given = tensors(batch)
    return (advantages + given["values"]).masked_fill(given["turn_ids"] < 0, 0.0)


def slow_gae(rewards: list[float], values: list[float], gamma: float, lam: float, bootstrap: float) -> list[float]:
    """The sum over all later one-step errors, written out."""
    following = [*values[1:], bootstrap]
    errors = [r + gamma * after - v for r, v, after in zip(rewards, values, following, strict=True)]
    return [sum((gamma * lam) ** (j - i) * errors[j] for j in range(i, len(errors))) for i in range(len(errors))]


def slow_bi_level(episode: Episode, turn_gamma: float, token_gamma: float, lam: float) -> list[float]:
    replies = [[value for k, value in episode.actions() if k == turn] for turn in range(len(episode.rewards))]
    of_turns = slow_gae(episode.rewards, [reply[-1] for reply in replies], turn_gamma, lam, episode.bootstrap)
    found: list[float] = []
    for reply, of_turn in zip(replies, of_turns, strict=True):
        # One reply as an episode of its own: what its last token "earns" makes that token's advantage of_turn.
        rewards = [0.0] * (len(reply) - 1) + [of_turn + reply[-1]]
        found += slow_gae(rewards, reply, token_gamma, lam, 0.0)
    return found


def assert_rows(found: list[list[float]], expected: list[list[float]]) -> None:
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-12)


@each_seed
@pytest.mark.parametrize("gammas", [(0.95, 1.0), (0.9, 0.8), (1.0, 1.0)])
@pytest.mark.parametrize("lam", [1.0, 0.7, 0.0])
def test_a_slow_loop_over_both_levels_agrees(seed: int, gammas: tuple[float, float], lam: float) -> None:
    batch = some_batch(seed)
    given = tensors(batch)
    advantages, returns = bi_level_gae(**given, turn_gamma=gammas[0], token_gamma=gammas[1], lam=lam)
    assert_rows(at_actions(batch, advantages), [slow_bi_level(episode, *gammas, lam) for episode in batch])
    torch.testing.assert_close(returns, of_actions(batch, advantages))


@each_seed
def test_without_discounts_the_advantage_is_the_monte_carlo_return_minus_the_value(seed: int) -> None:
    batch = some_batch(seed)
    to_go = [[sum(e.rewards[k:]) + e.bootstrap for k, _ in e.actions()] for e in batch]
    minus = [[r - v for r, (_, v) in zip(row, e.actions(), strict=True)] for row, e in zip(to_go, batch, strict=True)]
    assert_rows(at_actions(batch, token_level(batch, 1.0, 1.0)[0]), minus)
