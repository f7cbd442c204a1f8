"""Progress of long work on standard error: tqdm's bars, and Transformers' with a few metrics."""

import sys
from typing import Any

from tqdm.auto import tqdm
from transformers import ProgressCallback, Trainer

from ragen_trl.system.processes import is_main


def progress_bar(total: int, description: str, unit: str, hidden: bool = False, initial: int = 0) -> "tqdm[Any]":
    """A bar of ``total`` units, ``initial`` of them done before; in the first process, in a log file twice a minute."""
    rarely = {} if sys.stderr.isatty() else {"mininterval": 30.0, "miniters": 1, "delay": 30.0}
    hidden = hidden or not is_main()
    return tqdm(total=total, desc=description, unit=unit, initial=initial, disable=hidden, leave=False, **rarely)


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
