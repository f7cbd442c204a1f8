"""pass@k against the enumeration of every set of k attempts, and against the probability that it estimates."""

import itertools
import math

import numpy as np
import pytest

from ragen_trl.evaluation.pass_at_k import pass_at_k


@pytest.mark.parametrize("attempts", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_sets_with_a_success(attempts: int) -> None:
    for successes in range(attempts + 1):
        outcomes = [True] * successes + [False] * (attempts - successes)
        for k in range(1, attempts + 1):
            sets = list(itertools.combinations(outcomes, k))
            assert pass_at_k(attempts, successes, k) == pytest.approx(sum(map(any, sets)) / len(sets), abs=1e-15)


def test_its_mean_over_attempts_is_the_true_probability() -> None:
    """Unbiased: summed over the binomial distribution of c it gives 1 - (1 - p)^k; the plug-in estimate does not."""
    n, k, p = 8, 4, 0.3
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(truth, abs=1e-12)
    plug_in = sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(weights))
    assert abs(plug_in - truth) > 0.01


def test_large_numbers_neither_overflow_nor_lose_digits() -> None:
    """Against the product that Chen et al. give for it."""
    n, c, k = 10_000, 3, 5_000
    assert pass_at_k(n, c, k) == pytest.approx(1 - np.prod(1 - k / np.arange(n - c + 1, n + 1)), rel=1e-12)
    assert pass_at_k(10**6, 1, 1) == 1e-6
