"""Weights in a digest: whose they are, what they are, and a bounded piece at a time."""

from typing import Any

import torch

_CHUNK = 1 << 22  # elements hashed at a time


def hash_weight(digest: Any, name: str, weight: torch.Tensor) -> None:
    """Add a whole weight, with its name, dtype and shape, to a digest of ``hashlib``."""
    digest.update(f"\n{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
    for piece in weight.reshape(-1).split(_CHUNK):
        digest.update(memoryview(piece.view(torch.uint8).cpu().numpy()))
