"""Tensors and modules of which every process holds a part: FSDP2's and DeepSpeed ZeRO-3's, under one set of names.

FSDP2 (``torch.distributed.fsdp.fully_shard``) replaces parameters by distributed tensors, each process with its rows,
and gathers a module's before its forward pass. ZeRO-3 empties parameters and keeps a process's part of each in
``ds_tensor``. Left out: FSDP1, whose parameters are views of one flat tensor.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.fsdp import FSDPModule


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    """The modules that FSDP2 gathers one by one, the model itself first if it is one."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def reshard(model: nn.Module) -> None:
    """Forget gathered weights of FSDP2, such as those that the root keeps after a forward pass."""
    for module in sharded_modules(model):
        module.reshard()


@contextmanager
def whole_weights(model: nn.Module, reshards: bool = True) -> Iterator[None]:
    """Gather FSDP2's weights once, so that in this block processes may make different numbers of forward passes.

    All processes must enter it together. Without a sharded module nothing happens.

    Args:
        model: The model; its root is the first module that is sharded.
        reshards: Whether layers give their weights back after a forward pass of training (``reshard_after_forward``).
    """
    modules = sharded_modules(model)
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for place, module in enumerate(modules):
            module.set_reshard_after_forward(reshards and place > 0, recurse=False)
            module.reshard()
