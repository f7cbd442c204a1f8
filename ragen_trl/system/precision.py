"""Measures whether this CPU is faster in bfloat16, which no flag of a processor tells.

AMX multiplies in bfloat16 many times as fast as in float32. Of processors with ``avx512_bf16`` alone some are slower
with it and some are faster: on a Zen 5 a product takes a fifth of the time, since the library for float32 does not use
the wide registers there. Left out: what is not a product of matrices, half of a training step there.
"""

import timeit
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LARGE = 2**25
"""Parameters of a model: above it a CPU spends most of the time on products of matrices, and below on overheads."""
_WORTH_SAYING = 2.0


def bfloat16_speedup() -> float:
    """How many times as fast this CPU multiplies matrices of a small language model in bfloat16 as in float32.

    A product has 0.9 billion operations and is computed four times: a tenth of a second on a slow core.
    """
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
