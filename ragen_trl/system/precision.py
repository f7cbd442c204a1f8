"""Measures whether this CPU is faster in bfloat16, which no flag of a processor tells."""

import timeit
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LARGE = 2**25
"""Parameters of a model: above it a CPU spends most of the time on products of matrices, and below on overheads."""
_WORTH_SAYING = 2.0


def bfloat16_speedup() -> float:
    """How many times as fast this CPU multiplies matrices in bfloat16 as in float32; takes about 0.1 s."""
    import torch

    return _seconds_of_a_product(torch.float32) / _seconds_of_a_product(torch.bfloat16)


def _seconds_of_a_product(precision: "torch.dtype") -> float:
    import torch

    rows, weights = torch.ones(512, 576, dtype=precision), torch.ones(1536, 576, dtype=precision)
    return min(timeit.repeat(lambda: torch.nn.functional.linear(rows, weights), number=1, repeat=4))


def is_bfloat16_faster() -> bool:
    """Whether training on this CPU gains from bfloat16: where products alone are at least twice as fast."""
    return bfloat16_speedup() >= _WORTH_SAYING


def precision_hint() -> str:
    """What to say to anybody who trains a language model on this CPU in float32; empty where bfloat16 is not faster."""
    speedup = bfloat16_speedup()
    if speedup < _WORTH_SAYING:
        return ""
    return f"this CPU multiplies matrices {speedup:.1f} times as fast in bfloat16; --bf16 true makes use of it"
