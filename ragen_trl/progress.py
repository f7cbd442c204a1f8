"""What a person sees while it trains: one bar with an ETA and the success rate, no lines of logs."""

from typing import Any

from tqdm.auto import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments


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
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc=self._description, unit="step")

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
