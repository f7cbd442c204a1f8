"""pass@k: the probability that one of k attempts at a start state succeeds, from n attempts with c successes.

This is the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1); 1 - (1 - c/n)^k is biased for k > 1.
"""

import math


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """``1 - C(n - c, k) / C(n, k)``: the share of all sets of k attempts that contain a success.

    Args:
        attempts: n, at least ``k``.
        successes: c, from 0 to n.
        k: At least 1.

    Raises:
        ValueError: If a number is out of its range.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    if not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} from {attempts} attempts; k is from 1 to the number of attempts")
    if not 0 <= successes <= attempts:
        raise ValueError(f"{successes} successes in {attempts} attempts; give from 0 to {attempts}")
    sets = math.comb(attempts, k)
    return (sets - math.comb(attempts - successes, k)) / sets


def reported_ks(attempts: int) -> list[int]:
    """1, 2, 4, … up to ``attempts``; empty for a single attempt, whose pass@1 is the success rate.

    Example:
        >>> reported_ks(6)
        [1, 2, 4]
    """
    return [2**power for power in range(attempts.bit_length())] if attempts > 1 else []
