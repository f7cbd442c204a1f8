"""What looks on while the command trains: the monitor of collapse and the recorder of trajectories."""

from typing import cast, get_args

from ragen_trl.diagnostics import Action, CollapseMonitor, MonitorError
from ragen_trl.recorder import TrajectoryRecorder, spread_steps
from ragen_trl.trajectory_trainer import TrajectoryTrainer

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
    trainer.observers.append(TrajectoryRecorder(args.output_dir, trainer._tokenizer, steps))
    if monitor == "off":
        return None
    watching = CollapseMonitor(trainer, action=cast(Action, monitor))
    trainer.add_callback(watching)
    return watching
