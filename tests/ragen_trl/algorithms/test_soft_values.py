"""Soft values: limits, bounds and identities; how certain they are, by simulation; and when they are out of date."""

import math

import pytest
import torch

from ragen_trl.algorithms.soft_values import soft_value, soft_value_std_error
from tests.support.ragen_trl.trainers import double


def outcomes(successes: int, count: int) -> torch.Tensor:
    return double([1.0] * successes + [0.0] * (count - successes))


def test_the_limits_of_beta_are_the_maximum_and_the_mean() -> None:
    returns = double([0.0, 0.1, 0.5, 1.0])
    assert soft_value(returns, 1e-9).item() == pytest.approx(1.0, abs=1e-8)
    assert soft_value(returns, 1e9).item() == pytest.approx(0.4, abs=1e-9)
    beta = 50.0  # mean + variance / 2β, to the next order
    expected = 0.4 + returns.var(correction=0).item() / (2 * beta)
    assert soft_value(returns, beta).item() == pytest.approx(expected, abs=1e-5)


def test_the_error_is_the_spread_of_v_over_repeated_samples() -> None:
    """64 returns each, 2000 times: the spread agrees with the mean error to 5 %."""
    generator = torch.Generator().manual_seed(0)
    samples = torch.randint(0, 5, (2000, 64), generator=generator).double() / 4
    spread = soft_value(samples, 0.5).std().item()
    pooled = torch.arange(5).double() / 4
    assert soft_value_std_error(samples, 0.5, pooled).mean().item() == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("beta", [0.05, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("only", [0.0, 1.0])
def test_equal_returns_are_not_certain_and_more_of_them_are_more_so(only: float, beta: float) -> None:
    """Regression: none of 8 has no spread; an error of 0 would end the sampling of exactly the hard start states."""
    pooled = outcomes(1, 10)
    few, more = (soft_value_std_error(double([only] * count), beta, pooled).item() for count in (8, 32))
    assert few > more > 0
    assert few < 1.0  # the range of the returns: no error can be larger
    assert soft_value_std_error(double([only] * 8), beta, double([only])).item() == 0.0


def test_the_mixture_by_hand() -> None:
    """One failure of one, one share of a pool of one failure and one success; β with e^(1/β) = 3, so weights 1/3 and 1.

    Mean (1/3 + 2/3) / 2 = 1/2; second moment (1/9 + 5/9) / 2 = 1/3; variance 1/3 - 1/4 = 1/12.
    """
    beta = 1 / math.log(3)
    found = soft_value_std_error(double([0.0]), beta, pooled=double([0.0, 1.0])).item()
    assert found == pytest.approx(beta * math.sqrt(1 / 12) / 0.5, rel=1e-12)
