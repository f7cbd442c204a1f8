"""Stop and resume without loss: which checkpoints are whole, and a Ctrl-C that writes one."""

import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback

from ragen_trl.errors import UserError

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def whole_checkpoints(output_dir: str | os.PathLike[str]) -> dict[int, Path]:
    """The checkpoints of a run that were written to their end, by step.

    Transformers writes ``trainer_state.json`` last: a folder without a readable one is what a killed process leaves.
    """
    folders = {}
    for folder in Path(output_dir).glob("checkpoint-*"):
        match = _CHECKPOINT.fullmatch(folder.name)
        if match and _recorded_step(folder) == int(match[1]):
            folders[int(match[1])] = folder
    return folders


def last_whole_checkpoint(
    output_dir: str | os.PathLike[str], steps_per_rollout: int = 1, max_steps: int = -1
) -> Path | None:
    """The newest of `whole_checkpoints` at the end of a rollout or of the run (-1: no ``max_steps``), or ``None``."""
    folders = whole_checkpoints(output_dir)
    ended = [step for step in folders if _is_an_end(step, steps_per_rollout, max_steps)]
    return folders[max(ended)] if ended else None


def resumable_checkpoint(
    asked: str | bool | None, output_dir: str, steps_per_rollout: int, max_steps: int
) -> Path | None:
    """The checkpoint to resume from: ``asked``, its folder, or if that is True (or "true") `last_whole_checkpoint`.

    Raises:
        UserError: If there is none, or it was saved between two updates on one rollout, whose trajectories are gone.
    """
    if not asked:
        return None
    if asked is True or str(asked).lower() == "true":
        ended = last_whole_checkpoint(output_dir, steps_per_rollout, max_steps)
        found = ended or last_whole_checkpoint(output_dir)
    else:
        found = Path(asked)
    step = None if found is None else _recorded_step(found)
    if found is None or step is None:
        raise UserError(f"no whole checkpoint in {found or output_dir}; train without resuming, or give another folder")
    if not _is_an_end(step, steps_per_rollout, max_steps):
        raise UserError(
            f"{found} was saved between two updates on one rollout, which is gone; resume from a step that "
            f"{steps_per_rollout} divides, and save (save_steps, or eval_steps of the best) at multiples"
        )
    return found


def _is_an_end(step: int, steps_per_rollout: int, max_steps: int) -> bool:
    return step % steps_per_rollout == 0 or 0 < max_steps <= step


def check_parts(checkpoint: Path, engine_processes: int) -> None:
    """Raise `UserError` if DeepSpeed has written the optimizer in another number of parts than it would read.

    DeepSpeed finds that out in one process after another, while the others wait; without DeepSpeed (0 processes) the
    optimizer would silently begin again.
    """
    parts = len(list(checkpoint.glob("global_step*/*_optim_states.pt")))
    if parts and parts != engine_processes:
        found = f"this launch has {engine_processes}" if engine_processes else "this launch is without it"
        raise UserError(
            f"{checkpoint} was saved by DeepSpeed on {parts} processes, and {found}; resume with DeepSpeed on {parts}, "
            "or begin a new run with the model that it holds (zero_to_fp32.py in that folder writes it)"
        )


def _recorded_step(folder: Path) -> int | None:
    try:
        state = json.loads((folder / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return None
    return state.get("global_step") if isinstance(state, dict) else None


class StopOnInterrupt(TrainerCallback):
    """Ctrl-C (or SIGTERM) ends training after the present rollout, with a checkpoint; a second one ends it at once.

    Attributes:
        stopped: Whether training was stopped that way.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._previous: dict[int, Any] = {}
        self._tells = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take over the signals. Only the main thread may do so; elsewhere they stay as they are."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._tells = args.process_index == 0
        self._previous = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Between two rollouts everything is consistent: save here and stop, on all processes together."""
        ended = state.global_step % max(1, getattr(args, "steps_per_rollout", 1)) == 0
        if ended and any(gather_object([self.stopped])):
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Give the signals back."""
        self.restore()

    def restore(self) -> None:
        """Give the signals back; call it after an exception, which skips ``on_train_end``."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        self.restore()
        if self._tells:
            sys.stderr.write("\nStopping after this rollout and its update; press Ctrl-C again to stop at once.\n")
