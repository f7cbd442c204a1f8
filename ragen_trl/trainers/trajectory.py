"""The second half of a trainer: from a rollout to a loss, for every algorithm of this package.

An algorithm is four hooks, which every update calls in this order: `rollout`, `select_groups`, `advantages`,
`policy_loss`.
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel
from trl.models.utils import disable_gradient_checkpointing

from ragen_trl.algorithms.losses import entropy_bonus, sums_of_others
from ragen_trl.algorithms.sampler_ratio import sampler_ratio
from ragen_trl.batching.batch import cut_to_longest, sampled_mask, select_rows
from ragen_trl.batching.loss_normalization import ROW_MEAN_LOSSES, add_step_totals
from ragen_trl.batching.micro_batches import count_positions, depends_on_split, packed, position_metrics
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.batching.segments import segment_loss, segment_rows
from ragen_trl.config.validation import check_segments_trainable, short_trajectory
from ragen_trl.policies.model_support import short_context
from ragen_trl.rollout.environments import save_play_options
from ragen_trl.trainers.checkpoints import check_parts, resumable_checkpoint
from ragen_trl.trainers.checks import (
    check_advantages,
    check_loss,
    check_router,
    check_scored,
    checked_groups,
    parts_of_loss,
    raise_not_finite,
)
from ragen_trl.trainers.metrics import (
    filter_metrics,
    masked_means,
    ratio_deviation,
    sampler_metrics,
    scored_columns,
    shown_advantages,
    without_update,
)
from ragen_trl.trainers.model_card import copy_card, is_generated, write_agent_card
from ragen_trl.trainers.observers import Observer, observe
from ragen_trl.trainers.one_step_off import OneStepOffTrainer
from ragen_trl.trainers.self_check import Gap, check_gap, measure_gap
from ragen_trl.trainers.trl.plain import without_tied_head
from ragen_trl.trainers.trl.scoring import Scores

logger = logging.getLogger(__name__)

# What the loss logs as a mean over a micro-batch's tokens.
_TOKEN_MEANS = ("kl", "entropy", *(f"clip_ratio/{name}_mean" for name in ("low", "high", "region")), "cispo_clip_ratio")


class TrajectoryTrainer(OneStepOffTrainer):
    """Base class of the trainers of this package; an algorithm defines at least its `advantages`.

    Arguments and errors are those of `RolloutTrainer`.

    Attributes:
        observers: They are shown every rollout; see `observers.Observer`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for found in (short_context(self.accelerator.unwrap_model(self.model), self.args), short_trajectory(self.args)):
            if found and self.args.should_log:
                logger.warning(found)
        if self.args.window_turns is not None or self.args.context is not None:
            check_router(self.args, self.aux_loss_enabled)
        self.observers: list[Observer] = []
        self._forget_training()

    def _forget_training(self) -> None:
        self._sampler_is_checked = False  # a resumed run may have another machine
        self._gaps: list[torch.Tensor] = []  # to the sampler, of the micro-batches of the first update so far
        self._begun = False  # whether a rollout of this update has something to train on
        self._ratio_deviation = 0.0  # the largest of this update so far
        self._others_of = -1  # the update for which `_add_other_rows` has passed over them
        self._loss_without_bonus = torch.zeros(())  # of this update so far, on this process

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in TRL. ``resume_from_checkpoint=True`` takes the last whole checkpoint.

        Raises:
            SamplerMismatchError: If the trainer computes other log-probabilities for the tokens of the first rollout
                than the sampler did, by more than rounding; see ``args.sampler_check``.
            NoCheckpointError: If there is none.
            CheckpointError: If no training can go on from it; see `resumable_checkpoint` and `check_parts`.
        """
        asked, config = resume_from_checkpoint, self.args
        checkpoint = resumable_checkpoint(asked, config.output_dir, config.steps_per_rollout, config.max_steps)
        if checkpoint is not None:
            check_parts(checkpoint, self.accelerator.num_processes if self.is_deepspeed_enabled else 0)
        self._forget_training()
        with without_tied_head(self.accelerator.unwrap_model(self.model)):
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
            inputs: This process's micro-batch: TRL's tensors, and what ``loss_normalization.add_step_totals`` adds.
        """
        loss = self.trl_loss(model, inputs)
        of_rows = self.loss_type in ROW_MEAN_LOSSES and not self._has_parts(inputs)
        return loss * inputs["fill"] if of_rows else loss

    def _has_parts(self, inputs: Mapping[str, Any]) -> bool:
        """Whether rows are parts of trajectories, of whose means over tokens TRL's "grpo" would take a mean."""
        return "trajectory_share" in inputs and self.loss_type == "grpo"

    def trl_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """As in `TRLAdapter`; with rebuilt contexts "grpo" is a sum over rows, divided by ``step_trajectories``."""
        if not self._has_parts(inputs):
            return super().trl_loss(model, inputs)
        logprobs, entropies = self.score(model, inputs, self.rows_of_loss)
        old, reference = (inputs.get(key) for key in ("old_per_token_logps", "ref_per_token_logps"))
        loss, columns = segment_loss(logprobs, logprobs.detach() if old is None else old, reference, inputs, self.args)
        mode = "train" if self.model.training else "eval"
        self.record(mode, masked_means({**columns, "entropy": entropies}, sampled_mask(inputs), self._total))
        return loss

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in TRL; beside the model are its card and ``play.json``, which says how it is played with."""
        super().save_model(output_dir, _internal_call)
        folder = Path(output_dir or self.args.output_dir)
        if self.args.should_save:
            save_play_options(folder, self._tasks.specs, self.args)
        run = Path(self.args.output_dir)
        if self.is_world_process_zero() and not _internal_call and is_generated(run) and is_generated(folder):
            self.create_model_card(run.name)
            copy_card(run, folder)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """As in TRL, with what the agent plays in place of a question to a chat model."""
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            write_agent_card(Path(self.args.output_dir), self._tasks.specs, self.args)

    def evaluation_batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Play the rows; nothing is filtered. A context that was rebuilt is a row, as in training."""
        rollout, batch = self._sample(rows)
        if all(summary.segments == 1 for summary in rollout.summaries):
            return batch
        parts = segment_rows(rollout.trajectories, batch["advantages"], sampled_mask(batch), rollout.pad_id)
        batch = select_rows(parts, range(len(parts["advantages"])), rollout.most_rows)
        with torch.no_grad():
            self._add_trl_scores(batch, "eval")
        return {**batch, "step_trajectories": rollout.most_rows}  # a loss is a mean over rows until they are counted

    def training_batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Play the rows, filter and refill, and give the kept groups their advantages."""
        rollout, _ = self._sample(rows)
        kept = self._selected(rollout)
        for attempt in range(1, self.args.max_refills + 1):
            if len(kept) >= self.args.groups_per_update:
                break
            more, _ = self._sample(self._refill_rows(attempt, rollout.summaries), attempt)
            rollout = RolloutBatch.joined([rollout, more])
            kept = self._selected(rollout)
        self.play_ahead()
        return self._learn_from(rollout, kept)

    def _selected(self, rollout: RolloutBatch) -> list[int]:
        return checked_groups(self.select_groups(rollout), rollout.num_groups, self.args.groups_per_generation)

    def _learn_from(self, rollout: RolloutBatch, kept: list[int]) -> dict[str, Any]:
        """The generation batch of the kept groups, with advantages and scores; processes share the rows evenly."""
        self.rest_engine()
        self.record("train", filter_metrics(rollout, kept))
        chosen = rollout.select(kept).balanced(self.accelerator.num_processes, gather_object)
        if not kept:
            self._show(rollout, kept, chosen, None)
            nothing = without_update(self.state.global_step + 1, self.args.steps_per_rollout)
            logger.warning("%s: the filter kept no group", nothing)
            return self._training_rows(rollout, chosen, chosen.returns)
        advantages = self.advantages(chosen)
        check_advantages(advantages, len(chosen.summaries), (len(chosen.trajectories), chosen.completion_length))
        self._show(rollout, kept, chosen, advantages)
        return self._training_rows(rollout, chosen, advantages)

    def _training_rows(self, rollout: RolloutBatch, chosen: RolloutBatch, advantages: torch.Tensor) -> dict[str, Any]:
        """A row for each chosen trajectory, or each context that was read, and filler for TRL to split evenly."""
        source, local = chosen, advantages[chosen.local_indices] if advantages.ndim == 1 else advantages
        if not chosen.trajectories:  # a row to make filler of
            source = replace(rollout, trajectories=rollout.trajectories[:1])
            local = advantages.new_zeros((1, source.completion_length)[: advantages.ndim])
        if any(summary.segments > 1 for summary in chosen.summaries):
            check_segments_trainable(self.args)
            check_router(self.args, self.aux_loss_enabled)
            batch = segment_rows(source.trajectories, local, sampled_mask(source.batch), source.pad_id)
        else:
            batch = {**source.batch, "advantages": local}
        used, most = len(batch["advantages"]) if chosen.trajectories else 0, chosen.most_rows
        batch = select_rows(batch, range(used), most)  # as many passes on every process
        if chosen.summaries:
            with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
                self._add_scores(batch)
        steps = self.args.steps_per_generation
        return select_rows(batch, range(most), -(-most // steps) * steps)

    def _add_scores(self, batch: dict[str, Any]) -> None:
        """Add the log-probabilities that the loss compares with. TRL would score the whole rollout, filtered or not."""
        self._add_trl_scores(batch, "train")

    def _add_trl_scores(self, batch: dict[str, Any], mode: str) -> None:
        args, train = self.args, mode == "train"
        rows_a_pass = args.per_device_train_batch_size if train else args.per_device_eval_batch_size
        corrects = self.vllm_importance_sampling_correction and (self.use_vllm or (args.one_step_off_policy and train))
        if corrects or args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations):
            old = self._scored(self.model, batch, rows_a_pass, compute_entropy=False).logprobs
            batch["old_per_token_logps"] = old
        if corrects:
            mask, sampled = sampled_mask(batch), batch["sampling_per_token_logps"]
            kind = self.vllm_importance_sampling_mode
            low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
            ratio = sampler_ratio(old, sampled, mask, kind, low, high, batch.get("trajectory"))
            unbounded = sampler_ratio(old, sampled, mask, kind, sequences=batch.get("trajectory"))
            batch["importance_sampling_ratio"] = ratio
            self.record(mode, sampler_metrics(old - sampled, ratio, unbounded, mask, self.accelerator.gather))
        if args.beta or (args.log_kl and train):
            batch["ref_per_token_logps"] = self.score_reference(batch, rows_a_pass)

    def prepare_micro_batches(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Fill micro-batches with the rows and write each optimizer step's totals into them."""
        accumulation, processes = self.args.gradient_accumulation_steps, self.accelerator.num_processes
        regrouped = self._regroup(micro_batches)
        begun = self._begun and self.micro_step > 0
        add_step_totals(regrouped, accumulation, processes, self._total, begun)
        self._begun = not regrouped[0]["skip"]  # is read again only if the update takes further rollouts
        counts = count_positions(regrouped, self.packed_rows if self.shares_prefixes else None)
        self.record("train", position_metrics(self._total(counts)))
        return regrouped

    def _add_other_rows(self, inputs: Mapping[str, Any]) -> None:
        """For ratios of trajectories that are several rows: what each row's others add, under the present policy.

        They may lie in other micro-batches of the update, so there is a pass over these before it, without gradients.
        """
        is_needed = self.importance_sampling_level == "sequence" and inputs.get("old_per_token_logps") is not None
        if not is_needed or "trajectory" not in inputs or inputs["skip"] or self._others_of == self.state.global_step:
            return
        self._others_of = self.state.global_step
        parts = [part for part in self.micro_batches_of_update if not part["empty"]]
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            sums = []
            for part in parts:
                now = self._scored(self.model, part, None, compute_entropy=False).logprobs
                sums.append((now - part["old_per_token_logps"]).masked_fill(~sampled_mask(part), 0.0).sum(dim=1))
        others = sums_of_others(torch.cat(sums), torch.cat([part["trajectory"] for part in parts]))
        for part, of_part in zip(parts, others.split([len(each) for each in sums]), strict=True):
            part["others_log_ratio"] = of_part

    def _regroup(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        args, accelerator = self.args, self.accelerator
        if depends_on_split(args, self.aux_loss_enabled):
            return [cut_to_longest(part) for part in micro_batches]
        size, steps = args.per_device_train_batch_size, args.gradient_accumulation_steps
        return packed(micro_batches, steps, size, accelerator.process_index, accelerator.gather, self.shares_prefixes)

    def training_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """`policy_loss` and the entropy bonus of one micro-batch, checked and logged."""
        unneeded = inputs["skip"] or (inputs["empty"] and not self.accelerator.sync_gradients)
        if unneeded and self.is_deepspeed_enabled:
            # Its engine wants a loss with a graph, and takes every step: filler is computed, with gradients of 0, and a
            # step of nothing else has the learning rate 0, until the schedule sets it again.
            if inputs["skip"] and self.accelerator.sync_gradients:
                for group in self.optimizer.param_groups:
                    group["lr"] = 0.0
        elif unneeded:
            # Nothing to learn: a loss that no parameter depends on leaves every gradient None, and an optimizer
            # skips parameters without gradient (no momentum step, no weight decay). The last micro-batch of a step
            # is computed even if it is filler, because processes exchange gradients in it.
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        self._add_other_rows(inputs)
        # Micro-batches hold different numbers of tokens: their means are weighted by their share.
        # A micro-batch of filler says nothing about the policy, so nothing is logged of it.
        share = inputs["token_share"].item()
        with self.revised_metrics(dict.fromkeys(_TOKEN_MEANS, share), keep=not inputs["empty"]) as is_logged:
            with self.recorded_scores() as scores:
                loss = self.policy_loss(model, inputs)
            check_loss(loss)
            check_scored(scores)
            mask = sampled_mask(inputs)
            means = masked_means(scored_columns(*scores[-1], inputs, mask), mask, self._total)  # of all processes
            self.record("train", {name: mean for name, mean in means.items() if not is_logged(name)})  # by the loss
            without_bonus = loss.detach().float()
            if self._static_bonus:
                bonus = entropy_bonus(scores[-1].entropies, mask, inputs["step_tokens"])
                loss = loss - self.args.entropy_coef * bonus
            deviation = self._check_and_compare(loss, scores[-1], inputs, mask)
        if not inputs["skip"]:
            self._log_update(without_bonus, deviation)
        return loss

    @property
    def _static_bonus(self) -> bool:
        return bool(self.args.entropy_coef) and not self.args.use_adaptive_entropy

    def _check_and_compare(
        self, loss: torch.Tensor, scores: Scores, inputs: Mapping[str, Any], mask: torch.Tensor
    ) -> float:
        """Stop all processes if a loss is not finite; returns how far the policy is from the one that sampled."""
        deviation = ratio_deviation(scores.logprobs, inputs["sampling_per_token_logps"], mask)
        found = torch.stack([deviation.float(), (~torch.isfinite(loss.detach())).float()])
        largest, anywhere = self.accelerator.gather(found[None]).max(dim=0).values.tolist()  # (processes, 2)
        if anywhere:
            micro_batches = self.args.gradient_accumulation_steps
            place = f"step {self.state.global_step + 1}, micro-batch {self.micro_step + 1} of {micro_batches}"
            raise_not_finite(loss, place, parts_of_loss(scores.logprobs, scores.entropies, inputs, mask))
        self._check_sampler(scores.logprobs, inputs)
        return float(largest)

    def _log_update(self, without_bonus: torch.Tensor, deviation: float) -> None:
        self._loss_without_bonus = self._loss_without_bonus.to(without_bonus.device) + without_bonus
        self._ratio_deviation = max(self._ratio_deviation, deviation)
        if not self.accelerator.sync_gradients:
            return
        self.record("train", {"sampling/ratio_deviation_max": self._ratio_deviation})
        if self._static_bonus:
            mean = self.accelerator.gather(self._loss_without_bonus).mean().item()
            self.record("train", {"policy_loss": mean, "entropy_coef": self.args.entropy_coef})
        self._ratio_deviation, self._loss_without_bonus = 0.0, torch.zeros(())

    def _check_sampler(self, logprobs: torch.Tensor, inputs: Mapping[str, Any]) -> None:
        """Compare with the sampler, over all micro-batches of the first update of this training, before its step.

        A rollout that was played ahead, from which a resumed training begins, says nothing about rounding.
        """
        if self._sampler_is_checked or inputs["skip"] or self.staleness:
            return
        self._gaps.append(measure_gap(logprobs, inputs, self._sampler_slack))
        if self.accelerator.sync_gradients:
            self._sampler_is_checked = True
            self.check_gap_to_sampler(torch.cat(self._gaps))

    def check_gap_to_sampler(self, parts: torch.Tensor) -> Gap:
        """Compare with the sampler, by each process's results of `measure_gap`; may raise `SamplerMismatchError`."""
        gap = Gap.of(self.accelerator.gather(parts))
        check_gap(gap, self._tolerance, self.model_name, self.args.sampler_check == "stop")
        return gap

    def _show(self, rollout: RolloutBatch, kept: list[int], chosen: RolloutBatch, advantages: Any) -> None:
        """Show advantages in TRL's table of completions, which holds the last rollout, and events to observers."""
        self.show_advantages(shown_advantages(rollout, kept, chosen, advantages, gather_object))
        if self.observers:
            event = observe(self.state.global_step, rollout, kept, chosen, advantages, gather_object)
            for observer in self.observers:
                observer.on_rollout(event)
