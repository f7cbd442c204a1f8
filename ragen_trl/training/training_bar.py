"""The progress bar of a training, instead of Transformers' own output; for any trainer of Transformers."""

from typing import Any

from transformers import PrinterCallback, ProgressCallback, Trainer

from ragen_trl.system.progress import progress_bar


class TrainingBar(ProgressCallback):
    """A progress bar over optimizer steps, with the metrics in ``show`` (log key → short name) at its end."""

    def __init__(self, description: str, show: dict[str, str]) -> None:
        super().__init__()
        self._description, self._show = description, show

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar at the step that training starts or resumes from."""
        self.current_step = state.global_step
        if state.is_world_process_zero:
            self.training_bar = progress_bar(state.max_steps, self._description, "step", initial=state.global_step)

    def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
        """No second bar for an evaluation."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the newest values."""
        found = {name: (logs or {}).get(key) for key, name in self._show.items()}
        values = {name: f"{float(value):.3g}" for name, value in found.items() if value is not None}
        if self.training_bar is not None and values:
            self.training_bar.set_postfix(values, refresh=False)


def show_progress(trainer: Trainer, bar: TrainingBar) -> None:
    """Replace transformers' own progress output by ``bar``."""
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    trainer.args.disable_tqdm = False
    trainer.add_callback(bar)
