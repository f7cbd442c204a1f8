"""The learning half of a trainer: from what was sampled to a loss, for every algorithm of this package.

Wiring only. What an algorithm is made of are four hooks, called in this order by every update: `rollout`,
`select_groups`, `advantages`, `policy_loss`. Seams of TRL 1.16 this leans on, besides those of `rollout_trainer`, each
pinned by a contract test:

- the result of ``_generate_and_score_completions`` is what ``_prepare_inputs`` splits into ``_buffered_inputs``, one
  micro-batch each;
- ``_compute_loss`` reads ``advantages`` of shape (B,) or (B, T), asks ``_get_per_token_logps_and_entropies`` once, and
  divides by ``current_gradient_accumulation_steps`` or, where it counts tokens, by ``num_items_in_batch``;
- ``_entropy_bonus_enabled`` switches its entropy bonus, a mean per micro-batch, which ours replaces;
- ``_save_checkpoint`` writes a checkpoint's folder, ``trainer_state.json`` last.
"""

import logging
from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ragen_trl.accumulation import add_window_totals
from ragen_trl.checkpoints import resumable_checkpoint
from ragen_trl.experience import Experience
from ragen_trl.hook_checks import check_advantages, check_loss, checked_groups
from ragen_trl.losses import entropy_bonus
from ragen_trl.rollout_metrics import filter_metrics, shown_advantages
from ragen_trl.rollout_trainer import RolloutTrainer

logger = logging.getLogger(__name__)

# Losses that TRL averages over rows: filler rows would dilute them.
_ROW_MEAN_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")


class TrajectoryTrainer(RolloutTrainer):
    """What the trainers of this package have in common; an algorithm says at least what its `advantages` are.

    Arguments and errors are those of `RolloutTrainer`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scored: tuple[torch.Tensor, torch.Tensor | None] = (torch.empty(0), None)
        self._entropy_bonus_enabled = self.args.use_adaptive_entropy

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in TRL. ``resume_from_checkpoint=True`` takes the last checkpoint that was written whole.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If a checkpoint lies in the middle of the updates of one rollout, whose trajectories are gone.
        """
        checkpoint = resumable_checkpoint(resume_from_checkpoint, self.args.output_dir, self.args.steps_per_rollout)
        if checkpoint is not None:
            self._load_beside(checkpoint)
        self._before_training()
        return super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)

    def select_groups(self, experience: Experience) -> list[int]:
        """Hook: the filter; here every group is kept.

        Args:
            experience: Everything sampled so far for this update; with refills more than ``groups_per_generation``.

        Returns:
            Ascending indices of the groups to train on, the same on every process; none means no update. Fewer than
            ``args.groups_per_update`` are filled up by another rollout, ``max_refills`` times at most.
        """
        return list(range(experience.num_groups))

    @abstractmethod
    def advantages(self, experience: Experience) -> torch.Tensor:
        """Hook: the advantage estimator.

        Args:
            experience: The groups that are trained on.

        Returns:
            (B,) one for each trajectory of all processes, or (L, T) for every completion token of this process's
            trajectories; environment tokens are masked out later.
        """

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Hook: the loss of one micro-batch; here TRL's, of the kind that ``loss_type`` names.

        Losses of micro-batches and processes are added up to the update's: a sum over tokens is to be divided by
        ``inputs["window_tokens"]``, one over trajectories by ``inputs["window_trajectories"]``.

        Args:
            model: The policy, perhaps wrapped; `score` gives its log-probabilities.
            inputs: This process's micro-batch: TRL's tensors and those of ``accumulation.add_window_totals``.
        """
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        return loss * inputs["fill"] if self.loss_type in _ROW_MEAN_LOSSES else loss

    def score(
        self, model: PreTrainedModel, inputs: dict[str, Any], batch_size: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (nats) of the completion tokens, both (B, T), for losses of one's own.

        The policy has to be scored last in a micro-batch: what is logged comes from the last call.

        Args:
            model: The policy, or the policy as its reference.
            inputs: TRL's tensors of a micro-batch, or of a whole rollout.
            batch_size: Rows in one forward pass; unset: all.
        """
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        width = inputs["completion_ids"].shape[1]
        scored = self._get_per_token_logps_and_entropies(
            model, ids, attention, width, batch_size=batch_size, compute_entropy=True
        )
        return scored[0], scored[1]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return self._sample(inputs).batch
        experience = self._sample(inputs)
        kept = checked_groups(self.select_groups(experience), experience.num_groups)
        for attempt in range(1, self.args.max_refills + 1):
            if len(kept) >= self.args.groups_per_update:
                break
            more = self._sample(self._refill_rows(attempt), attempt)
            experience = Experience.joined([experience, more], self._tokenizer.pad_token_id)
            kept = checked_groups(self.select_groups(experience), experience.num_groups)
        return self._learn_from(experience, kept)

    def _learn_from(self, experience: Experience, kept: list[int]) -> dict[str, Any]:
        """Narrow the generation batch to the kept groups and give it their advantages.

        Every process sees all returns, hence all take the same decision without another collective.
        """
        self._record("train", filter_metrics(experience, kept))
        chosen = experience.select(kept, self.args.steps_per_generation)
        batch = chosen.batch
        rows, width = batch["completion_ids"].shape
        if not kept:
            logger.warning("step %d makes no update: no group has anything to teach", self.state.global_step + 1)
            return {**batch, "advantages": torch.zeros(rows, device=self.accelerator.device)}
        advantages = self.advantages(chosen)
        here = len(chosen.trajectories)
        check_advantages(advantages, len(chosen.outlines), (here, width))
        self._log_advantages(experience, kept, shown_advantages(chosen, advantages, gather_object))
        local = advantages[chosen.rows] if advantages.ndim == 1 else advantages
        batch["advantages"] = torch.cat([local, local.new_zeros((rows - here, *local.shape[1:]))])
        return batch

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if self.model.training and self._buffered_inputs is not before:
            accumulation, processes = self.args.gradient_accumulation_steps, self.accelerator.num_processes
            add_window_totals(self._buffered_inputs, accumulation, processes, self._total)
        return inputs

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._scored = result[0].detach(), result[1]
        return result

    def _compute_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        if not self.model.training:
            return super()._compute_loss(model, inputs)
        if inputs["skip"]:
            # Nothing to learn: a loss that no parameter depends on leaves every gradient None, and an optimiser
            # passes over parameters without gradient (no momentum step, no weight decay).
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        metrics = self._metrics["train"]
        logged = {name: len(values) for name, values in metrics.items()}
        loss = self.policy_loss(model, inputs)
        check_loss(loss)
        logprobs, entropies = self._scored
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        self._log_ratio(logprobs, inputs["sampling_per_token_logps"], mask.bool())
        if self.args.entropy_coef and not self.args.use_adaptive_entropy:
            loss = loss - self.args.entropy_coef * entropy_bonus(entropies, mask, inputs["window_tokens"])
        if inputs["empty"]:  # filler alone: zeros that would pull down the means that are logged
            for name, values in metrics.items():
                del values[logged.get(name, 0) :]
        return loss

    def _log_ratio(self, logprobs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> None:
        """How far π(trained) / π(sampled) is from 1 at most: 0 up to rounding before the first update of a batch."""
        difference = (logprobs - sampled)[mask]
        deviation = difference.exp().sub(1).abs().amax() if difference.numel() else difference.new_zeros(())
        largest = self.accelerator.gather(deviation).max().item()
        self._metrics["train"]["sampling/ratio_deviation_max"].append(largest)

    def _log_advantages(self, experience: Experience, kept: list[int], shown: list[float]) -> None:
        """Put what is trained into TRL's table of completions, which holds the last rollout: 0 where it was dropped."""
        values = iter(shown)
        groups = set(kept)
        everyone = [
            next(values) if row // experience.group_size in groups else 0.0 for row in range(len(experience.outlines))
        ]
        self._logs["advantages"].clear()
        self._logs["advantages"].extend(everyone)  # a deque as long as a rollout: the last ones stay

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        self._save_beside(folder)  # before TRL, whose last file says that a checkpoint is whole
        super()._save_checkpoint(model, trial)

    def _before_training(self) -> None:
        """What an algorithm does first, behind the loading of a checkpoint. Nothing here."""

    def _save_beside(self, checkpoint: Path) -> None:
        """Write what an algorithm needs besides the policy to go on. Nothing here."""

    def _load_beside(self, checkpoint: Path) -> None:
        """Read what ``_save_beside`` wrote."""
