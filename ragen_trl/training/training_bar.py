"""Transformers' progress bar with a few metrics at its end, instead of a line for every log."""

from typing import Any

from transformers import ProgressCallback, Trainer


class TrainingBar(ProgressCallback):
    """Shows the newest values of the metrics that are ``shown``, by their names in the log."""

    def __init__(self, *shown: str) -> None:
        super().__init__()
        self.shown = shown

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show them."""
        values = {name: f"{logs[name]:.3g}" for name in self.shown if (logs or {}).get(name) is not None}
        if self.training_bar is not None and values:
            self.training_bar.set_postfix(values)


def show_metrics(trainer: Trainer, *shown: str) -> None:
    """Replace Transformers' own progress bar, unless ``disable_tqdm`` is set."""
    if not trainer.args.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(TrainingBar(*shown))
