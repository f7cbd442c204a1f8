"""The callbacks of a training command: the first evaluation, the collapse monitor, the recorder, and the loggers.

Relies on Transformers' lists of known and of installed loggers.
"""

from collections.abc import Callable
from typing import Any, cast, get_args

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

from ragen_trl.errors import OptionError
from ragen_trl.monitoring.collapse_monitor import Action, CollapseMonitor, check_rollback
from ragen_trl.reporting.recorder import TrajectoryRecorder, spread_steps
from ragen_trl.trainer import StarPOTrainer

_NOWHERE = ("none", "all")


class AtStart(TrainerCallback):
    """Calls a function before the first update, when the launch has divided the model and put it on its devices."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Call it."""
        self._call()


MONITORS = ("off", *get_args(Action))


def check_monitor(wanted: str, args: TrainingArguments) -> None:
    """Raise `OptionError` early for what the monitor itself would refuse after the warm start; "off" is none."""
    if wanted not in MONITORS:
        raise OptionError(f"monitor is {wanted!r}; choose one of {', '.join(MONITORS)}")
    if wanted == "rollback":
        check_rollback(args)


def check_report_to(wanted: str | list[str] | None) -> None:
    """Raise `OptionError` early for a logger that transformers would refuse when the trainer is made."""
    installed = get_available_reporting_integrations()
    for name in [wanted] if isinstance(wanted, str) else wanted or []:
        if name not in INTEGRATION_TO_CALLBACK and name not in _NOWHERE:
            raise OptionError(f"report_to is {name!r}; choose from none, {', '.join(INTEGRATION_TO_CALLBACK)}")
        if name in INTEGRATION_TO_CALLBACK and name not in installed:
            raise OptionError(f"report_to is {name!r}, which is not installed; pip install {name.replace('_', '-')}")


def add_callbacks(trainer: StarPOTrainer, monitor: str, record_rollouts: int) -> CollapseMonitor | None:
    """Record ``record_rollouts`` rollouts of a trainer and watch it for collapse, before it starts training.

    Returns the monitor, or ``None`` if it is off.
    """
    args = trainer.args
    steps = spread_steps(args.max_steps, record_rollouts, max(1, round(args.steps_per_rollout)))
    traces = "trackio" in args.report_to
    trainer.observers.append(TrajectoryRecorder(args.output_dir, trainer.tokenizer, steps, traces))
    if monitor == "off":
        return None
    watch = CollapseMonitor(trainer, action=cast(Action, monitor))
    trainer.add_callback(watch)
    return watch
