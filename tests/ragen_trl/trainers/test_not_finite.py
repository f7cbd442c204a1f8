"""A loss or a gradient that is not finite stops a run before the optimizer step, on all processes together."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.errors import NotFiniteError
from tests.support.ragen_trl.trainers import lottery, parameters, small_trainer

STEPS: dict[str, Any] = {"max_steps": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}


class Broken(StarPOTrainer):
    """Its second update goes wrong, in the second of two micro-batches."""

    fault = ""

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super().policy_loss(model, inputs)
        if self.state.global_step == 0 or self.micro_step == 0:
            return loss
        self.before = parameters(self)
        if self.fault == "loss":
            return loss * float("nan")
        # A finite loss with an infinite derivative: √x at 0.
        return loss + (0 * loss).abs().sqrt()


def run(folder: Path, fault: str, **options: Any) -> Any:
    trainer: Any = small_trainer(folder, lottery(draws=2), trainer=Broken, **STEPS, **options)
    trainer.fault = fault
    return trainer


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("loss", r"^step 2, micro-batch 2 of 2: the loss is nan.*no weight has changed"),
        ("gradient", r"^step 2: the norm of the gradient is nan.*no weight has changed"),
    ],
)
def test_the_run_stops_before_a_weight_moves(
    tmp_path: Path, fault: str, message: str, max_grad_norm: float
) -> None:
    """Before, both made every weight NaN, and the run went on with random replies."""
    trainer = run(tmp_path, fault, max_grad_norm=max_grad_norm)
    with pytest.raises(NotFiniteError, match=message):
        trainer.train()
    assert trainer.state.global_step == 1
    after = parameters(trainer)
    assert all(torch.equal(value, after[name]) for name, value in trainer.before.items())


def test_the_error_says_what_is_not_finite(tmp_path: Path) -> None:
    """A weight that is NaN makes log-probabilities NaN: the model is at fault, not the advantages."""
    trainer = small_trainer(tmp_path, lottery(), max_steps=1, beta=0.0)
    trained = trainer.training_loss

    def spoiled(model: Any, inputs: Any) -> torch.Tensor:
        with torch.no_grad():
            model.lm_head.weight.fill_(float("nan"))
        return trained(model, inputs)

    trainer.training_loss = spoiled  # type: ignore[method-assign]
    with pytest.raises(NotFiniteError, match=r"log-probabilities of the policy \(\d+ of \d+ sampled tokens\)"):
        trainer.train()


def test_the_loss_of_another_process_stops_this_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gathered decides, so that no process waits for one that has stopped."""
    trainer = small_trainer(tmp_path, lottery(), max_steps=1)
    gather = trainer.accelerator.gather

    def with_another(value: Any) -> Any:
        found = gather(value)
        if getattr(found, "ndim", 0) == 2 and found.shape[1] == 2:  # ratio's deviation, whether the loss is finite
            return torch.cat([found, torch.tensor([[0.0, 1.0]])])
        return found

    monkeypatch.setattr(trainer.accelerator, "gather", with_another)
    with pytest.raises(NotFiniteError, match="of another process"):
        trainer.train()


def test_the_critic_stops_before_its_step_too(tmp_path: Path) -> None:
    trainer: Any = small_trainer(tmp_path, lottery(draws=2), advantage="gae", max_steps=1)
    head = trainer.critic.network.head
    before = [value.detach().clone() for value in trainer.critic.network.parameters]
    head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NotFiniteError, match="the norm of the critic's gradient is"):
        trainer.train()
    assert all(torch.equal(*pair) for pair in zip(before, trainer.critic.network.parameters, strict=True))
