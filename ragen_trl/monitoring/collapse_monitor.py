"""CollapseMonitor: watches a run, says when it is collapsing, and if asked stops it or takes it back to its best.

A ``TrainerCallback`` in the manner of TRL's own that take the trainer. With the trainers of this package it also is an
observer and sees whole trajectories; with a plain ``GRPOTrainer``, whose completions are strings, it reads what TRL
keeps of its last rollout. Measures (``episode_measures.py``) join the trainer's own in its log and so go wherever
``report_to`` says; alerts (``alerts.py``) are found in the logged rows alone.

Leans on TRL 1.16, pinned by test_diagnostics.py: ``_metrics["train"]`` holds lists that ``log`` averages and clears;
``_logs`` holds prompts, completions and rewards of the last rollout of all processes, groups contiguous;
``_buffered_inputs`` holds its token ids on this process.

Left out: changing a run's settings by itself. What helps depends on why, and a run that changes course cannot be
repeated.
"""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from ragen_trl.errors import UserError
from ragen_trl.monitoring.alerts import Alert, AlertWatch
from ragen_trl.monitoring.episode_measures import (
    pairs_of_completions,
    pairs_of_trajectories,
    rollout_measures,
    text_measures,
    text_of,
    token_pieces,
)
from ragen_trl.monitoring.mutual_information import ThoughtPair, measured_dependence
from ragen_trl.monitoring.rollback import best_step, load_checkpoint
from ragen_trl.trainers.checkpoints import whole_checkpoints
from ragen_trl.trainers.observers import RolloutEvent
from ragen_trl.trainers.trajectory import TrajectoryTrainer

logger = logging.getLogger(__name__)

Action = Literal["warn", "stop", "rollback"]
Kind = Literal["early", "confirmation"]


class MonitorError(UserError, ValueError):
    """The monitor cannot do what it is asked with this trainer."""


class CollapseMonitor(TrainerCallback):
    """Measures every rollout, and warns, stops or rolls back when alerts of collapse fire.

    The measures are logged as ``collapse/…``; ``docs/warning_signs.md`` explains them, the alerts and their thresholds.
    It looks and does not touch: with ``action="warn"`` a run takes the same steps as without.

    Args:
        trainer: Ours or a ``GRPOTrainer``; the monitor is then given to its ``add_callback``.
        action: ``"warn"`` says so, once for each rule; ``"stop"`` also ends training; ``"rollback"`` also puts the
            weights of the best checkpoint into the model, best by success over ten rollouts.
        stop_on: The kind of alert that stops or rolls back.
        mi_every: Rollouts from one measurement of the mutual information to the next; 0 for never. Each costs forward
            passes over ``mi_pairs`` prompts and as many thoughts behind each of them.
        mi_pairs: Pairs of prompt and thought it is measured on.

    Attributes:
        fired: The alerts that fired so far.
        stopped_at: Step at which it ended training, or ``None``.
        rolled_back_to: Step of the checkpoint whose weights the model now has, or ``None``.

    Raises:
        MonitorError: If an option has an unknown value, if ``action="rollback"`` meets ``save_strategy="no"``, or if
            the mutual information is wanted of a model sharded by FSDP.

    Example:
        ``trainer.add_callback(CollapseMonitor(trainer, action="stop"))``
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        action: Action = "warn",
        stop_on: Kind = "confirmation",
        mi_every: int = 10,
        mi_pairs: int = 64,
    ) -> None:
        if action not in get_args(Action) or stop_on not in get_args(Kind):
            raise MonitorError(
                f"action is {action!r} and stop_on {stop_on!r}; choose from {get_args(Action)} and {get_args(Kind)}"
            )
        if mi_every < 0 or mi_pairs < 2:
            raise MonitorError(f"mi_every is {mi_every} and mi_pairs {mi_pairs}; at least 0 (never) and 2 are needed")
        if action == "rollback" and trainer.args.save_strategy == "no":
            raise MonitorError(
                "action='rollback' goes back to a checkpoint, and save_strategy='no' writes none; set "
                "save_strategy='steps' and save_steps"
            )
        if mi_every and (trainer.is_fsdp_enabled or not trainer.args.ds3_gather_for_generation):
            raise MonitorError(
                f"mi_every is {mi_every}, but weights are gathered in every pass (FSDP, or ZeRO-3 with "
                "ds3_gather_for_generation=False), of which processes need unequal numbers; set mi_every=0"
            )
        self.trainer = trainer
        self.action = action
        self.stop_on = stop_on
        self.mi_every = mi_every
        self.mi_pairs = mi_pairs
        self.stopped_at: int | None = None
        self.rolled_back_to: int | None = None
        self._watch = AlertWatch()
        self._pieces = token_pieces(trainer._tokenizer)
        self._seconds = 0.0
        if isinstance(trainer, TrajectoryTrainer):
            trainer.observers.append(self)

    @property
    def fired(self) -> list[Alert]:
        """The alerts that fired so far, in order."""
        return self._watch.fired

    def summary(self) -> dict[str, Any]:
        """What happened, for ``summary.json``: the alerts with step, value and threshold, and what was done."""
        return {
            "action": self.action,
            "signs": [
                {
                    "name": fired.rule.name,
                    "kind": fired.rule.kind,
                    "metric": fired.rule.metric,
                    "step": fired.step,
                    "value": fired.value if math.isfinite(fired.value) else None,
                    "threshold": fired.threshold,
                }
                for fired in self.fired
            ],
            "stopped_at": self.stopped_at,
            "rolled_back_to": self.rolled_back_to,
            "seconds": self._seconds,
        }

    def on_rollout(self, event: RolloutEvent) -> None:
        """Measure a rollout of whole trajectories (the observer's side)."""
        began = time.perf_counter()
        self._log(rollout_measures(event.rollout, self._pieces))
        self._spent("seconds", began)
        if self._due(event.step):
            self._log_dependence(pairs_of_trajectories(event.rollout.trajectories, self._pieces))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start anew, or know again what fired before the checkpoint that is resumed from: alerts follow from rows."""
        self._watch = AlertWatch()
        self.stopped_at = self.rolled_back_to = None
        for row in state.log_history:
            self._watch.add(row)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure a plain trainer's rollout, and log how many alerts fired up to the row before."""
        if not isinstance(self.trainer, TrajectoryTrainer) and (state.global_step - 1) % self._updates == 0:
            self._measure_completions(state.global_step - 1)
        counts = {f"{kind}_signs": sum(fired.rule.kind == kind for fired in self.fired) for kind in get_args(Kind)}
        self._log(counts)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Look for alerts in the row that was just logged; all processes log the same numbers and decide alike."""
        began = time.perf_counter()
        for fired in self._watch.add({**(logs or {}), "step": state.global_step}):
            if state.is_world_process_zero:
                logger.warning("%s. %s To do: %s", fired.in_words(), fired.rule.says, fired.rule.remedy)
        self._seconds += time.perf_counter() - began
        grave = self._grave()
        if self.action != "warn" and grave and self.stopped_at is None and state.global_step < state.max_steps:
            self.stopped_at = state.global_step
            control.should_training_stop = True
            if state.is_world_process_zero:
                logger.warning("training stops after step %d because of %s", state.global_step, grave[0].in_words())

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Name the best checkpoint so far, which ``save_total_limit`` then leaves where it is."""
        if self.action == "rollback":
            folders = whole_checkpoints(str(args.output_dir))
            step = best_step(folders, state.log_history)
            if step is not None:
                state.best_model_checkpoint = str(folders[step])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Roll back, behind the last checkpoint that training itself writes."""
        if self.action != "rollback" or not self._grave():
            return
        folders = whole_checkpoints(str(args.output_dir))
        step = best_step(folders, state.log_history)
        if step is None:
            logger.warning("no whole checkpoint in %s to go back to; the weights stay as they are", args.output_dir)
            return
        load_checkpoint(self.trainer, folders[step])
        self.rolled_back_to = step
        if state.is_world_process_zero:
            logger.warning("the model now has the weights of %s", folders[step])

    def _grave(self) -> list[Alert]:
        """What fired of the kind that stops, and of a graver one."""
        return [fired for fired in self.fired if fired.rule.kind in (self.stop_on, "confirmation")]

    @property
    def _updates(self) -> int:
        """Updates on one rollout."""
        args = self.trainer.args
        return max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps)

    def _due(self, step: int) -> bool:
        """Whether the rollout behind this many updates is one to measure the mutual information of."""
        return self.mi_every > 0 and step // self._updates % self.mi_every == 0

    def _measure_completions(self, step: int) -> None:
        """What TRL kept of the last rollout of a plain trainer."""
        began = time.perf_counter()
        trainer, logs = self.trainer, self.trainer._logs
        by_function = torch.tensor([list(logs["rewards"][name]) for name in trainer.reward_func_names])  # (F, B)
        rewards = (by_function * trainer.reward_weights.cpu()[:, None]).nansum(dim=0)
        texts = [text_of(completion) for completion in logs["completion"]]
        self._log(text_measures(texts, rewards, trainer.num_generations, trainer._tokenizer, self._pieces))
        self._spent("seconds", began)
        if self._due(step):
            self._log_dependence(pairs_of_completions(trainer._buffered_inputs, self._pieces))

    def _log_dependence(self, pairs: Sequence[ThoughtPair]) -> None:
        began = time.perf_counter()
        trainer, accelerator = self.trainer, self.trainer.accelerator
        with unwrap_model_for_generation(
            trainer.model_wrapped,
            accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model:
            found = measured_dependence(
                model,
                pairs,
                self.mi_pairs,
                trainer.temperature,
                accelerator.process_index,
                accelerator.num_processes,
            )
        if found is not None:
            named = asdict(found).items()
            self._log({name if name.startswith("mi") else f"mi_{name}": value for name, value in named})
        self._spent("mi_seconds", began)

    def _log(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.trainer._metrics["train"][f"collapse/{name}"].append(float(value))

    def _spent(self, name: str, began: float) -> None:
        seconds = time.perf_counter() - began
        self._seconds += seconds
        self._log({name: seconds})
