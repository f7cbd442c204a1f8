"""Importance ratios for what the sampler computes otherwise, by hand; against TRL's in ``test_vllm_training.py``."""

import math

import pytest
import torch

from ragen_trl.algorithms.sampler_ratio import sampler_ratio

# Ratios of 2, 1/2 and 8 | an environment token, then one of 3 and one that the sampler could not score.
DIFFERENCES = torch.tensor([[2.0, 0.5, 8.0], [99.0, 3.0, math.nan]]).log()
MASK = torch.tensor([[1, 1, 1], [0, 1, 1]])
CASES = [
    ("token_truncate", None, 4.0, [[2.0, 0.5, 4.0], [1.0, 3.0, 1.0]]),
    ("token_truncate", 1.0, 2.5, [[2.0, 1.0, 2.5], [1.0, 2.5, 1.0]]),
    ("token_mask", 1.0, 2.5, [[2.0, 0.0, 0.0], [1.0, 0.0, 1.0]]),
    ("token_mask", None, None, [[2.0, 0.5, 8.0], [1.0, 3.0, 1.0]]),
    ("sequence_truncate", None, 5.0, [[5.0], [3.0]]),
    ("sequence_mask", 1.0, 5.0, [[0.0], [3.0]]),
]


@pytest.mark.parametrize(("mode", "low", "high", "expected"), CASES)
def test_ratios_by_hand(mode: str, low: float | None, high: float | None, expected: list[list[float]]) -> None:
    sampled = torch.full((2, 3), -1.5)
    found = sampler_ratio(sampled + DIFFERENCES, sampled, MASK, mode, low, high)
    torch.testing.assert_close(found, torch.tensor(expected))
