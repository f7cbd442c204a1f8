"""CollapseMonitor: warns when a run is collapsing and, if asked, stops it or rolls it back to its best checkpoint.

With the trainers of this package it is also an observer and sees whole trajectories. With a plain ``GRPOTrainer`` it
reads what TRL keeps of its last rollout (``trl_seams.py``). Measures join the trainer's log; alerts (``alerts.py``)
depend on the logged rows only.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Any, Literal, get_args

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerState
from transformers.training_args import TrainingArguments
from trl import GRPOTrainer

from ragen_trl.algorithms.filtering import group_std
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.errors import OptionError
from ragen_trl.monitoring.alerts import Alert, AlertWatch
from ragen_trl.monitoring.mutual_information import measured_dependence, thought_pair
from ragen_trl.system.atomic import damage
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.checkpoints import whole_checkpoints
from ragen_trl.training.launch import load_weights, unwrapped_for_generation
from ragen_trl.training.observers import RolloutEvent
from ragen_trl.trl_seams import last_rollout, log_values

logger = logging.getLogger(__name__)

Action = Literal["warn", "stop", "rollback"]


class CollapseMonitor(TrainerCallback):
    """Measures every rollout, and warns, stops or rolls back when alerts fire.

    The measures are logged as ``collapse/…``; ``docs/evaluation.md`` explains them, the alerts and their thresholds.
    With ``action="warn"`` a run takes the same steps as without a monitor.

    Args:
        trainer: One of this package, or a ``GRPOTrainer``. Pass the monitor to its ``add_callback``.
        action: ``"warn"`` logs a warning, once for each rule. ``"stop"`` also ends training at the first confirmation
            alert. ``"rollback"`` then also loads the weights of the best checkpoint of this run: the one whose last ten
            logged rollouts had the most success.
        mi_every: The mutual information is measured every so many rollouts; 0 for never, as with pictures. A
            measurement takes forward passes over ``mi_pairs`` prompts, with as many thoughts after each of them.
        mi_pairs: How many pairs of prompt and thought it is measured on; so many thoughts are scored at a time.

    Attributes:
        stopped_at: The step at which it ended training, or ``None``.
        rolled_back_to: The step of the checkpoint whose weights it loaded, or ``None``.

    Raises:
        OptionError: If an option has an unknown value, if ``action`` is ``"rollback"`` and ``save_strategy`` is
            ``"no"`` or ``metric_for_best_model`` is set, or if ``mi_every`` is not 0 and weights cannot be kept whole
            while it measures (FSDP1).

    Example:
        ``trainer.add_callback(CollapseMonitor(trainer, action="stop"))``
    """

    def __init__(
        self, trainer: GRPOTrainer, action: Action = "warn", mi_every: int = 10, mi_pairs: int = 64
    ) -> None:
        if action not in get_args(Action):
            raise OptionError(f"action is {action!r}; choose from {get_args(Action)}")
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
        self._watch = AlertWatch()
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        self._text_of = cache(lambda token: str(tokenizer.decode([token])))
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
                dict(name=rule.name, kind=rule.kind, metric=rule.metric, step=step, value=value, threshold=threshold)
                for rule, step, value, threshold in self.fired
            ],
            "stopped_at": self.stopped_at,
            "rolled_back_to": self.rolled_back_to,
        }

    def on_rollout(self, event: RolloutEvent) -> None:
        """Measure a rollout of whole trajectories; called by the trainers of this package."""
        self._log(rollout_measures(event.rollout))
        if self.trainer.args.observation == "text":  # scoring would not see the pictures
            first_turns = [played.turns[0] for played in event.rollout.trajectories]
            self._log_dependence(event.step, ((turn.prompt_ids, turn.reply_ids) for turn in first_turns))

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Forget the last run; when training resumes, find the alerts again that fired before the checkpoint."""
        self._watch = AlertWatch()
        self.stopped_at = self.rolled_back_to = None
        for row in state.log_history:
            self._watch.add(row)
        if state.global_step > 0:
            self.on_save(args, state, control)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Measure the rollout of a plain trainer."""
        step = state.global_step - 1
        if isinstance(self.trainer, StarPOTrainer) or step % self._updates:
            return
        trainer, rollout = self.trainer, last_rollout(self.trainer)
        self._log(identical_replies([str(completion) for completion in rollout.completions], trainer.num_generations))
        if trainer.num_generations > 1:
            rewards = (rollout.rewards * trainer.reward_weights.cpu()).nansum(dim=1)  # (B,)
            self._log({"in_group_std": group_std(rewards, trainer.num_generations).mean().item()})
        columns = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        rows = [row for batch in rollout.micro_batches for row in zip(*map(batch.get, columns), strict=True)]
        self._log_dependence(
            step, ((ids[shown.bool()].tolist(), reply[said.bool()].tolist()) for ids, shown, reply, said in rows)
        )

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Look for alerts in the new row. All processes log the same numbers and so decide alike."""
        for fired in self._watch.add({**(logs or {}), "step": state.global_step}):
            if state.is_world_process_zero:
                logger.warning("%s. %s", fired.in_words(), fired.says)
        reasons = self._confirmed
        if self.action != "warn" and reasons and self.stopped_at is None and state.global_step < state.max_steps:
            self.stopped_at = state.global_step
            control.should_training_stop = True
            if state.is_world_process_zero:
                logger.warning("training stops after step %d because of %s", state.global_step, reasons[0].in_words())

    def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Note this step's checkpoint as the best if no earlier one had more success; without success return counts.

        Transformers keeps the note in its checkpoints, and ``save_total_limit`` does not delete the best one.
        """
        keys = ("success", "return", "reward")
        logged = [[row[key] for row in state.log_history if row.get(key) is not None] for key in keys]
        values = next(filter(None, logged), None)
        if self.action != "rollback" or values is None:
            return
        score = fmean(values[-10:])
        if state.best_metric is None or score >= state.best_metric:
            state.best_metric, state.best_global_step = score, state.global_step
            state.best_model_checkpoint = f"{args.output_dir}/checkpoint-{state.global_step}"

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Roll back, after training has written its last checkpoint."""
        if self.action != "rollback" or not self._confirmed:
            return
        folder = whole_checkpoints(str(args.output_dir)).get(state.best_global_step or 0)
        if folder is None or damage(folder, contents=True):
            logger.warning("no whole checkpoint in %s to roll back to; the weights stay as they are", args.output_dir)
            return
        self.rolled_back_to = state.best_global_step
        load_weights(self.trainer, folder)
        if isinstance(self.trainer, StarPOTrainer):
            self.trainer.load_algorithm_state(folder)  # the critic, or the V* table
        if state.is_world_process_zero:
            logger.warning("the model now has the weights of %s", folder)

    @property
    def _confirmed(self) -> list[Alert]:
        return [fired for fired in self.fired if fired.rule.kind == "confirmation"]

    @property
    def _updates(self) -> int:
        args = self.trainer.args
        return max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps)

    def _log_dependence(self, step: int, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Measure the mutual information on prompts and replies, if it is due."""
        if not self.mi_every or step // self._updates % self.mi_every:
            return
        began = time.perf_counter()
        thoughts = [thought_pair(prompt, reply, self._text_of) for prompt, reply in pairs]
        with unwrapped_for_generation(self.trainer) as model:
            found = measured_dependence(model, thoughts, self.mi_pairs, self.trainer.temperature)
        self._log({**(found or {}), "mi_seconds": time.perf_counter() - began})

    def _log(self, values: dict[str, float]) -> None:
        log_values(self.trainer, "train", {f"collapse/{name}": value for name, value in values.items()})


def check_rollback(args: TrainingArguments) -> None:
    """Raise `OptionError` for options with which a monitor cannot roll back."""
    if args.save_strategy == "no" or args.metric_for_best_model is not None:
        raise OptionError(
            f"a monitor with 'rollback' loads the checkpoint with the most success in training, but save_strategy is "
            f"{args.save_strategy!r} and metric_for_best_model {args.metric_for_best_model!r}; set 'steps', leave out "
            "metric_for_best_model and load_best_model_at_end"
        )


def rollout_measures(rollout: RolloutBatch) -> dict[str, float]:
    """``actions_per_turn`` and ``identical_replies`` of a rollout, dropped groups included, over all processes.

    Every process has to call it.
    """
    here = [
        (played.turns[0].reply, len(played.turns), sum(len(turn.info.get("actions", ())) for turn in played.turns))
        for played in rollout.trajectories
    ]
    replies, turns, actions = zip(*rollout.in_order(gather_object(here)), strict=True)
    return {"actions_per_turn": sum(actions) / sum(turns), **identical_replies(replies, rollout.group_size)}


def identical_replies(replies: Sequence[str], group_size: int) -> dict[str, float]:
    """The mean over groups of the share of equal pairs, ``Σ_v n_v (n_v - 1) / (n (n - 1))``; nothing for groups of one.

    RAGEN calls it the echo trap if this grows (arXiv 2504.20073, section 4.1). It is an unbiased estimate of how often
    two samples agree, so groups of different sizes can be compared.

    Example:
        >>> identical_replies(["Up", "Up", "Up", "Left"], group_size=4)
        {'identical_replies': 0.5}
    """
    if group_size == 1:
        return {}
    groups = [replies[first : first + group_size] for first in range(0, len(replies), group_size)]
    equal = [sum(count * (count - 1) for count in Counter(group).values()) for group in groups]
    return {"identical_replies": fmean(equal) / (group_size * (group_size - 1))}
