"""One step off: the next rollout is played with the weights before the present one's updates, and corrected for that."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from ragen_trl import StarPOTrainer
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.fake_vllm import LORA
from tests.support.ragen_trl.trainers import lottery, small_trainer

RUN: dict[str, Any] = {"max_steps": 4, "learning_rate": 1e-2, "one_step_off_policy": True}


def checksum(model: Any) -> float:
    """A number that any update changes."""
    return sum(float(value.detach().double().abs().sum()) for value in model.parameters())


class Watched(StarPOTrainer):
    """Notes with which weights, in which thread and from which seeds each rollout is played."""

    def rollout(self, starts: list[Start], envs: list[Any], policy: Policy) -> list[Trajectory]:
        """As in training."""
        self.threads.append(threading.current_thread().name)
        self.weights.append(checksum(policy.model))
        played = super().rollout(starts, envs, policy)
        assert checksum(policy.model) == self.weights[-1]
        self.seeds.append([(start.seed, start.outcome_seed, start.sampling_seed) for start in starts])
        self.played.append([trajectory.token_ids for trajectory in played])
        return played

    def training_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        """Notes the weights that a rollout is trained with."""
        self.trained.append(checksum(self.accelerator.unwrap_model(self.model)))
        return super().training_loss(model, inputs)


def watched(folder: Path, **options: Any) -> Watched:
    trainer = small_trainer(folder, lottery(draws=2), trainer=Watched, **{**RUN, **options})
    assert isinstance(trainer, Watched)
    trainer.threads, trainer.weights, trainer.seeds, trainer.played, trainer.trained = [], [], [], [], []
    return trainer


def logged(trainer: StarPOTrainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


@pytest.mark.parametrize("lora", [False, True])
def test_every_rollout_but_the_first_is_one_update_old_and_no_seed_changes(tmp_path: Path, lora: bool) -> None:
    more = {"peft_config": LoraConfig(**LORA, init_lora_weights=False)} if lora else {}
    torch.manual_seed(0)
    ahead = watched(tmp_path, **more)
    ahead.train()
    assert ahead.threads == ["MainThread"] + ["rollout ahead"] * 3
    assert len(set(ahead.trained)) == 4
    assert ahead.weights == [ahead.trained[0], *ahead.trained[:3]]  # rollout k + 1 with the weights before update k
    assert logged(ahead, "rollout/staleness") == [0, 1, 1, 1]
    torch.manual_seed(0)
    now = watched(tmp_path, one_step_off_policy=False, **more)
    now.train()
    assert now.threads == ["MainThread"] * 4
    assert now.weights == now.trained
    assert ahead.seeds == now.seeds
    assert ahead.played[0] == now.played[0]
    assert ahead.played[1:] != now.played[1:]
    assert not logged(now, "rollout/staleness")
