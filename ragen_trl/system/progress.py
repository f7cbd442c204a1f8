"""What a person sees while work takes its time: a bar with an ETA on a terminal, a line now and then in a log file.

Both are tqdm's. Where standard error is no terminal a bar that is drawn over itself would be one endless line, so there
it is a whole line every half a minute, and none at all for what takes less. Nothing is coloured.
"""

import os
import sys
from typing import Any, TextIO

from tqdm.auto import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

LINE_EVERY = 30.0  # seconds between lines where nobody watches
_LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s ({percentage:.0f} %) in {elapsed}, {remaining} to go{postfix}"


class _Lines(tqdm):  # type: ignore[misc, type-arg]
    """A progress bar that writes lines.

    Leans on tqdm: ``display`` is called no oftener than every ``mininterval``, with ``msg=""`` to clear a bar.
    """

    disable: bool

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write one line; there is nothing to clear."""
        if msg != "" and self.n > self.initial:
            self.fp.write(f"{self}\n")
            self.fp.flush()
        return True

    def close(self) -> None:
        """Leave without the carriage return with which a bar would clean up."""
        if not self.disable:
            self.disable = True
            self._decr_instances(self)


def progress_bar(total: int, description: str, unit: str, hidden: bool = False, initial: int = 0) -> "tqdm[Any]":
    """A bar, or lines in its place.

    Args:
        total: How much there is to do.
        description: What is in progress.
        unit: Of what, in the singular.
        hidden: Show nothing.
        initial: How much of it was done before.
    """
    shown: dict[str, Any] = {"total": total, "desc": description, "unit": unit, "initial": initial, "leave": False}
    if sys.stderr.isatty():
        return tqdm(disable=hidden, **shown)
    return _Lines(disable=hidden, mininterval=LINE_EVERY, miniters=1, delay=LINE_EVERY, bar_format=_LINE, **shown)


class TrainingBar(TrainerCallback):
    """A progress bar over optimiser steps; every logged metric named in ``show`` stands behind it.

    Args:
        description: What is in progress.
        show: Log key → short name on the bar.
    """

    def __init__(self, description: str, show: dict[str, str]) -> None:
        self._description = description
        self._show = show
        self._bar: tqdm[Any] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar at the step to resume from."""
        if state.is_world_process_zero:
            self._bar = progress_bar(state.max_steps, self._description, "step", initial=state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Advance it."""
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the newest values."""
        values = {name: logs[key] for key, name in self._show.items() if logs and logs.get(key) is not None}
        if self._bar is not None and values:
            self._bar.set_postfix({name: f"{float(value):.3g}" for name, value in values.items()}, refresh=False)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close it."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def show_progress(trainer: Trainer, bar: TrainingBar) -> None:
    """Put ``bar`` in the place of transformers' own progress output."""
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(bar)



_BOLD, _RED, _END = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"


def takes_colour(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that shows colours and whose user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def heading(text: str) -> str:
    """A line that others stand under, for standard output."""
    return f"{_BOLD}{text}{_END}" if takes_colour(sys.stdout) else text


def error_line(message: str) -> str:
    """``error: MESSAGE``, for standard error."""
    return f"{_RED}error:{_END} {message}" if takes_colour(sys.stderr) else f"error: {message}"
