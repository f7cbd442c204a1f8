"""Apple's MPS has no float64: what needs it is on the CPU there, and nothing else is in float64.

No machine here has MPS. The module that knows about it is tried with torch's fake tensors of that device. A whole run
is on the CPU, where every float64 tensor must come from that module.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ragen_trl.algorithms.advantages import moments, whiten
from ragen_trl.algorithms.soft_values import soft_value
from ragen_trl.system import float64
from ragen_trl.system.float64 import float64_device, float64_tensor, in_float64
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import lottery, small_trainer

MPS = torch.device("mps")


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class WithoutFloat64OnMPS(TorchDispatchMode):
    """Says what torch says there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(each.dtype == torch.float64 and each.device.type == "mps" for each in tensors(result)):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        return result


@contextmanager
def on_mps() -> Iterator[None]:
    with FakeTensorMode(), WithoutFloat64OnMPS():
        yield


def test_on_mps_float64_is_on_the_cpu() -> None:
    with on_mps():
        for found in (
            in_float64(torch.zeros(3, device=MPS)),
            in_float64(torch.zeros(3, device=MPS, dtype=torch.bool)),
            float64_tensor([1.0, 2.0], MPS),
            float64_tensor(np.ones((2, 3)), MPS),
        ):
            assert (found.dtype, found.device.type) == (torch.float64, "cpu")


def test_the_fake_refuses_what_mps_refuses() -> None:
    with on_mps():
        with pytest.raises(TypeError, match="doesn't support float64"):
            torch.zeros(3, device=MPS).double()
        with pytest.raises(TypeError, match="doesn't support float64"):
            torch.zeros(3, device=MPS, dtype=torch.float64)
        with pytest.raises(Exception, match="same device"):
            torch.zeros(3, device=MPS) + torch.zeros(3)


def test_other_devices_keep_their_float64() -> None:
    assert float64_device(MPS) == torch.device("cpu")
    for name in ("cpu", "cuda:1", "meta"):
        assert float64_device(torch.device(name)) == torch.device(name)
    assert float64_tensor([1.0, 2.0], torch.device("cpu")).dtype == torch.float64
    assert in_float64(torch.ones(2)).tolist() == [1.0, 1.0]


class OnlyFromOneModule(TorchDispatchMode):
    """Refuses float64 tensors that are made of others without the module above."""

    made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [] if func is torch.ops.aten.lift_fresh.default else tensors((args, kwargs))
        precise = any(each.dtype == torch.float64 for each in given)
        if any(each.dtype == torch.float64 for each in tensors(result)) and not precise:
            frame = sys._getframe()
            files = set()
            while frame is not None:
                files.add(frame.f_code.co_filename)
                frame = frame.f_back  # type: ignore[assignment]
            if float64.__file__ not in files:
                raise TypeError(f"{func} makes a float64 tensor without {float64.__name__}")
            self.made += 1
        return result


def test_the_guard_sees_a_float64_tensor_that_is_made_elsewhere() -> None:
    with OnlyFromOneModule() as guard:
        in_float64(torch.ones(3)).exp()
        assert guard.made == 1
        for make in (
            lambda: torch.ones(3).double(),
            lambda: torch.zeros(3, dtype=torch.float64),
            lambda: torch.tensor(np.ones(3)),
        ):
            with pytest.raises(TypeError, match="without"):
                make()


@pytest.mark.parametrize("form", ["group", "gae", "A*-PO"])
def test_a_rollout_and_an_update_make_float64_tensors_only_where_mps_is_known(tmp_path: Path, form: str) -> None:
    options: dict[str, Any] = {"max_steps": 1, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    if form == "A*-PO":
        trainer = astar(tmp_path, lottery(draws=3), **options)
    else:
        more = {"filter_ratio": 0.5} if form == "group" else {}
        trainer = small_trainer(tmp_path, lottery(draws=3), advantage=form, **options, **more)
    with OnlyFromOneModule() as guard:
        trainer.train()
    assert guard.made > 3
    assert trainer.state.global_step == 1


def test_whitening_is_that_of_float64() -> None:
    values = torch.tensor([[1e4, 1e4 + 1, 1e4 + 3]])
    mask = torch.ones_like(values)
    assert moments(values, mask).dtype == torch.float64
    assert whiten(values, mask)[0].tolist() == pytest.approx([-0.8729, -0.2182, 1.0911], abs=1e-4)
    assert soft_value(torch.tensor([0.0, 1.0]), 1.0).dtype == torch.float64
