"""Weights that are divided over processes, by FSDP2 or by DeepSpeed ZeRO-3, under one set of names.

FSDP2 makes distributed tensors of parameters, each process with its rows. ZeRO-3 empties parameters and keeps a
process's part of each, flat and padded, in ``ds_tensor``. Here one whole tensor at a time is gathered or cut.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def _zero3(value: torch.Tensor) -> Any:
    return value if "ds_id" in vars(value) else None


def is_divided(value: torch.Tensor) -> bool:
    """Whether this process holds only a part of a parameter."""
    return isinstance(value, DTensor) or _zero3(value) is not None


def part(value: torch.Tensor) -> torch.Tensor:
    """What this process holds of a parameter, sharing its memory; all of it where it is not divided."""
    held = value.detach()
    if isinstance(held, DTensor):
        return held.to_local()
    return held if _zero3(value) is None else _zero3(value).ds_tensor.detach()


def whole(value: torch.Tensor) -> torch.Tensor:
    """A parameter gathered from its parts, without a graph; all processes call it together."""
    if isinstance(value, DTensor):
        gathered: torch.Tensor = value.detach().full_tensor()
        return gathered
    if _zero3(value) is None:
        return value.detach()
    import deepspeed  # type: ignore[import-not-found]  # an optional dependency

    with deepspeed.zero.GatheredParameters([value]):
        return value.detach().clone()


def part_of(weight: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """This process's part of the first one's whole ``weight``, divided as the parameter ``value`` is."""
    if isinstance(value, DTensor):
        local: torch.Tensor = distribute_tensor(weight, value.device_mesh, value.placements).to_local()
        return local
    divided = _zero3(value)
    if divided is None:
        return weight
    torch.distributed.broadcast(weight, 0)
    size = divided.ds_tensor.numel()
    padded = torch.zeros(size * torch.distributed.get_world_size(divided.ds_process_group)).to(weight)
    padded[: weight.numel()] = weight.flatten()
    first = size * torch.distributed.get_rank(divided.ds_process_group)
    return padded[first : first + size].clone()


def equalise(parameters: Iterable[nn.Parameter], device: torch.device) -> None:
    """Copy the first process's weights to all, one by one through the processes' device, before they are divided."""
    if not torch.distributed.is_initialized():
        return
    for parameter in parameters:
        value = parameter.data.to(device)
        torch.distributed.broadcast(value, 0)
        parameter.data.copy_(value)


def whole_on_first(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Whole weights on the CPU of the first process; all gather one by one together."""
    is_first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    found = {}
    for name, value in values.items():
        gathered = whole(value)
        if is_first:
            found[name] = gathered.cpu()
    return found


def any_nonzero(values: Iterable[torch.Tensor]) -> bool:
    """Whether any parameter has a number that is not 0, on any process; all of them call it together."""
    found, divides = torch.zeros(()), False
    for value in values:
        divides |= is_divided(value)
        found = torch.maximum(found.to(value.device), part(value).any().float())
    if divides:
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
    return bool(found)


def divide_by_layer(model: nn.Module, layers: type[nn.Module], device: torch.device) -> None:
    """Divide a model with FSDP2: each of its ``layers`` gathers its own weights, the model the rest."""
    mesh = torch.distributed.init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for layer in [module for module in model.modules() if isinstance(module, layers)]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh)


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    """The modules that FSDP2 gathers one by one, the model itself first if it is one."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


@contextmanager
def whole_weights(model: nn.Module) -> Iterator[None]:
    """Gather FSDP2's weights once, so processes may make different numbers of forward passes in this block.

    All processes must enter it together.
    """
    for module in sharded_modules(model):
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        release(model)


def release(model: nn.Module) -> None:
    """Free gathered weights that FSDP2 has left whole, as its root and its head are after a forward pass.

    Such a copy does not follow what is written into the parts, and has ``requires_grad`` as it was when it was made.
    """
    for module in sharded_modules(model):
        # While FSDP2 thinks that a forward pass still runs (a head that is never called), reshard needs the flag.
        module.set_reshard_after_forward(True, recurse=False)
        module.reshard()
        module.set_reshard_after_forward(module is not model, recurse=False)  # the root keeps its weights for backward


def release_zero3(model: nn.Module) -> None:
    """Free the weights that ZeRO-3 has left whole, which small ones are; the next pass gathers them again."""
    for value in model.parameters():
        divided = _zero3(value)
        if divided is not None and divided.ds_status.name == "AVAILABLE":
            divided.partition()
