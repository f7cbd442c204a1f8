"""A*-PO's regression loss: a slow loop, its gradient on both scales, and what must make no difference."""

import math
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.losses import regression_loss, trajectory_log_ratios
from tests.support.ragen_trl.tabular import double

MASK = torch.tensor([[1, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0]])
LENGTHS = MASK.sum(dim=1)
BETA = 0.3


def batch(seed: int = 0) -> dict[str, Any]:
    """Arguments for four trajectories of up to 6 tokens."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"logprobs": (4, 6), "ref_logprobs": (4, 6), "returns": (4,), "soft_values": (4,)}
    drawn = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    return {**drawn, "action_mask": MASK, "beta2": BETA}


def rows(arguments: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    return {name: value[kept] if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def loss_and_gradient(arguments: dict[str, Any], **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs = arguments["logprobs"].clone().requires_grad_()
    loss, _, _ = regression_loss(**{**arguments, "logprobs": logprobs}, **options)
    return loss.detach(), torch.autograd.grad(loss, logprobs)[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("length_norm", "const_length", "divisors"),
    [("sum", None, [1, 1, 1, 1]), ("mean", None, LENGTHS.tolist()), ("const", 5.0, [5, 5, 5, 5])],
)
def test_a_slow_loop_agrees(length_norm: Any, const_length: Any, divisors: list[int], seed: int) -> None:
    arguments = batch(seed)
    total = 0.0
    for row in range(4):
        log_ratio = 0.0
        for t in range(6):
            if MASK[row, t]:
                log_ratio += (arguments["logprobs"][row, t] - arguments["ref_logprobs"][row, t]).item()
        advantage = (arguments["returns"][row] - arguments["soft_values"][row]).item()
        total += (BETA * log_ratio / divisors[row] - advantage) ** 2
    options = {"length_norm": length_norm, "const_length": const_length}
    paper, log_ratios, residuals = regression_loss(**arguments, scale="paper", **options)
    unit, _, _ = regression_loss(**arguments, **options)
    assert paper.item() == pytest.approx(total / 4, abs=1e-12)
    assert unit.item() == pytest.approx(total / 4 / (2 * BETA), abs=1e-12)
    expected = BETA * log_ratios - (arguments["returns"] - arguments["soft_values"])
    torch.testing.assert_close(residuals, expected)
    ratio_arguments = (arguments["logprobs"], arguments["ref_logprobs"], MASK)
    torch.testing.assert_close(trajectory_log_ratios(*ratio_arguments, **options), log_ratios)


def test_on_the_unit_scale_the_gradient_is_that_of_reinforce_with_what_is_left_of_the_advantage() -> None:
    arguments = batch()
    loss, slope = loss_and_gradient(arguments)
    log_ratios = ((arguments["logprobs"] - arguments["ref_logprobs"]) * MASK).sum(dim=1)
    advantages = arguments["returns"] - arguments["soft_values"] - BETA * log_ratios
    torch.testing.assert_close(slope, -advantages[:, None] * MASK / 4)
    paper_loss, paper_slope = loss_and_gradient(arguments, scale="paper")
    torch.testing.assert_close(paper_slope, 2 * BETA * slope)
    torch.testing.assert_close(paper_loss, 2 * BETA * loss)


@pytest.mark.parametrize("cap", [None, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_never_negative(seed: int, cap: float | None) -> None:
    """Regression: two earlier attempts logged losses of -0.49 and -420; whatever they trained, it was not this."""
    arguments = batch(seed)
    assert loss_and_gradient(arguments, residual_cap=cap)[0] > 0


def test_at_the_optimum_loss_and_gradient_vanish() -> None:
    arguments = batch()
    log_ratios = ((arguments["logprobs"] - arguments["ref_logprobs"]) * MASK).sum(dim=1)
    loss, slope = loss_and_gradient({**arguments, "returns": arguments["soft_values"] + BETA * log_ratios})
    assert loss < 1e-30
    assert slope.abs().max() < 1e-15


@pytest.mark.parametrize("nonsense", [-50.0, math.inf, math.nan])
def test_log_probabilities_of_environment_tokens_make_no_difference(nonsense: float) -> None:
    """Regression: with them in the sum, one long observation outweighs every reward."""
    arguments = batch()
    loss, slope = loss_and_gradient(arguments)
    other = {**arguments, "logprobs": arguments["logprobs"].masked_fill(MASK == 0, nonsense)}
    other_loss, other_slope = loss_and_gradient(other)
    assert torch.equal(other_loss, loss)
    assert torch.equal(other_slope, slope)


def test_padding_on_either_side_makes_no_difference() -> None:
    arguments = batch()
    loss, slope = loss_and_gradient(arguments)
    for padding in ((0, 3), (3, 0)):
        wide = {
            name: torch.nn.functional.pad(value, padding)
            if name in ("logprobs", "ref_logprobs", "action_mask")
            else value
            for name, value in arguments.items()
        }
        wide_loss, wide_slope = loss_and_gradient(wide)
        torch.testing.assert_close(wide_loss, loss)
        torch.testing.assert_close(torch.nn.functional.pad(slope, padding), wide_slope)


def test_the_order_of_trajectories_makes_no_difference() -> None:
    arguments, order = batch(), [2, 0, 3, 1]
    loss, slope = loss_and_gradient(arguments)
    permuted_loss, permuted_slope = loss_and_gradient(rows(arguments, order))
    torch.testing.assert_close(permuted_loss, loss)
    torch.testing.assert_close(permuted_slope, slope[order])


def test_unequal_micro_batches_with_a_common_normaliser_add_up_to_the_batch() -> None:
    arguments = batch()
    loss, slope = loss_and_gradient(arguments)
    parts = [loss_and_gradient(rows(arguments, kept), normaliser=4) for kept in ([0], [1, 2, 3])]
    torch.testing.assert_close(sum(part[0] for part in parts), loss)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), slope)


def test_filler_rows_are_not_counted() -> None:
    arguments = batch()
    filled = rows(arguments, [0, 1, 2, 3, 0])
    filled["action_mask"] = torch.cat([MASK, torch.zeros_like(MASK[:1])])
    torch.testing.assert_close(loss_and_gradient(filled)[0], loss_and_gradient(arguments)[0])


def test_beyond_the_cap_the_loss_goes_on_as_its_tangent() -> None:
    """Residuals 0.5, 1, 3 and -3 with cap 1: 0.25, 1, and twice 2 · 3 - 1 = 5; slopes 1, 2, 2 and -2, times β₂."""
    logprobs = torch.zeros(4, 1, dtype=torch.float64)
    arguments = {
        "logprobs": logprobs,
        "ref_logprobs": logprobs,
        "action_mask": torch.ones(4, 1),
        "returns": double([0.0, 0.0, 0.0, 3.0]),
        "soft_values": double([0.5, 1.0, 3.0, 0.0]),
        "beta2": BETA,
    }
    loss, slope = loss_and_gradient(arguments, residual_cap=1.0, scale="paper", normaliser=1)
    assert loss.item() == pytest.approx(0.25 + 1.0 + 5.0 + 5.0)
    torch.testing.assert_close(slope[:, 0], BETA * double([1.0, 2.0, 2.0, -2.0]))
    assert loss_and_gradient(arguments, residual_cap=3.0)[0] == loss_and_gradient(arguments)[0]


def test_half_precision_log_probabilities_are_summed_in_single_precision() -> None:
    """In bfloat16 a sum over thousands of tokens would keep two or three digits."""
    logprobs = torch.full((1, 2001), 2.0**-7, dtype=torch.bfloat16)
    one = torch.ones(1)
    _, log_ratios, _ = regression_loss(logprobs, torch.zeros_like(logprobs), torch.ones(1, 2001), one, one, BETA)
    assert log_ratios.dtype == torch.float32
    assert log_ratios.item() == 2001 * 2.0**-7
    assert log_ratios.bfloat16().item() != 2001 * 2.0**-7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta2": 0.0}, "beta2=0.0"),
        ({"scale": "sum"}, "scale='sum'"),
        ({"residual_cap": -1.0}, "residual_cap=-1.0"),
        ({"length_norm": "max"}, "length_norm is 'max'"),
        ({"length_norm": "const"}, "const_length is None"),
        ({"const_length": 9.0}, "const_length is 9.0"),
        ({"returns": torch.zeros(4, 1)}, r"\(4, 1\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    """A (B, 1) return would silently be compared with the soft value of every other trajectory."""
    with pytest.raises(ValueError, match=message):
        regression_loss(**{**batch(), **options})
