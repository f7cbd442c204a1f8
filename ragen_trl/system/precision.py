"""Measures whether this CPU is faster in bfloat16, which no flag of a processor tells."""

import timeit

LARGE = 2**25
"""Parameters of a model: above it a CPU spends most of the time on products of matrices, and below on overheads."""


def is_bfloat16_faster() -> bool:
    """Whether training on this CPU gains from bfloat16: where products alone are at least twice as fast; 0.1 s."""
    import torch

    seconds = []
    for precision in (torch.float32, torch.bfloat16):
        rows, weights = torch.ones(512, 576, dtype=precision), torch.ones(1536, 576, dtype=precision)
        seconds.append(min(timeit.repeat("rows @ weights.T", globals=locals(), number=1, repeat=4)))
    return seconds[0] >= 2 * seconds[1]
