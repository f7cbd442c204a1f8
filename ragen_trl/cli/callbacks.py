"""What looks on while the command trains: the monitor of collapse, the recorder of trajectories, the loggers.

Leans on transformers' list of loggers and of those that are installed (pinned by test_watching.py).
"""

from typing import cast, get_args

from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

from ragen_trl.errors import UserError
from ragen_trl.monitoring.collapse_monitor import Action, CollapseMonitor, MonitorError
from ragen_trl.reporting.recorder import TrajectoryRecorder, spread_steps
from ragen_trl.trainers.trajectory import TrajectoryTrainer

_NOWHERE = ("none", "all")


class ReportToError(UserError, ValueError):
    """Metrics shall go where they cannot."""


MONITORS = ("off", *get_args(Action))


def check_monitor(wanted: str, checkpoints: bool) -> None:
    """Raise `MonitorError` early for what would be known late, when the trainer is made.

    Args:
        wanted: ``"off"``, or what the monitor does.
        checkpoints: Whether the run writes any.
    """
    if wanted not in MONITORS:
        raise MonitorError(f"monitor is {wanted!r}; choose one of {', '.join(MONITORS)}")
    if wanted == "rollback" and not checkpoints:
        raise MonitorError("monitor is 'rollback', which needs checkpoints; leave save_strategy='no' out")


def check_report_to(wanted: str | list[str] | None) -> None:
    """Raise `ReportToError` early for what transformers says when the trainer is made: unknown, or not installed."""
    installed = get_available_reporting_integrations()
    for name in [wanted] if isinstance(wanted, str) else wanted or []:
        if name not in INTEGRATION_TO_CALLBACK and name not in _NOWHERE:
            raise ReportToError(f"report_to is {name!r}; choose from none, {', '.join(INTEGRATION_TO_CALLBACK)}")
        if name in INTEGRATION_TO_CALLBACK and name not in installed:
            raise ReportToError(f"report_to is {name!r}, which is not installed; pip install {name.replace('_', '-')}")


def watch(trainer: TrajectoryTrainer, monitor: str, record_rollouts: int) -> CollapseMonitor | None:
    """Have a trainer's run recorded and watched.

    Args:
        trainer: Before it trains.
        monitor: One of ``MONITORS``.
        record_rollouts: How many rollouts are kept, spread over the run.

    Returns:
        The monitor, or ``None`` where it is off.
    """
    args = trainer.args
    steps = spread_steps(args.max_steps, record_rollouts, max(1, round(args.steps_per_rollout)))
    trainer.observers.append(TrajectoryRecorder(args.output_dir, trainer.tokenizer, steps))
    if monitor == "off":
        return None
    watching = CollapseMonitor(trainer, action=cast(Action, monitor))
    trainer.add_callback(watching)
    return watching
