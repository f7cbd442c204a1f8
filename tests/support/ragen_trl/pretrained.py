"""Short trainings of a pretrained model: options, adapter and reward, and what a run leaves to look at."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from peft import LoraConfig

from ragen_trl import StarPOTrainer
from ragen_trl import trainer as trainer_module
from ragen_trl.training.self_check import Gap
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import SMALL

SHORT: dict[str, Any] = {
    **{name: value for name, value in SMALL.items() if name != "beta"},
    **{"temperature": 0.7, "max_actions_per_turn": 2, "max_reply_length": 8, "max_completion_length": 200},
    **{"per_device_train_batch_size": 4, "num_generations": 2, "max_steps": 3, "learning_rate": 1e-4},
}
LORA = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")


def variety(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """A reward that differs within a group, so that there is something to learn: a number made of the tokens."""
    return [(sum(one.token_ids) % 97) / 97 for one in trajectory]


class Run:
    """A short training: what its sampler and trainer differ by before the first update, and its weights before."""

    def __init__(self, trainer: StarPOTrainer) -> None:
        self.trainer = trainer
        self.gaps: list[Gap] = []
        self.before = self.trained()

    def trained(self) -> dict[str, torch.Tensor]:
        """A copy of the parameters that are trained, as they are now."""
        named = self.trainer.model.named_parameters()
        return {name: value.detach().clone() for name, value in named if value.requires_grad}

    def logged(self, name: str) -> list[float]:
        """A metric of every update that was logged."""
        return [row[name] for row in self.trainer.state.log_history if name in row]

    def train(self, **how: Any) -> "Run":
        """Train, and keep what the self-check found."""
        with pytest.MonkeyPatch.context() as patch:
            checked = trainer_module.check_gap

            def keep(gap: Gap, *rest: Any) -> None:
                self.gaps.append(gap)
                checked(gap, *rest)

            patch.setattr(trainer_module, "check_gap", keep)
            self.trainer.train(**how)
        return self
