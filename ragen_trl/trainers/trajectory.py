"""The second half of a trainer: from a rollout to a loss, for every algorithm of this package.

Only wiring; what it needs of TRL's inside is in `trl_adapter`. An algorithm consists of four hooks, which every update
calls in this order: `rollout`, `select_groups`, `advantages`, `policy_loss`.
"""

import logging
from abc import abstractmethod
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel

from ragen_trl.algorithms.losses import entropy_bonus, kl_penalty
from ragen_trl.batching.loss_normalization import add_step_totals
from ragen_trl.batching.micro_batches import count_positions, depends_on_split, padding_metric, regroup
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.batching.segments import segment_loss, segment_rows
from ragen_trl.config.validation import check_segments_trainable
from ragen_trl.system.old_names import FormerKeys
from ragen_trl.trainers.checkpoints import resumable_checkpoint
from ragen_trl.trainers.checks import check_advantages, check_loss, check_scored, checked_groups
from ragen_trl.trainers.metrics import filter_metrics, masked_means, ratio_deviation, shown_advantages
from ragen_trl.trainers.observers import Observer, observe
from ragen_trl.trainers.rollout import RolloutTrainer
from ragen_trl.trainers.self_check import Gap, check_gap, measure_gap

logger = logging.getLogger(__name__)

# Losses that TRL averages over rows: filler rows would dilute them.
_ROW_MEAN_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")
# Old names of what `policy_loss` gets.
_FORMER_INPUTS = {"window_tokens": "step_tokens", "window_trajectories": "step_trajectories"}
# What the loss logs as a mean over a micro-batch's tokens; the second row only with a ratio for each token.
_TOKEN_MEANS = ("kl", "entropy")
_TOKEN_RATIO_MEANS = ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean", "cispo_clip_ratio")


class TrajectoryTrainer(RolloutTrainer):
    """Base class of the trainers of this package; an algorithm defines at least its `advantages`.

    Arguments and errors are those of `RolloutTrainer`.

    Attributes:
        observers: They are shown every rollout; see `observers.Observer`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.observers: list[Observer] = []
        self._sampler_is_checked = False

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in TRL. ``resume_from_checkpoint=True`` takes the last whole checkpoint.

        Raises:
            SamplerMismatchError: If the trainer computes other log-probabilities for the tokens of the first rollout
                than the sampler did, by more than rounding; see ``args.sampler_check``.
            FileNotFoundError: If there is none.
            ValueError: If a checkpoint was saved between two updates on one rollout, whose trajectories are gone.
        """
        checkpoint = resumable_checkpoint(resume_from_checkpoint, self.args.output_dir, self.args.steps_per_rollout)
        if checkpoint is not None:
            self.load_algorithm_state(checkpoint)
        self._sampler_is_checked = False  # a resumed run has other weights, and perhaps another machine
        self.before_training()
        return super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)

    def select_groups(self, rollout: RolloutBatch) -> list[int]:
        """Hook: the filter; here every group is kept.

        Args:
            rollout: Everything sampled so far for this update; with refills more than ``groups_per_generation``.

        Returns:
            Ascending indices of the groups to train on, the same on every process; an empty list means no update. If
            there are fewer than ``args.groups_per_update``, another rollout follows, up to ``max_refills`` times.
        """
        return list(range(rollout.num_groups))

    @abstractmethod
    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """Hook: the advantage estimator.

        Args:
            rollout: The groups that are trained on.

        Returns:
            (B,) one for each trajectory of all processes, or (L, T) one for each completion token of this process's
            trajectories; environment tokens are masked out later.
        """

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Hook: the loss of one micro-batch; here TRL's, of the kind that ``loss_type`` names.

        The update's loss is the sum over micro-batches and processes: divide a sum over tokens by
        ``inputs["step_tokens"]``, and a sum over trajectories by ``inputs["step_trajectories"]``.

        Args:
            model: The policy, perhaps wrapped; `score` gives its log-probabilities.
            inputs: This process's micro-batch: TRL's tensors and those of ``loss_normalization.add_step_totals``.
        """
        if "trajectory_share" in inputs and self.loss_type == "grpo":
            return self._segment_loss(model, inputs)
        loss = self.trl_loss(model, inputs)
        return loss * inputs["fill"] if self.loss_type in _ROW_MEAN_LOSSES else loss

    def _segment_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's "grpo" loss, as a mean over trajectories instead of one over rows."""
        logprobs, entropies = self.score(model, inputs)
        old, reference = (inputs.get(key) for key in ("old_per_token_logps", "ref_per_token_logps"))
        loss = segment_loss(logprobs, logprobs.detach() if old is None else old, reference, inputs, self.args)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        columns = {"entropy": entropies}
        if reference is not None:
            columns["kl"] = kl_penalty(logprobs.detach(), reference, "k3")
        self.record("train", masked_means(columns, mask, self._total))
        return loss

    def evaluation_batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Play the rows; nothing is filtered."""
        return self._sample(rows).batch

    def training_batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Play the rows, filter and refill, and give the kept groups their advantages."""
        rollout = self._sample(rows)
        kept = checked_groups(self.select_groups(rollout), rollout.num_groups)
        for attempt in range(1, self.args.max_refills + 1):
            if len(kept) >= self.args.groups_per_update:
                break
            more = self._sample(self._refill_rows(attempt), attempt)
            rollout = RolloutBatch.joined([rollout, more], self.tokenizer.pad_token_id)
            kept = checked_groups(self.select_groups(rollout), rollout.num_groups)
        return self._learn_from(rollout, kept)

    def _learn_from(self, rollout: RolloutBatch, kept: list[int]) -> dict[str, Any]:
        """Narrow the generation batch to the kept groups and add their advantages.

        All processes know all returns, so that they take the same decisions without communication.
        """
        self.record("train", filter_metrics(rollout, kept))
        chosen = rollout.select(kept, self.args.steps_per_generation)
        batch = chosen.batch
        rows, width = batch["completion_ids"].shape
        if not kept:
            self._show(rollout, kept, chosen, None)
            logger.warning("step %d makes no update: the filter kept no group", self.state.global_step + 1)
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
        """The batch with a row for each context that was read, instead of one for each whole trajectory."""
        check_segments_trainable(self.args)
        size = chosen.segment_rows(self.args.steps_per_generation)
        mask = (chosen.batch["completion_mask"] * chosen.batch["tool_mask"])[: len(advantages)]
        played = chosen.trajectories or rollout.trajectories[:1]
        batch = segment_rows(played, advantages, mask, size, self.tokenizer.pad_token_id)
        rows_a_pass = self.args.per_device_train_batch_size
        with torch.no_grad():
            if "old_per_token_logps" in chosen.batch:
                batch["old_per_token_logps"], _ = self.score(self.model, batch, rows_a_pass)
            if "ref_per_token_logps" in chosen.batch:
                batch["ref_per_token_logps"] = self.score_reference(batch, rows_a_pass)
        return {**batch, "num_items_in_batch": chosen.batch["num_items_in_batch"]}

    def prepare_micro_batches(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Regroup the rows by length and write each optimizer step's totals into its micro-batches."""
        accumulation, processes = self.args.gradient_accumulation_steps, self.accelerator.num_processes
        regrouped = self._regroup(micro_batches)
        add_step_totals(regrouped, accumulation, processes, self._total)
        self.record("train", padding_metric(self._total(count_positions(regrouped))))
        return regrouped

    def _regroup(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Put rows of similar length together, where the loss allows it."""
        by_length = not depends_on_split(self.args, self.aux_loss_enabled)
        return regroup(micro_batches, self.args.gradient_accumulation_steps, by_length)

    def training_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """`policy_loss` and the entropy bonus of one micro-batch, checked and logged."""
        if inputs["skip"] or (inputs["empty"] and not self.accelerator.sync_gradients):
            # Nothing to learn: a loss that no parameter depends on leaves every gradient None, and an optimizer
            # skips parameters without gradient (no momentum step, no weight decay). The last micro-batch of a step
            # is computed even if it is filler, because processes exchange gradients in it.
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        # Sorted by length, micro-batches hold different numbers of tokens: their means are weighted by their share.
        # A micro-batch of filler says nothing about the policy, so that nothing is logged of it.
        of_tokens = (*_TOKEN_MEANS, *(_TOKEN_RATIO_MEANS if self.importance_sampling_level == "token" else ()))
        share = inputs["token_share"].item()
        with self.revised_metrics(dict.fromkeys(of_tokens, share), keep=not inputs["empty"]):
            with self.recorded_scores() as scores:
                loss = self.policy_loss(model, FormerKeys(inputs, _FORMER_INPUTS))
            check_loss(loss)
            check_scored(scores)
            logprobs, entropies = scores[-1]
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            deviation = ratio_deviation(logprobs, inputs["sampling_per_token_logps"], mask.bool())
            self._check_sampler(logprobs, inputs)
            largest = self.accelerator.gather(deviation).max().item()
            self.record("train", {"sampling/ratio_deviation_max": largest})
            if self.args.entropy_coef and not self.args.use_adaptive_entropy:
                loss = loss - self.args.entropy_coef * entropy_bonus(entropies, mask, inputs["step_tokens"])
        return loss

    def _check_sampler(self, logprobs: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Compare with the sampler until the first update of this training, micro-batch by micro-batch."""
        if self._sampler_is_checked:
            return
        self._sampler_is_checked = self.accelerator.sync_gradients
        self.check_gap_to_sampler(measure_gap(logprobs, inputs, self._sampler_slack))

    def check_gap_to_sampler(self, parts: torch.Tensor) -> Gap:
        """Compare the trainer's log-probabilities of sampled tokens with the sampler's; all processes call it together.

        Args:
            parts: (4,) of this process, from `measure_gap`.

        Raises:
            SamplerMismatchError: If they differ by more than rounding and ``args.sampler_check`` is "stop".
        """
        gap = Gap.of(self.accelerator.gather(parts))
        check_gap(gap, self._tolerance, self.model_name, self.args.sampler_check == "stop")
        return gap

    def _show(self, rollout: RolloutBatch, kept: list[int], chosen: RolloutBatch, advantages: Any) -> None:
        """Show advantages in TRL's table of completions, which holds the last rollout, and events to observers."""
        self.show_advantages(shown_advantages(rollout, kept, chosen, advantages, gather_object))
        if self.observers:
            event = observe(self.state.global_step, rollout, kept, chosen, advantages)
            for observer in self.observers:
                observer.on_rollout(event)

    def before_training(self) -> None:
        """Hook: called before the first update, after a checkpoint is loaded. Does nothing by default."""
