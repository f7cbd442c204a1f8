"""A reference that follows the policy (``sync_ref_model``), in checkpoints; TRL saves none and would start again."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from trl import GRPOTrainer

from ragen_trl.errors import UserError
from ragen_trl.system.shards import part, part_of, whole_on_first

_FILE = "synced_reference.safetensors"


class SyncedReferenceError(UserError, ValueError):
    """A checkpoint does not have the reference that the run had."""


def save_synced_reference(trainer: GRPOTrainer, folder: Path) -> None:
    """Write the reference's weights, if it follows the policy. All processes call it together; the main one writes."""
    if not trainer.args.sync_ref_model:
        return
    weights = whole_on_first(_weights(trainer))
    if trainer.accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: value.contiguous() for name, value in weights.items()}, folder / _FILE)


def load_synced_reference(trainer: GRPOTrainer, folder: Path) -> None:
    """Read what `save_synced_reference` wrote; `SyncedReferenceError` if it is missing, damaged or another model's."""
    if not trainer.args.sync_ref_model:
        return
    remedy = "resume from another checkpoint, or train from the beginning"
    try:
        saved = load_file(folder / _FILE)
    except (OSError, SafetensorError) as error:
        raise SyncedReferenceError(
            f"sync_ref_model is True, and {folder / _FILE} cannot be read ({error}); {remedy}"
        ) from error
    weights = _weights(trainer)
    if saved.keys() != weights.keys():
        raise SyncedReferenceError(
            f"{folder / _FILE} has other weights than the reference, such as {min(saved.keys() ^ weights.keys())!r}; "
            f"{remedy}"
        )
    for name, value in weights.items():
        held = part(value)
        held.copy_(part_of(saved[name].to(held), value))


def _weights(trainer: GRPOTrainer) -> dict[str, torch.Tensor]:
    return dict(trainer.accelerator.unwrap_model(trainer.ref_model).named_parameters())
