"""Updates under DeepSpeed, whose engine wants a loss with a graph and takes every step.

A stand-in shows what its engine would be given; ``tests/sharded`` has the engine itself.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOConfig, StarPOTrainer
from tests.support.ragen_trl.trainers import lottery, parameters, small_trainer

_STEP: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "entropy_coef": 0.01}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "all groups": (lottery(draws=3), {**_STEP, "max_steps": 1}),
    "a filter": (lottery(draws=3), {**_STEP, "filter_ratio": 0.4, "max_steps": 2}),
    "one group": (lottery(draws=3), {**_STEP, "filter_ratio": 0.2, "max_steps": 1}),
    "no group": (lottery(win=0.0), {"filter_ratio": 0.4, "weight_decay": 0.5, "learning_rate": 0.01}),
}


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


def test_a_critic_warms_up_on_parts_of_trajectories(tmp_path: Path) -> None:
    """Regression: StopIteration, since a skipped micro-batch is a copy that the update's list does not have."""
    options: dict[str, Any] = {"advantage": "gae", "critic_warmup_steps": 1, "window_turns": 1, "num_iterations": 2}
    options |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    engine: Any = small_trainer(
        tmp_path, lottery(draws=3), trainer=Engine, importance_sampling_level="sequence", **options
    )
    engine.train()
    assert engine.graphs == [True] * 8


def test_weights_that_every_pass_gathers_are_refused() -> None:
    with pytest.raises(ValueError, match="ds3_gather_for_generation is False.*: .*wait for the others for ever"):
        StarPOConfig(output_dir="unused", use_cpu=True, bf16=False, ds3_gather_for_generation=False)
