"""The progress bar of a training, instead of Transformers' own output; for any trainer of Transformers."""

from typing import Any

from tqdm.auto import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from ragen_trl.system.progress import progress_bar


class TrainingBar(TrainerCallback):
    """A progress bar over optimizer steps, with the metrics in ``show`` (log key → short name) at its end."""

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
