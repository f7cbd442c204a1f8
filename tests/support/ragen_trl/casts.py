"""How often autocast casts weights."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class CountedCasts(TorchDispatchMode):
    """Counts the casts of tensors of one shape to bfloat16."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.casts = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_cast = func is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") == torch.bfloat16
        self.casts += is_cast and tuple(args[0].shape) == self.shape
        return func(*args, **(kwargs or {}))
