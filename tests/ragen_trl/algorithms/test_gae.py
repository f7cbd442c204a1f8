"""GAE per token, per turn and on both levels: slow obvious loops over single episodes, and identities."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.gae import bi_level_gae, spread_over_turns, token_gae, turn_gae

DISCOUNTS = [(1.0, 1.0), (0.9, 0.0), (0.97, 0.8), (0.0, 0.5)]
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


def some_episode(rng: random.Random, longest_reply: int = 4, max_turns: int = 4) -> Episode:
    """Environment tokens carry NaN; about half of the turns earn nothing."""
    rewards: list[float] = []
    turn_ids: list[int] = []
    for k in range(rng.randint(1, max_turns)):
        turn_ids += [-1] * rng.randint(0, 3) + [k] * rng.randint(1, longest_reply)
        rewards.append(rng.choice([0.0, rng.uniform(-1, 1)]))
    values = [rng.uniform(-1, 1) if k >= 0 else NAN for k in turn_ids]
    return Episode(rewards, turn_ids, values, rng.choice([0.0, rng.uniform(-1, 1)]))


def some_batch(seed: int, **kinds: int) -> list[Episode]:
    rng = random.Random(seed)
    return [some_episode(rng, **kinds) for _ in range(5)]


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
    return token_gae(token_rewards(batch), given["values"], mask, gamma, lam, given["bootstrap"])


def at_actions(batch: list[Episode], dense: torch.Tensor) -> list[list[float]]:
    """The numbers at action tokens; all others must be exactly 0."""
    mask = tensors(batch)["turn_ids"] >= 0
    assert (dense[~mask] == 0).all()
    return [row[on].tolist() for row, on in zip(dense, mask, strict=True)]


def slow_gae(rewards: list[float], values: list[float], gamma: float, lam: float, bootstrap: float) -> list[float]:
    """The sum over all later one-step errors, written out."""
    following = [*values[1:], bootstrap]
    errors = [r + gamma * after - v for r, v, after in zip(rewards, values, following, strict=True)]
    return [sum((gamma * lam) ** (j - i) * errors[j] for j in range(i, len(errors))) for i in range(len(errors))]


def slow_token_gae(episode: Episode, gamma: float, lam: float) -> list[float]:
    actions = episode.actions()
    ends = [i + 1 == len(actions) or actions[i + 1][0] != k for i, (k, _) in enumerate(actions)]
    rewards = [episode.rewards[k] if end else 0.0 for (k, _), end in zip(actions, ends, strict=True)]
    return slow_gae(rewards, [value for _, value in actions], gamma, lam, episode.bootstrap)


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
@pytest.mark.parametrize(("gamma", "lam"), DISCOUNTS)
def test_a_slow_loop_over_tokens_agrees(seed: int, gamma: float, lam: float) -> None:
    batch = some_batch(seed)
    advantages, returns = token_level(batch, gamma, lam)
    assert_rows(at_actions(batch, advantages), [slow_token_gae(episode, gamma, lam) for episode in batch])
    assert_rows(at_actions(batch, returns), at_actions(batch, advantages + tensors(batch)["values"].nan_to_num(0.0)))


@each_seed
@pytest.mark.parametrize(("gamma", "lam"), DISCOUNTS)
def test_a_slow_loop_over_turns_agrees(seed: int, gamma: float, lam: float) -> None:
    batch = some_batch(seed)
    rng = random.Random(100 + seed)
    values = [[rng.uniform(-1, 1) for _ in episode.rewards] for episode in batch]
    given, dense = tensors(batch), padded(values, NAN)
    mask = ~dense.isnan()
    advantages, returns = turn_gae(given["turn_rewards"], dense, mask, gamma, lam, given["bootstrap"])
    slow = [slow_gae(e.rewards, v, gamma, lam, e.bootstrap) for e, v in zip(batch, values, strict=True)]
    assert_rows([row[on].tolist() for row, on in zip(advantages, mask, strict=True)], slow)
    torch.testing.assert_close(returns, (advantages + dense).nan_to_num(0.0))
    assert (advantages[~mask] == 0).all()


@each_seed
@pytest.mark.parametrize("gammas", [(0.95, 1.0), (0.9, 0.8), (1.0, 1.0)])
@pytest.mark.parametrize("lam", [1.0, 0.7, 0.0])
def test_a_slow_loop_over_both_levels_agrees(seed: int, gammas: tuple[float, float], lam: float) -> None:
    batch = some_batch(seed)
    given = tensors(batch)
    advantages, returns = bi_level_gae(**given, turn_gamma=gammas[0], token_gamma=gammas[1], lam=lam)
    assert_rows(at_actions(batch, advantages), [slow_bi_level(episode, *gammas, lam) for episode in batch])
    torch.testing.assert_close(returns, (advantages + given["values"]).nan_to_num(0.0))


@each_seed
def test_without_discounts_the_advantage_is_the_monte_carlo_return_minus_the_value(seed: int) -> None:
    batch = some_batch(seed)
    to_go = [[sum(e.rewards[k:]) + e.bootstrap for k, _ in e.actions()] for e in batch]
    minus = [[r - v for r, (_, v) in zip(row, e.actions(), strict=True)] for row, e in zip(to_go, batch, strict=True)]
    assert_rows(at_actions(batch, token_level(batch, 1.0, 1.0)[0]), minus)


@each_seed
def test_with_lambda_0_the_advantage_is_the_one_step_error(seed: int) -> None:
    batch = some_batch(seed)
    expected = []
    for earned, episode in zip(at_actions(batch, token_rewards(batch)), batch, strict=True):
        values = [value for _, value in episode.actions()] + [episode.bootstrap]
        expected.append([r + 0.9 * values[i + 1] - values[i] for i, r in enumerate(earned)])
    assert_rows(at_actions(batch, token_level(batch, 0.9, 0.0)[0]), expected)


@each_seed
@pytest.mark.parametrize(
    ("turn_gamma", "token_gamma", "lam", "kinds"),
    [
        pytest.param(1.0, 1.0, 1.0, {}, id="no discounts"),
        pytest.param(0.9, 0.3, 0.6, {"longest_reply": 1}, id="one token a turn"),
        pytest.param(0.3, 0.9, 0.6, {"max_turns": 1}, id="one turn, terminated"),
    ],
)
def test_both_levels_are_the_token_level_where_only_one_discount_can_act(
    seed: int, turn_gamma: float, token_gamma: float, lam: float, kinds: dict[str, int]
) -> None:
    batch = some_batch(seed, **kinds)
    if "max_turns" in kinds:
        batch = [replace(episode, bootstrap=0.0) for episode in batch]
    both = bi_level_gae(**tensors(batch), turn_gamma=turn_gamma, token_gamma=token_gamma, lam=lam)
    gamma = token_gamma if "max_turns" in kinds else turn_gamma
    torch.testing.assert_close(both, token_level(batch, gamma, lam), atol=1e-12, rtol=0)


def test_both_levels_differ_from_the_token_level_elsewhere() -> None:
    """Without discounts too: with λ < 1 a turn's last token looks at another value."""
    both, _ = bi_level_gae(**tensors(some_batch(0)), turn_gamma=1.0, token_gamma=1.0, lam=0.5)
    assert not torch.allclose(both, token_level(some_batch(0), 1.0, 0.5)[0], atol=1e-3)


@each_seed
def test_environment_tokens_and_padding_change_nothing(seed: int) -> None:
    """Neither how many there are, nor where, nor what the critic said there."""
    batch = some_batch(seed)
    rng = random.Random(seed)
    filled = []
    for episode in batch:
        turn_ids, values = [], []
        for k, value in zip(episode.turn_ids, episode.values, strict=True):
            for _ in range(rng.randint(0, 2)):  # inside replies too, where a cut reply would be closed
                turn_ids.append(-1)
                values.append(rng.choice([NAN, float("inf"), -1e30]))
            turn_ids.append(k)
            values.append(value)
        filled.append(Episode(episode.rewards, [-1, *turn_ids, -1], [NAN, *values, NAN], episode.bootstrap))
    few, many = (
        [*token_level(given, 0.9, 0.8), *bi_level_gae(**tensors(given), turn_gamma=0.95, token_gamma=0.9, lam=0.8)]
        for given in (batch, filled)
    )
    for dense, refilled in zip(few, many, strict=True):
        assert at_actions(batch, dense) == at_actions(filled, refilled)


def test_a_turn_that_earned_nothing_is_a_turn() -> None:
    """Regression: RAGEN ends turns where the reward is not 0, so it gives 1.35, 1.25, 0.7, 0.6 for the first two."""
    values = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], dtype=torch.float64)
    turn_ids = torch.tensor([[0, 0, 1, 1, 2, 2]])
    rewards = torch.tensor([[0.5, 0.0, 1.0]], dtype=torch.float64)
    # Turns: 1 - 0.6 = 0.4; 0.95 (0.6 + 0.4) - 0.4 = 0.55; 0.5 + 0.95 (0.4 + 0.55) - 0.2 = 1.2025.
    advantages, _ = bi_level_gae(rewards, values, turn_ids, turn_gamma=0.95, token_gamma=1.0, lam=1.0)
    assert advantages[0].tolist() == pytest.approx([1.3025, 1.2025, 0.65, 0.55, 0.5, 0.4], abs=1e-12)


def test_the_bootstrap_acts_on_truncated_rows_alone() -> None:
    """By hand, γ = 0.5 and λ = 1: the last token's advantage rises by 0.5 · 0.8, the one before by half of that."""
    rewards, mask = torch.zeros(2, 3), torch.tensor([[1, 1, 0], [1, 1, 0]])
    values = torch.tensor([[0.25, 0.5, NAN], [0.25, 0.5, NAN]])
    advantages, returns = token_gae(rewards, values, mask, 0.5, 1.0, bootstrap=torch.tensor([0.0, 0.8]))
    torch.testing.assert_close(advantages, torch.tensor([[-0.25, -0.5, 0.0], [-0.05, -0.1, 0.0]]))
    torch.testing.assert_close(returns, torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.4, 0.0]]))
    terminated, _ = token_gae(rewards[:1], values[:1], mask[:1], 0.5, 1.0)
    assert advantages[:1].tolist() == terminated.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_of_the_input_is_kept(dtype: torch.dtype) -> None:
    values, rewards = torch.rand(2, 2, dtype=dtype), torch.zeros(2, 2, dtype=dtype)
    ids = torch.tensor([[0, 1], [0, -1]])
    results = [*token_gae(rewards, values, ids >= 0, 0.9, 0.9), *bi_level_gae(rewards, values, ids, 0.9, 0.9, 0.9)]
    assert {result.dtype for result in (*results, spread_over_turns(rewards, ids))} == {dtype}


def test_a_row_without_action_tokens_is_zero() -> None:
    values = torch.full((2, 3), NAN)
    assert token_gae(torch.zeros(2, 3), values, torch.zeros(2, 3), 1.0, 1.0)[1].tolist() == [[0.0] * 3] * 2
    assert bi_level_gae(torch.zeros(2, 1), values, torch.full((2, 3), -1), 1.0, 1.0, 1.0)[0].tolist() == [[0.0] * 3] * 2


@each_seed
def test_spreading_gives_each_token_its_turns_number(seed: int) -> None:
    batch = some_batch(seed)
    given = tensors(batch)
    rewards = given["turn_rewards"].clone()
    for row, episode in enumerate(batch):
        rewards[row, len(episode.rewards) :] = NAN  # turns that were not played
    found = spread_over_turns(rewards, given["turn_ids"])
    assert at_actions(batch, found) == [[episode.rewards[k] for k, _ in episode.actions()] for episode in batch]


@pytest.mark.parametrize("reward", [0.5, NAN])
def test_a_reward_where_nothing_was_sampled_is_refused(reward: float) -> None:
    """It would reach no advantage; RAGEN puts it on the newline after the reply."""
    rewards, values = torch.tensor([[0.0, 0.0], [0.0, reward]]), torch.zeros(2, 2)
    mask = torch.tensor([[1, 1], [1, 0]])
    with pytest.raises(ValueError, match=f"reward {reward:g} at row 1, column 1 is masked out; put it on the last"):
        token_gae(rewards, values, mask, 1.0, 1.0)
    with pytest.raises(ValueError, match=f"reward {reward:g} at row 1, column 1 is masked out; set the mask to 1 for"):
        turn_gae(rewards, values, mask, 1.0, 1.0)
    with pytest.raises(ValueError, match=f"reward {reward:g} at row 1, column 1 is masked out; a turn without tokens"):
        bi_level_gae(rewards, values, torch.tensor([[0, 1], [0, 0]]), 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"values": torch.zeros(1, 3)}, r"values have shape \(1, 3\), turn_ids \(1, 2\)"),
        ({"turn_rewards": torch.zeros(2, 2)}, r"have shapes \[\(2, 2\), \(1, 2\), \(1, 2\)\]; they must be equal"),
        ({"bootstrap": torch.zeros(1, 1)}, r"bootstrap has shape \(1, 1\); it must be \(1,\)"),
        ({"turn_ids": torch.tensor([[0, 2]])}, "turn id 2 at row 0, token 1, but only 2 turns"),
        ({"turn_ids": torch.tensor([[1, 0]])}, "turn ids of row 0 decrease at token 1"),
    ],
)
def test_input_that_does_not_fit_is_named(changed: dict[str, Any], message: str) -> None:
    fitting = {"turn_rewards": torch.zeros(1, 2), "values": torch.zeros(1, 2), "turn_ids": torch.tensor([[0, 1]])}
    with pytest.raises(ValueError, match=message):
        bi_level_gae(**{**fitting, **changed}, turn_gamma=1.0, token_gamma=1.0, lam=1.0)


def test_shapes_that_would_be_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match=r"have shapes \[\(2, 3\), \(1, 3\), \(2, 3\)\]"):
        token_gae(torch.zeros(2, 3), torch.zeros(1, 3), torch.ones(2, 3), 1.0, 1.0)
    with pytest.raises(ValueError, match="turn_values have 1 rows, turn_ids 2"):
        spread_over_turns(torch.zeros(1, 2), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="turn id 2 at row 0, token 0"):
        spread_over_turns(torch.zeros(1, 2), torch.tensor([[2]]))
