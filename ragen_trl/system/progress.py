"""Progress of long work: a bar with the remaining time on a terminal, a line now and then in a log file.

Both come from tqdm. In a log file a bar that is drawn over itself would be one endless line. Where standard output or
standard error is no terminal, a whole line is written to standard output every half a minute instead, and none for work
that takes less. Nothing is coloured.
"""

import os
import sys
from typing import Any

from tqdm.auto import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

LINE_EVERY = 30.0  # seconds between two lines in a log file
_LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s ({percentage:.0f} %) in {elapsed}, {remaining} to go{postfix}"


class _Lines(tqdm):  # type: ignore[misc, type-arg]
    """A progress bar that writes lines.

    Relies on tqdm: it calls ``display`` at most every ``mininterval``, and with ``msg=""`` to clear a bar; ``clear``
    draws over it.
    """

    disable: bool

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write one line; there is nothing to clear."""
        if msg != "" and self.n > self.initial:
            self.fp.write(f"{self}\n")
            self.fp.flush()
        return True

    def clear(self, nolock: bool = False) -> None:
        """There is nothing to draw over."""

    def close(self) -> None:
        """Close without the carriage return that clears a bar."""
        if not self.disable:
            self.disable = True
            self._decr_instances(self)


def progress_bar(total: int, description: str, unit: str, hidden: bool = False, initial: int = 0) -> "tqdm[Any]":
    """A bar on a terminal (standard error), else lines (standard output); of several processes only the first shows it.

    Args:
        total: How many units there are.
        description: What is in progress.
        unit: Name of a unit, in the singular.
        hidden: Show nothing.
        initial: How many units were done before.
    """
    hidden = hidden or os.environ.get("RANK", "0") != "0"
    shown: dict[str, Any] = {"total": total, "desc": description, "unit": unit, "initial": initial, "leave": False}
    if sys.stderr.isatty() and sys.stdout.isatty():
        return tqdm(disable=hidden, **shown)
    rarely = {"mininterval": LINE_EVERY, "miniters": 1, "delay": LINE_EVERY, "bar_format": _LINE}
    return _Lines(disable=hidden, file=sys.stdout, **rarely, **shown)


class TrainingBar(TrainerCallback):
    """A progress bar over optimizer steps, with the logged metrics in ``show`` at its end.

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
        """Open the bar at the step that training starts or resumes from."""
        if state.is_world_process_zero:
            self._bar = progress_bar(state.max_steps, self._description, "step", initial=state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Advance the bar."""
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
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def show_progress(trainer: Trainer, bar: TrainingBar) -> None:
    """Replace transformers' own progress output by ``bar``; A*-PO's stage 1 shows a bar of its own."""
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    trainer.args.disable_tqdm = False
    trainer.add_callback(bar)
