"""CollapseMonitor: warns when a run is collapsing and, if asked, stops it or rolls it back to its best checkpoint.

With the trainers of this package it is also an observer and sees whole trajectories. With a plain ``GRPOTrainer`` it
reads what TRL keeps of its last rollout (``trl_seams.py``). Measures (``measures.py``) join the trainer's log; alerts
(``alerts.py``) depend on the logged rows only.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments
from trl import GRPOTrainer

from ragen_trl.algorithms.filtering import group_std
from ragen_trl.errors import OptionError
from ragen_trl.monitoring.alerts import Alert, AlertWatch
from ragen_trl.monitoring.measures import (
    identical_replies,
    pair,
    pairs_of_completions,
    rollout_measures,
    text_of,
    token_pieces,
)
from ragen_trl.monitoring.mutual_information import ThoughtPair, measured_dependence
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.checkpoints import whole_checkpoints
from ragen_trl.training.launch import load_weights, unwrapped_for_generation
from ragen_trl.training.observers import RolloutEvent
from ragen_trl.trl_seams import last_rollout, log_values

logger = logging.getLogger(__name__)

Action = Literal["warn", "stop", "rollback"]
Kind = Literal["early", "confirmation"]


class CollapseMonitor(TrainerCallback):
    """Measures every rollout, and warns, stops or rolls back when alerts fire.

    The measures are logged as ``collapse/…``; ``docs/warning_signs.md`` explains them, the alerts and their thresholds.
    With ``action="warn"`` a run takes the same steps as without a monitor.

    Args:
        trainer: One of this package, or a ``GRPOTrainer``. Pass the monitor to its ``add_callback``.
        action: ``"warn"`` logs a warning, once for each rule. ``"stop"`` also ends training at the first confirmation
            alert. ``"rollback"`` then also loads the weights of the best checkpoint of this run: the one whose last ten
            logged rollouts had the most success.
        mi_every: The mutual information is measured every so many rollouts; 0 for never, as with pictures. A
            measurement takes forward passes over ``mi_pairs`` prompts, with as many thoughts after each of them.
        mi_pairs: How many pairs of prompt and thought it is measured on.

    Attributes:
        stopped_at: The step at which it ended training, or ``None``.
        rolled_back_to: The step of the checkpoint whose weights it loaded, or ``None``.

    Raises:
        OptionError: If an option has an unknown value, if ``action`` is ``"rollback"`` and ``save_strategy`` is
            ``"no"`` or ``load_best_model_at_end`` is set, or if ``mi_every`` is not 0 and weights cannot be kept whole
            while it measures (FSDP1).

    Example:
        ``trainer.add_callback(CollapseMonitor(trainer, action="stop"))``
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        action: Action = "warn",
        mi_every: int = 10,
        mi_pairs: int = 64,
    ) -> None:
        if action not in get_args(Action):
            raise OptionError(f"action is {action!r}; choose from {get_args(Action)}")
        if mi_every < 0 or mi_pairs < 2:
            raise OptionError(f"mi_every is {mi_every} and mi_pairs {mi_pairs}; give at least 0 (never) and 2")
        if action == "rollback":
            check_rollback(trainer.args)
        fsdp1 = trainer.is_fsdp_enabled and trainer.accelerator.state.fsdp_plugin.fsdp_version != 2
        if mi_every and (fsdp1 or not trainer.args.ds3_gather_for_generation):
            raise OptionError(
                f"mi_every is {mi_every}, but weights are gathered in every forward pass (FSDP1, or ZeRO-3 with "
                "ds3_gather_for_generation=False), and processes make different numbers of passes; set mi_every=0"
            )
        self.trainer = trainer
        self.action = action
        self.mi_every, self.mi_pairs = mi_every, mi_pairs
        self.stopped_at: int | None = None
        self.rolled_back_to: int | None = None
        self._resumed_at = 0
        self._saved: set[int] = set()
        self._watch = AlertWatch()
        self._pieces = token_pieces(getattr(trainer.processing_class, "tokenizer", trainer.processing_class))
        if isinstance(trainer, StarPOTrainer):
            trainer.observers.append(self)

    @property
    def fired(self) -> list[Alert]:
        """The alerts that fired so far, in order."""
        return self._watch.fired

    def summary(self) -> dict[str, Any]:
        """For ``summary.json``: the alerts (``signs``) with step, value and threshold, and what the monitor did."""
        return {
            "action": self.action,
            "signs": [
                {
                    **{name: getattr(fired.rule, name) for name in ("name", "kind", "metric")},
                    **{name: getattr(fired, name) for name in ("step", "value", "threshold")},
                }
                for fired in self.fired
            ],
            "stopped_at": self.stopped_at,
            "rolled_back_to": self.rolled_back_to,
        }

    def on_rollout(self, event: RolloutEvent) -> None:
        """Measure a rollout of whole trajectories; called by the trainers of this package."""
        self._log(rollout_measures(event.rollout))
        if self._due(event.step) and self.trainer.args.observation == "text":  # scoring would not see the pictures
            first_turns = [played.turns[0] for played in event.rollout.trajectories]
            self._log_dependence([pair(turn.prompt_ids, turn.reply_ids, self._pieces) for turn in first_turns])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget the last run; when training resumes, find the alerts again that fired before the checkpoint."""
        self._watch = AlertWatch()
        self.stopped_at = self.rolled_back_to = None
        self._resumed_at, self._saved = state.global_step, set()
        for row in state.log_history:
            self._watch.add(row)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Measure the rollout of a plain trainer, and log how many alerts fired up to the previous row."""
        if not isinstance(self.trainer, StarPOTrainer) and (state.global_step - 1) % self._updates == 0:
            self._measure_completions(state.global_step - 1)
        self._log({f"{kind}_signs": sum(fired.rule.kind == kind for fired in self.fired) for kind in get_args(Kind)})

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Look for alerts in the new row. All processes log the same numbers and so decide alike."""
        for fired in self._watch.add({**(logs or {}), "step": state.global_step}):
            if state.is_world_process_zero:
                logger.warning("%s. %s", fired.in_words(), fired.rule.says)
        reasons = self._confirmed
        if self.action != "warn" and reasons and self.stopped_at is None and state.global_step < state.max_steps:
            self.stopped_at = state.global_step
            control.should_training_stop = True
            if state.is_world_process_zero:
                logger.warning("training stops after step %d because of %s", state.global_step, reasons[0].in_words())

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Name the best checkpoint so far, so ``save_total_limit`` does not delete it."""
        self._saved.add(state.global_step)
        if self.action == "rollback" and (best := self._best_checkpoint(state)) is not None:
            state.best_model_checkpoint = str(best)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Roll back, after training has written its last checkpoint."""
        if self.action != "rollback" or not self._confirmed:
            return
        folder = self._best_checkpoint(state)
        if folder is None:
            logger.warning("no whole checkpoint in %s to roll back to; the weights stay as they are", args.output_dir)
            return
        self.rolled_back_to = int(folder.name.rpartition("-")[2])
        load_weights(self.trainer, folder)
        if isinstance(self.trainer, StarPOTrainer):
            self.trainer.load_algorithm_state(folder)  # the critic, or the V* table
        if state.is_world_process_zero:
            logger.warning("the model now has the weights of %s", folder)

    @property
    def _confirmed(self) -> list[Alert]:
        return [fired for fired in self.fired if fired.rule.kind == "confirmation"]

    def _best_checkpoint(self, state: TrainerState) -> Path | None:
        """The best checkpoint of this run; an earlier run may have left others in the folder."""
        folders = whole_checkpoints(str(self.trainer.args.output_dir))
        step = best_step([one for one in folders if one in self._saved or one <= self._resumed_at], state.log_history)
        return None if step is None else folders[step]

    @property
    def _updates(self) -> int:
        args = self.trainer.args
        return max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps)

    def _due(self, step: int) -> bool:
        return self.mi_every > 0 and step // self._updates % self.mi_every == 0

    def _measure_completions(self, step: int) -> None:
        trainer, rollout = self.trainer, last_rollout(self.trainer)
        rewards = (rollout.rewards * trainer.reward_weights.cpu()).nansum(dim=1)  # (B,)
        texts = [text_of(completion) for completion in rollout.completions]
        self._log(identical_replies(texts, trainer.num_generations))
        if trainer.num_generations > 1:
            self._log({"in_group_std": group_std(rewards, trainer.num_generations).mean().item()})
        if self._due(step):
            self._log_dependence(pairs_of_completions(rollout.micro_batches, self._pieces))

    def _log_dependence(self, pairs: Sequence[ThoughtPair]) -> None:
        began = time.perf_counter()
        with unwrapped_for_generation(self.trainer) as model:
            found = measured_dependence(model, pairs, self.mi_pairs, self.trainer.temperature)
        self._log({**(found or {}), "mi_seconds": time.perf_counter() - began})

    def _log(self, values: dict[str, float]) -> None:
        log_values(self.trainer, "train", {f"collapse/{name}": value for name, value in values.items()})


def check_rollback(args: TrainingArguments) -> None:
    """Raise `OptionError` for options with which a monitor cannot roll back."""
    if args.save_strategy == "no" or args.load_best_model_at_end:
        raise OptionError(
            f"a monitor with 'rollback' loads the checkpoint with the most success in training, but save_strategy is "
            f"{args.save_strategy!r} and load_best_model_at_end {args.load_best_model_at_end}; set 'steps' and False"
        )


def best_step(steps: Iterable[int], rows: Iterable[Mapping[str, Any]]) -> int | None:
    """The step, of ``steps``, whose last ten rollouts had the most success; the latest one of equals.

    Without ``success`` the return counts. ``None`` if nothing was logged before any of the steps.
    """
    rows = list(rows)
    key = next((key for key in ("success", "return", "reward") if any(key in row for row in rows)), "success")
    judged = {}
    for step in sorted(steps):
        values = [row[key] for row in rows if row.get(key) is not None and row["step"] <= step]
        if values:
            judged[step] = fmean(values[-10:])
    return max(reversed(judged), key=judged.__getitem__) if judged else None
