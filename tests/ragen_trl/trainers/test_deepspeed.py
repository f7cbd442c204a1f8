"""Updates under DeepSpeed ZeRO-2, whose engine wants a loss with a graph and takes every step.

With DeepSpeed installed (``pip install deepspeed``) two processes train with it on the CPU; without, a stand-in shows
what its engine would be given.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOConfig, StarPOTrainer
from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.trainers import parameters, small_trainer
from tests.support.ragen_trl.zero_two_ranks import CASES, updated


class Engine(StarPOTrainer):
    """Calculates its losses as under DeepSpeed, and keeps them."""

    def training_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.is_deepspeed_enabled = True
        try:
            loss = super().training_loss(model, inputs)
        finally:
            self.is_deepspeed_enabled = False
        self.graphs = [*getattr(self, "graphs", []), loss.grad_fn is not None]
        return loss


@pytest.mark.parametrize("name", CASES)
def test_every_micro_batch_has_a_graph_and_the_step_is_the_same(tmp_path: Path, name: str) -> None:
    """Regression: filler had a leaf of zero as its loss, which DeepSpeed's engine refuses."""
    env, options = CASES[name]
    options = {**options, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 6}
    engine: Any = small_trainer(tmp_path / "engine", env, trainer=Engine, **options)
    engine.train()
    assert engine.graphs == [True] * 6 * engine.args.max_steps
    plain = small_trainer(tmp_path / "plain", env, **options)
    plain.train()
    for key, value in parameters(plain).items():
        torch.testing.assert_close(parameters(engine)[key], value, rtol=1e-5, atol=1e-7, msg=key)


def test_a_step_without_a_group_changes_nothing_and_the_next_one_has_its_rate(tmp_path: Path) -> None:
    """Gradients of 0 would still decay weights by 0.5 · 0.01, and move them by their momentum."""
    env, options = CASES["no group"]
    engine: Any = small_trainer(tmp_path, env, trainer=Engine, max_steps=1, **options)
    before = parameters(engine)
    engine.train()
    assert all(torch.equal(value, before[key]) for key, value in parameters(engine).items())
    assert engine.optimizer.param_groups[0]["lr"] == 0.01


def test_weights_that_every_pass_gathers_are_refused() -> None:
    with pytest.raises(ValueError, match="ds3_gather_for_generation is False.*: .*wait for the others for ever"):
        StarPOConfig(output_dir="unused", use_cpu=True, bf16=False, ds3_gather_for_generation=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left the weights of all cases."""
    pytest.importorskip("deepspeed")
    path = tmp_path_factory.mktemp("zero")
    on_two_processes("tests.support.ragen_trl.zero_two_ranks", path, timeout=400)
    return path


@pytest.mark.parametrize("name", CASES)
def test_two_processes_with_zero_2_take_the_step_of_one(folder: Path, tmp_path: Path, name: str) -> None:
    alone = updated(tmp_path, name, 24, 1)
    ranks = [torch.load(folder / f"{name} {rank}.pt") for rank in (0, 1)]
    for key, value in alone.items():
        torch.testing.assert_close(ranks[0][key], value, rtol=1e-4, atol=1e-6, msg=key)
        assert torch.equal(ranks[0][key], ranks[1][key])
