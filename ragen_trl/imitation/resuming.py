"""A warm start that was stopped goes on from its last checkpoint, if it is the same warm start.

A digest tells: of the demonstrations token for token, the weights that it begins with, and how it learns. Transformers'
checkpoint does the rest, so the weights at the end are the same as without a stop. Launches that divide
the model begin again.
"""

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.hashing import hash_weight
from ragen_trl.training.checkpoints import last_whole_checkpoint

SAVED_EVERY = 600.0
"""Seconds of learning after which a checkpoint is written: what a stopped warm start loses at most."""

_NAME = "begun.json"


class TimedSaves(TrainerCallback):
    """Writes a checkpoint when none has been written for ``SAVED_EVERY`` seconds, by the clock of the main process."""

    def __init__(self) -> None:
        self._saved_at = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self._saved_at = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint in all processes, which write it together, or in none."""
        (due,) = broadcast_object_list([time.monotonic() - self._saved_at >= SAVED_EVERY])
        control.should_save |= due

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Start the clock again."""
        self._saved_at = time.monotonic()


def digest(model: PreTrainedModel, data: Iterable[Dataset], settings: Mapping[str, Any]) -> str:
    """SHA-256 of what a warm start comes from: the model before the first update, the examples, the settings."""
    known = {**settings, "model": model.config.to_dict()}
    found = sha256(json.dumps(known, sort_keys=True, default=str).encode())
    for name, value in model.named_parameters():
        hash_weight(found, name, value.detach())
    for examples in data:
        table = examples.with_format("arrow")[:]
        for name in table.column_names:
            rows = table[name].combine_chunks()
            found.update(f"{name} {len(rows)}".encode())
            found.update(rows.value_lengths().to_numpy())
            found.update(rows.flatten().to_numpy())
    return found.hexdigest()


def checkpoints_in(folder: Path) -> Path:
    """Where the checkpoints of a warm start are that is written into ``folder``."""
    return folder / "checkpoints"


def stopped_at(trainer: Trainer, folder: Path, begun: str) -> Path | None:
    """The last whole checkpoint of a warm start with the same digest; without one (None) ``folder`` is emptied.

    All processes call it together, before ``train()``. From now on checkpoints are written in time (`TimedSaves`).
    """
    note = folder / _NAME
    divided = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if not divided:  # nobody would go on from its checkpoints
        trainer.add_callback(TimedSaves())
    if trainer.args.process_index == 0 and (divided or not _is(note, begun)):
        shutil.rmtree(folder, ignore_errors=True)
        write_atomically(note, json.dumps({"digest": begun}))
    trainer.accelerator.wait_for_everyone()
    return None if divided else last_whole_checkpoint(checkpoints_in(folder))


def forget(folder: Path) -> None:
    """Remove what only a stopped warm start needs."""
    shutil.rmtree(checkpoints_in(folder), ignore_errors=True)
    (folder / _NAME).unlink(missing_ok=True)


def _is(note: Path, begun: str) -> bool:
    return note.exists() and json.loads(note.read_text(encoding="utf-8")) == {"digest": begun}
