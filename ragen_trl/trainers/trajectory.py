"""The learning half of a trainer: from what was sampled to a loss, for every algorithm of this package.

Wiring only. What an algorithm is made of are four hooks, called in this order by every update: `rollout`,
`select_groups`, `advantages`, `policy_loss`. Seams of TRL 1.16 this leans on, besides those of `rollout`, each
pinned by a contract test:

- the result of ``_generate_and_score_completions`` is what ``_prepare_inputs`` splits into ``_buffered_inputs``, one
  micro-batch each, of which it returns that of ``_step``;
- ``_get_per_token_logps_and_entropies`` takes a ``batch_size`` where it scores a whole rollout, and scores the last
  ``logits_to_keep`` columns in tiles, never with all logits at once;
- ``_compute_loss`` reads ``advantages`` of shape (B,) or (B, T), asks ``_get_per_token_logps_and_entropies`` once, and
  divides by ``current_gradient_accumulation_steps`` or, where it counts tokens, by ``num_items_in_batch``;
- it logs one mean over the micro-batch's tokens of those that are named here;
- ``_entropy_bonus_enabled`` switches its entropy bonus, a mean per micro-batch, which ours replaces;
- ``_save_checkpoint`` writes a checkpoint's folder, ``trainer_state.json`` last.
"""

import logging
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.utils import use_adapter

from ragen_trl.algorithms.losses import entropy_bonus, kl_penalty
from ragen_trl.batching.loss_normalization import add_step_totals
from ragen_trl.batching.micro_batches import count_positions, depends_on_split, padding_metric, regroup, score_by_length
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.batching.segments import segment_loss, segment_rows
from ragen_trl.config.validation import check_segments_trainable
from ragen_trl.system.old_names import FormerKeys
from ragen_trl.trainers.checkpoints import resumable_checkpoint
from ragen_trl.trainers.checks import check_advantages, check_loss, checked_groups
from ragen_trl.trainers.metrics import filter_metrics, shown_advantages
from ragen_trl.trainers.observers import Observer, observe
from ragen_trl.trainers.rollout import RolloutTrainer

logger = logging.getLogger(__name__)

# Losses that TRL averages over rows: filler rows would dilute them.
_ROW_MEAN_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")
# What the loss logs as a mean over a micro-batch's tokens; the second row only with a ratio of each token.
_FORMER_INPUTS = {"window_tokens": "step_tokens", "window_trajectories": "step_trajectories"}
_TOKEN_MEANS = ("kl", "entropy")
_TOKEN_RATIO_MEANS = ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")


class TrajectoryTrainer(RolloutTrainer):
    """What the trainers of this package have in common; an algorithm says at least what its `advantages` are.

    Arguments and errors are those of `RolloutTrainer`. ``observers`` are shown every rollout (`observers.Observer`).
    """

    _buffered_inputs: list[dict[str, Any]] | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scored: tuple[torch.Tensor, torch.Tensor | None] = (torch.empty(0), None)
        self._entropy_bonus_enabled = self.args.use_adaptive_entropy
        self.observers: list[Observer] = []

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

    def select_groups(self, rollout: RolloutBatch) -> list[int]:
        """Hook: the filter; here every group is kept.

        Args:
            rollout: Everything sampled so far for this update; with refills more than ``groups_per_generation``.

        Returns:
            Ascending indices of the groups to train on, the same on every process; none means no update. Fewer than
            ``args.groups_per_update`` are filled up by another rollout, ``max_refills`` times at most.
        """
        return list(range(rollout.num_groups))

    @abstractmethod
    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """Hook: the advantage estimator.

        Args:
            rollout: The groups that are trained on.

        Returns:
            (B,) one for each trajectory of all processes, or (L, T) for every completion token of this process's
            trajectories; environment tokens are masked out later.
        """

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Hook: the loss of one micro-batch; here TRL's, of the kind that ``loss_type`` names.

        Losses of micro-batches and processes are added up to the update's: a sum over tokens is to be divided by
        ``inputs["step_tokens"]``, one over trajectories by ``inputs["step_trajectories"]``.

        Args:
            model: The policy, perhaps wrapped; `score` gives its log-probabilities.
            inputs: This process's micro-batch: TRL's tensors and those of ``accumulation.add_step_totals``.
        """
        if "trajectory_share" in inputs and self.loss_type == "grpo":
            return self._segment_loss(model, inputs)
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        return loss * inputs["fill"] if self.loss_type in _ROW_MEAN_LOSSES else loss

    def _segment_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's "grpo" is a mean over rows, here over trajectories."""
        logprobs, entropies = self.score(model, inputs)
        old, reference = (inputs.get(key) for key in ("old_per_token_logps", "ref_per_token_logps"))
        loss = segment_loss(logprobs, logprobs.detach() if old is None else old, reference, inputs, self.args)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        columns = {"entropy": entropies}
        if reference is not None:
            columns["kl"] = kl_penalty(logprobs.detach(), reference, "k3")
        self._record("train", self._means(columns, mask))
        return loss

    def _means(self, columns: dict[str, torch.Tensor], mask: torch.Tensor) -> dict[str, float]:
        """Of this micro-batch on all processes, over what the mask leaves."""
        used = mask.bool()
        sums = torch.stack([used.sum(), *(column.detach()[used].sum() for column in columns.values())])
        count, *totals = self._total(sums.double()).tolist()
        return {name: total / max(1.0, count) for name, total in zip(columns, totals, strict=True)}

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
        rollout = self._sample(inputs)
        kept = checked_groups(self.select_groups(rollout), rollout.num_groups)
        for attempt in range(1, self.args.max_refills + 1):
            if len(kept) >= self.args.groups_per_update:
                break
            more = self._sample(self._refill_rows(attempt), attempt)
            rollout = RolloutBatch.joined([rollout, more], self._tokenizer.pad_token_id)
            kept = checked_groups(self.select_groups(rollout), rollout.num_groups)
        return self._learn_from(rollout, kept)

    def _learn_from(self, rollout: RolloutBatch, kept: list[int]) -> dict[str, Any]:
        """Narrow the generation batch to the kept groups and give it their advantages.

        Every process sees all returns, hence all take the same decision without another collective.
        """
        self._record("train", filter_metrics(rollout, kept))
        chosen = rollout.select(kept, self.args.steps_per_generation)
        batch = chosen.batch
        rows, width = batch["completion_ids"].shape
        if not kept:
            self._show(rollout, kept, chosen, None)
            logger.warning("step %d makes no update: no group has anything to teach", self.state.global_step + 1)
            return {**batch, "advantages": torch.zeros(rows, device=self.accelerator.device)}
        advantages = self.advantages(chosen)
        here = len(chosen.trajectories)
        check_advantages(advantages, len(chosen.summaries), (here, width))
        self._show(rollout, kept, chosen, advantages)
        local = advantages[chosen.local_indices] if advantages.ndim == 1 else advantages
        if any(summary.segments > 1 for summary in chosen.summaries):
            return self._in_segments(rollout, chosen, local)
        batch["advantages"] = torch.cat([local, local.new_zeros((rows - here, *local.shape[1:]))])
        return batch

    def _in_segments(self, rollout: RolloutBatch, chosen: RolloutBatch, advantages: torch.Tensor) -> dict[str, Any]:
        """A row for each context that was read, instead of those that TRL made of whole trajectories."""
        check_segments_trainable(self.args)
        size = chosen.segment_rows(self.args.steps_per_generation)
        mask = (chosen.batch["completion_mask"] * chosen.batch["tool_mask"])[: len(advantages)]
        played = chosen.trajectories or rollout.trajectories[:1]
        batch = segment_rows(played, advantages, mask, size, self._tokenizer.pad_token_id)
        rows_a_pass = self.args.per_device_train_batch_size
        with torch.no_grad():
            if "old_per_token_logps" in chosen.batch:
                batch["old_per_token_logps"], _ = self.score(self.model, batch, rows_a_pass)
            if "ref_per_token_logps" in chosen.batch and self.ref_model is not None:
                batch["ref_per_token_logps"], _ = self.score(self.ref_model, batch, rows_a_pass)
            elif "ref_per_token_logps" in chosen.batch:
                policy = self.accelerator.unwrap_model(self.model)
                with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
                    batch["ref_per_token_logps"], _ = self.score(self.model, batch, rows_a_pass)
        return {**batch, "num_items_in_batch": chosen.batch["num_items_in_batch"]}

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if not self.model.training or self._buffered_inputs is None or self._buffered_inputs is before:
            return inputs
        accumulation, processes = self.args.gradient_accumulation_steps, self.accelerator.num_processes
        self._buffered_inputs = self._regroup(self._buffered_inputs)
        add_step_totals(self._buffered_inputs, accumulation, processes, self._total)
        self._record("train", padding_metric(self._total(count_positions(self._buffered_inputs))))
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _regroup(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of like length together, where the loss allows it."""
        by_length = not depends_on_split(self.args, self.aux_loss_enabled)
        return regroup(micro_batches, self.args.gradient_accumulation_steps, by_length)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        score = partial(super()._get_per_token_logps_and_entropies, model, **options)
        if batch_size is None or batch_size >= len(input_ids):
            result = score(input_ids, attention_mask, logits_to_keep)
        else:  # a whole rollout, of which nobody wants a mixture-of-experts loss
            result = *score_by_length(
                lambda *columns: score(*columns)[:2], input_ids, attention_mask, logits_to_keep, batch_size
            ), None
        self._scored = result[0].detach(), result[1]
        return result

    def _compute_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        if not self.model.training:
            return super()._compute_loss(model, inputs)
        if inputs["skip"] or (inputs["empty"] and not self.accelerator.sync_gradients):
            # Nothing to learn: a loss that no parameter depends on leaves every gradient None, and an optimiser
            # passes over parameters without gradient (no momentum step, no weight decay). The last micro-batch of a
            # step is computed even if it is filler: gradients go over processes with it.
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        metrics = self._metrics["train"]
        logged = {name: len(values) for name, values in metrics.items()}
        loss = self.policy_loss(model, FormerKeys(inputs, _FORMER_INPUTS))
        check_loss(loss)
        logprobs, entropies = self._scored
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        self._log_ratio(logprobs, inputs["sampling_per_token_logps"], mask.bool())
        if self.args.entropy_coef and not self.args.use_adaptive_entropy:
            loss = loss - self.args.entropy_coef * entropy_bonus(entropies, mask, inputs["step_tokens"])
        if inputs["empty"]:  # filler alone: zeros that would pull down the means that are logged
            for name, values in metrics.items():
                del values[logged.get(name, 0) :]
        of_tokens = (*_TOKEN_MEANS, *(_TOKEN_RATIO_MEANS if self.importance_sampling_level == "token" else ()))
        for name in metrics.keys() & set(of_tokens):  # micro-batches of like lengths hold unlike numbers of tokens
            first = logged.get(name, 0)
            metrics[name][first:] = [value * inputs["token_share"].item() for value in metrics[name][first:]]
        return loss

    def _log_ratio(self, logprobs: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> None:
        """How far π(trained) / π(sampled) is from 1 at most: 0 up to rounding before the first update of a batch."""
        difference = (logprobs - sampled)[mask]
        deviation = difference.exp().sub(1).abs().amax() if difference.numel() else difference.new_zeros(())
        largest = self.accelerator.gather(deviation).max().item()
        self._metrics["train"]["sampling/ratio_deviation_max"].append(largest)

    def _show(self, rollout: RolloutBatch, kept: list[int], chosen: RolloutBatch, advantages: Any) -> None:
        """Put what is trained into TRL's table of completions, which holds the last rollout, and before observers."""
        self._logs["advantages"].clear()  # a deque as long as a rollout: the last ones stay
        self._logs["advantages"].extend(shown_advantages(rollout, kept, chosen, advantages, gather_object))
        if self.observers:
            event = observe(self.state.global_step, rollout, kept, chosen, advantages)
            for observer in self.observers:
                observer.on_rollout(event)

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
