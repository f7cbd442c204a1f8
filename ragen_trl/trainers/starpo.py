"""StarPO and StarPO-S: the algorithm, in the hooks of `TrajectoryTrainer`.

With group-relative advantages only the policy is trained. The PPO forms also have a critic, which learns from every
rollout before the policy does.
"""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.config.reading import CRITIC_ADVANTAGES
from ragen_trl.credit.critic import Critic
from ragen_trl.credit.estimators import critic_advantages, trajectory_advantages, turn_advantages
from ragen_trl.credit.selection import uncertain_groups
from ragen_trl.trainers.trajectory import TrajectoryTrainer


class StarPOTrainer(TrajectoryTrainer):
    """Train a language model as an agent, with StarPO or StarPO-S (RAGEN, arXiv 2504.20073).

    Arguments and errors are as in `TrajectoryTrainer`; ``args`` is a ``StarPOConfig`` or ``StarPOSConfig``.

    Attributes:
        critic: The value model of the PPO forms (``advantage="gae"``, ``"turn_gae"``, ``"bi_level_gae"``), or ``None``.

    Example:
        See the README: a LoRA run of Qwen2.5-0.5B-Instruct in ten lines.
    """

    _tag_names = ["trl", "ragen", "starpo"]
    _name = "StarPO"
    _paper = {
        "title": "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning",
        "id": "2504.20073",
        "citation": """\
@article{wang2025ragen,
    title        = {{RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning}},
    author       = {Zihan Wang and others},
    year         = 2025,
    eprint       = {arXiv:2504.20073},
}""",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if type(self) is StarPOTrainer and self.args.filter_ratio < 1 and self.args.filter_strategy == "top_k":
            self._name = "StarPO-S"  # in the model card
        self.critic = self._make_critic() if self.args.advantage in CRITIC_ADVANTAGES else None

    def _make_critic(self) -> Critic:
        args = self.args
        return Critic(
            self.accelerator.unwrap_model(self.model),
            self.accelerator,
            pad_id=self.tokenizer.pad_token_id,
            batch_size=args.per_device_train_batch_size,
            learning_rate=args.critic_learning_rate,
            betas=(args.adam_beta1, args.adam_beta2),
            eps=args.adam_epsilon,
            weight_decay=args.weight_decay,
            max_grad_norm=args.max_grad_norm or math.inf,
            gradient_checkpointing=args.gradient_checkpointing,
            schedule=args.critic_lr_scheduler_type,
            warmup=args.critic_lr_warmup_rollouts,
            updates=self.num_rollouts,
            shares_prefixes=self.shares_prefixes,
        )

    def select_groups(self, rollout: RolloutBatch) -> list[int]:
        """The most uncertain groups (StarPO-S); all of them with ``filter_ratio=1``."""
        return uncertain_groups(rollout, self.args)

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """The estimator that ``args.advantage`` names. A critic gives its values here, and then learns."""
        if self.critic is not None:
            step = self.state.global_step
            with self.whole_under_zero3() if self.critic.network.kind == "adapter" else nullcontext():
                advantages, metrics = critic_advantages(self.critic, rollout, self.args, self._total, step)
            self.record("train", metrics)
            return advantages
        if self.args.advantage == "group":
            return trajectory_advantages(rollout, self.args)
        return turn_advantages(rollout, self.args)

    def _learn_from(self, rollout: RolloutBatch, kept: list[int]) -> dict[str, Any]:
        batch = super()._learn_from(rollout, kept)
        if self.critic is not None:
            self.critic.end_rollout()
        return batch

    def training_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """As in `TrajectoryTrainer`; the policy does not learn while the critic warms up."""
        if self.critic is not None and self.state.global_step < self.args.critic_warmup_steps:
            inputs = {**inputs, "skip": torch.tensor(True)}  # the critic has already learnt from this rollout
        return super().training_loss(model, inputs)

    def save_algorithm_state(self, folder: Path) -> None:
        """Write the critic and its optimizer."""
        if self.critic is not None:
            self.critic.save(folder / "critic")

    def load_algorithm_state(self, folder: Path) -> None:
        """Read the critic and its optimizer."""
        if self.critic is not None:
            self.critic.load(folder / "critic")
