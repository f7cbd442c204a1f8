"""Losses beyond the vectors: slow obvious loops, identities, and what must make no difference."""

import math
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.losses import (
    aggregate,
    clipped_surrogate,
    entropy_bonus,
    kl_penalty,
    regression_loss,
    token_entropy,
    value_loss,
)
from tests.support.ragen_trl.tabular import double

MODES: list[tuple[Any, dict[str, Any]]] = [
    ("token_mean", {}),
    ("seq_mean_token_mean", {}),
    ("seq_mean_token_sum", {}),
    ("constant_length", {"length": 7}),
]
MASK = torch.tensor([[1, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0]])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, of)[0]


def slow_surrogate(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> float:
    clipped = min(max(ratio, 1 - low), 1 + high)
    objective = min(ratio * advantage, clipped * advantage)
    if dual is not None and advantage < 0:
        objective = max(objective, dual * advantage)
    return -objective


@pytest.mark.parametrize("dual", [None, 3.0])
def test_a_slow_loop_agrees_on_the_surrogate(dual: float | None) -> None:
    logprobs, old, advantages = random(5, 40), random(5, 40, seed=1), random(5, 40, seed=2)
    found = clipped_surrogate(logprobs, old, advantages, 0.2, 0.28, dual)
    slow = [
        slow_surrogate(math.exp(new - before), advantage, 0.2, 0.28, dual)
        for new, before, advantage in zip(
            logprobs.flatten().tolist(), old.flatten().tolist(), advantages.flatten().tolist(), strict=True
        )
    ]
    torch.testing.assert_close(found.flatten(), double(slow), atol=1e-12, rtol=1e-12)


def test_before_any_update_the_surrogate_is_minus_the_advantage_and_its_gradient_reinforces() -> None:
    logprobs, advantages = random(3, 4).requires_grad_(), random(3, 1, seed=1)
    losses = clipped_surrogate(logprobs, logprobs.detach(), advantages, 0.2, 0.28, 3.0)
    torch.testing.assert_close(losses, -advantages.expand(3, 4))
    torch.testing.assert_close(gradient(losses.sum(), logprobs), -advantages.expand(3, 4))


def test_the_dual_clip_bounds_only_what_is_to_become_less_likely() -> None:
    """Regression: a bound on the ratio itself would also cap, or at ratio 0 lift, the loss of good actions."""
    ratio, advantages = double([[50.0, 50.0, 1.1, 1e-9]]), double([[-2.0, 2.0, 2.0, 2.0]])
    found = clipped_surrogate(ratio.log(), torch.zeros_like(ratio), advantages, 0.2, 0.28, 3.0)
    torch.testing.assert_close(found, double([[6.0, -2.56, -2.2, -2e-9]]))


@pytest.mark.parametrize(
    ("low", "high", "dual", "message"),
    [
        (1.0, 0.2, None, "epsilon_low=1.0"),
        (0.2, -0.1, None, "epsilon_high=-0.1"),
        (0.2, 0.2, 1.0, "dual_clip is 1.0"),
    ],
)
def test_impossible_clips_are_refused(low: float, high: float, dual: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clipped_surrogate(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), low, high, dual)


def test_the_value_loss_by_hand() -> None:
    """Errors 1 and 4 without a clip; with ±0.5 around the old values the first one grows to 2.25, from V = 0.5."""
    values, old, returns = double([[1.0, 2.0, 9.0]]), double([[0.0, 2.0, 9.0]]), double([[2.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0]])
    loss, fraction = value_loss(values, old, returns, mask)
    assert (loss.item(), fraction.item()) == (0.5 * (1.0 + 4.0) / 2, 0.0)
    loss, fraction = value_loss(values, old, returns, mask, clip=0.5)
    assert (loss.item(), fraction.item()) == (0.5 * (2.25 + 4.0) / 2, 0.5)
    assert value_loss(values, old, returns, mask, clip=0.5, normaliser=10)[0].item() == 0.5 * 6.25 / 10


def test_a_clipped_value_gets_no_gradient_and_the_others_get_their_error() -> None:
    values = double([[1.0, 2.0]]).requires_grad_()
    loss, _ = value_loss(values, double([[0.0, 2.0]]), double([[2.0, 0.0]]), torch.ones(1, 2), clip=0.5, normaliser=1)
    assert gradient(loss, values).tolist() == [[0.0, 2.0]]


def test_values_at_environment_tokens_reach_neither_value_loss_nor_gradient() -> None:
    values, mask = double([[1.0, math.inf]]).requires_grad_(), torch.tensor([[1, 0]])
    nonsense = double([[0.5, math.nan]])
    loss, fraction = value_loss(values, nonsense, nonsense, mask, clip=0.2)
    assert (loss.item(), fraction.item()) == (0.125, 0.0)
    assert gradient(loss, values).tolist() == [[0.5, 0.0]]


def test_the_estimators_agree_on_average_and_only_two_are_never_negative() -> None:
    logits, ref = random(6), 0.3 * random(6, seed=1)
    probs, logp, ref_logp = logits.softmax(0), logits.log_softmax(0), ref.log_softmax(0)
    exact = (probs * (logp - ref_logp)).sum()
    for estimator in ("k1", "k3"):
        torch.testing.assert_close((probs * kl_penalty(logp, ref_logp, estimator)).sum(), exact)
    assert (kl_penalty(logp, ref_logp, "k1") < 0).any()
    assert (kl_penalty(logp, ref_logp, "k2") > 0).all()
    assert (kl_penalty(logp, ref_logp, "k3") > 0).all()


def test_k3_keeps_its_digits_near_the_reference() -> None:
    """Regression: exp(-d) - 1 + d loses all digits to rounding where d²/2 is below the precision of 1."""
    near = torch.tensor(1e-4, dtype=torch.float32)
    assert kl_penalty(near, torch.zeros(()), "k3").item() == pytest.approx(5e-9, rel=0.5)


def test_an_unknown_estimator_is_named() -> None:
    with pytest.raises(ValueError, match="estimator is 'k4'; choose 'k1', 'k2' or 'k3'"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]


def test_entropy_of_simple_distributions() -> None:
    logits = double([[0.0, 0.0, 0.0, 0.0], [math.log(3.0), 0.0, -math.inf, -math.inf], [0.0] + [-math.inf] * 3])
    expected = [math.log(4), math.log(4) - 0.75 * math.log(3), 0.0]
    assert token_entropy(logits).tolist() == pytest.approx(expected, abs=1e-12)
    assert token_entropy(logits.bfloat16()).dtype == torch.float32


def test_entropy_has_a_finite_gradient_where_a_token_cannot_be() -> None:
    logits = double([0.5, 0.0, -math.inf]).requires_grad_()
    found = gradient(token_entropy(logits), logits)
    two = double([0.5, 0.0]).requires_grad_()
    torch.testing.assert_close(found, torch.cat([gradient(token_entropy(two), two), double([0.0])]))


def slow_aggregate(rows: list[list[float]], mode: str, normaliser: float | None) -> float:
    tokens, sums = sum(map(len, rows)), [sum(row) for row in rows]
    if mode == "token_mean":
        return sum(sums) / (normaliser or tokens)
    if mode == "seq_mean_token_mean":
        sums = [total / len(row) for total, row in zip(sums, rows, strict=True)]
    if mode == "constant_length":
        sums = [total / 7 for total in sums]
    return sum(sums) / (normaliser or len(rows))


@pytest.mark.parametrize("normaliser", [None, 11])
@pytest.mark.parametrize(("mode", "options"), MODES, ids=lambda value: str(value))
def test_a_slow_loop_agrees_on_aggregates(mode: Any, options: dict[str, Any], normaliser: float | None) -> None:
    losses = random(4, 6)
    rows = [row[kept.bool()].tolist() for row, kept in zip(losses, MASK, strict=True)]
    found = aggregate(losses, MASK, mode, normaliser, **options).item()
    assert found == pytest.approx(slow_aggregate(rows, mode, normaliser), abs=1e-12)


@pytest.mark.parametrize(("mode", "options"), MODES, ids=lambda value: str(value))
def test_unequal_micro_batches_with_a_common_normaliser_add_up_to_the_batch(mode: Any, options: dict[str, Any]) -> None:
    losses, parts = random(4, 6), ([0], [1, 2, 3])
    count = int(MASK.sum()) if mode == "token_mean" else 4
    whole = aggregate(losses, MASK, mode, **options)
    summed = sum(aggregate(losses[rows], MASK[rows], mode, count, **options) for rows in parts)
    torch.testing.assert_close(summed, whole, atol=1e-12, rtol=0)
    mean_of_means = sum(aggregate(losses[rows], MASK[rows], mode, **options) for rows in parts) / 2
    assert (mean_of_means - whole).abs() > 0.01  # the fault that the normaliser is for


@pytest.mark.parametrize(("mode", "options"), MODES, ids=lambda value: str(value))
def test_filler_rows_and_nonsense_behind_the_mask_change_no_aggregate(mode: Any, options: dict[str, Any]) -> None:
    losses = random(4, 6)
    padded = torch.cat([losses.masked_fill(MASK == 0, math.nan), double([[math.inf] * 6])])
    mask = torch.cat([MASK, torch.zeros(1, 6, dtype=MASK.dtype)])
    assert aggregate(padded, mask, mode, **options) == aggregate(losses, MASK, mode, **options)


def test_a_batch_without_sampled_tokens_is_zero_not_nan() -> None:
    nothing = torch.zeros(2, 3)
    assert all(aggregate(nothing, nothing, mode, **options) == 0 for mode, options in MODES)
    assert value_loss(nothing, nothing, nothing, nothing)[0] == 0
    assert regression_loss(nothing, nothing, nothing, torch.ones(2), torch.zeros(2), 0.1)[0] == 0


def test_the_entropy_bonus_is_a_mean_over_sampled_tokens_of_the_whole_batch() -> None:
    entropies, mask = double([[1.0, 2.0, 9.0], [6.0, 9.0, 9.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert entropy_bonus(entropies, mask).item() == 3.0
    assert entropy_bonus(entropies[:1], mask[:1], normaliser=3) + entropy_bonus(entropies[1:], mask[1:], 3) == 3.0


@pytest.mark.parametrize("shape", [(3,), (1, 3, 1), (3, 3, 4), (1, 4)])
def test_advantages_that_broadcast_further_are_refused(shape: tuple[int, ...]) -> None:
    """Regression: (B, T)[:, None] became (B, B, T), and a loss eleven times as large."""
    with pytest.raises(ValueError, match="advantages has shape .* and logprobs \\(3, 4\\); give one"):
        clipped_surrogate(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(shape), 0.2, 0.28)


def test_losses_of_another_shape_than_the_mask_are_refused() -> None:
    with pytest.raises(ValueError, match=r"per_token has shape \(3, 3, 4\) and mask \(3, 4\)"):
        aggregate(torch.zeros(3, 3, 4), torch.ones(3, 4), "token_mean")


@pytest.mark.parametrize(
    ("mode", "length", "message"),
    [
        ("mean", None, "mode is 'mean'; choose 'token_mean'"),
        ("constant_length", None, "length is None"),
        ("token_mean", 5, "length is 5"),
    ],
)
def test_unknown_ways_to_average_are_refused(mode: Any, length: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aggregate(torch.zeros(1, 1), torch.ones(1, 1), mode, length=length)
