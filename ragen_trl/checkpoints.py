"""Stop and go on without loss: which checkpoints are whole, and a Ctrl-C that leaves one behind."""

import json
import os
import re
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def last_whole_checkpoint(output_dir: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint that was written to its end, or ``None``.

    transformers writes ``trainer_state.json`` last (pinned by a contract test): a folder without a readable one is
    what a kill or a full disk left behind.
    """
    folders = {}
    for folder in Path(output_dir).glob("checkpoint-*"):
        match = _CHECKPOINT.fullmatch(folder.name)
        if match and _recorded_step(folder) == int(match[1]):
            folders[int(match[1])] = folder
    return folders[max(folders)] if folders else None


def _recorded_step(folder: Path) -> int | None:
    try:
        state = json.loads((folder / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return None
    return state.get("global_step") if isinstance(state, dict) else None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one, the new one, or none: never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


class StopOnInterrupt(TrainerCallback):
    """Ctrl-C (or SIGTERM) finishes the step in progress, saves a checkpoint and stops; a second one stops at once.

    Attributes:
        stopped: Whether training was stopped that way.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._previous: dict[int, Any] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take over the signals; only a main thread may, elsewhere they stay as they are."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._previous = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Between two steps everything is consistent: save here, then stop."""
        if self.stopped:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Give the signals back."""
        self._restore()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
