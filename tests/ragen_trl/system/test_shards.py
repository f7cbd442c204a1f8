"""FSDP2 on one process: what `shards` needs of torch's inside, which a new release may change."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ragen_trl.system.shards import (
    any_nonzero,
    divide_by_layer,
    is_divided,
    part_of,
    sharded_modules,
    whole,
    whole_on_first,
    whole_weights,
)

CPU = torch.device("cpu")


class Layer(nn.Linear):
    """What is divided by itself."""


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """One for all tests: torch keeps meshes by their shape, and those of a group that is gone name it still."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def network() -> nn.Sequential:
    """The same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(Layer(3, 4), nn.Tanh(), Layer(4, 2))


def divided() -> nn.Sequential:
    model = network()
    divide_by_layer(model, Layer, CPU)
    return model


def test_weights_are_whole_in_the_block_and_parts_after_it(one_process: None) -> None:
    model, plain = divided(), network()
    modules = sharded_modules(model)
    assert len(modules) == 3 and modules[0] is model
    inputs = torch.ones(1, 3)
    expected = plain(inputs)
    with whole_weights(model):
        assert not any(isinstance(value, DTensor) for value in model.parameters())
        assert torch.equal(model(inputs), expected)
        assert not any(isinstance(value, DTensor) for value in model.parameters())  # a pass has not divided them again
    assert all(is_divided(value) for value in model.parameters())
    assert torch.equal(model(inputs), expected)
    (group,) = modules[1]._get_fsdp_state()._fsdp_param_groups
    assert group._reshard_after_forward  # as it was before the block


def test_what_is_gathered_and_cut_is_what_was_divided(one_process: None) -> None:
    model, plain = divided(), network()
    weights = plain.state_dict()
    for name, value in model.state_dict(keep_vars=True).items():
        assert torch.equal(whole(value), weights[name])
        assert torch.equal(part_of(weights[name], value), value.to_local())
    gathered = whole_on_first(model.state_dict())
    assert gathered.keys() == weights.keys()
    assert all(torch.equal(found, weights[name]) for name, found in gathered.items())


def test_any_number_that_is_not_0_is_seen(one_process: None) -> None:
    model = divided()
    assert any_nonzero(model.parameters())
    for value in model.parameters():
        value.data.zero_()
    assert not any_nonzero(model.parameters())
