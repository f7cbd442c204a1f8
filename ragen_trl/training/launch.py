"""What trainers, the monitor and the warm start need of a launch: whole weights to sample with, and one device."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import PreTrainedModel, Trainer, TrainingArguments
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from ragen_trl.system.shards import is_divided, whole_weights


@contextmanager
def unwrapped_for_generation(trainer: GRPOTrainer) -> Iterator[PreTrainedModel]:
    """The policy of any ``GRPOTrainer``, unwrapped and with whole weights; all processes enter together.

    TRL gathers weights for ZeRO-3 only. Under FSDP2 every forward pass would, and processes whose episodes take more
    turns make more passes. Before training the model of a launch that divides it is on the CPU; here it is not.
    """
    options = {"gather_deepspeed3_params": trainer.args.ds3_gather_for_generation}
    if "gradient_checkpointing_kwargs" in inspect.signature(unwrap_model_for_generation).parameters:  # from TRL 1.16 on
        options["gradient_checkpointing_kwargs"] = trainer.args.gradient_checkpointing_kwargs
    unwrapped = unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, **options)
    with unwrapped as model, whole_weights(model), _on_device(model, trainer.accelerator.device):
        yield model


@contextmanager
def _on_device(model: PreTrainedModel, device: torch.device) -> Iterator[None]:
    home = model.device
    if home.type == device.type or any(is_divided(value) for value in model.parameters()):
        yield
        return
    model.to(device)
    try:
        yield
    finally:
        model.to(home)


def use_one_device(args: TrainingArguments) -> None:
    """Let a process train on one device where it sees several; Transformers would make copies on all, or refuse."""
    args._n_gpu = min(args.n_gpu, 1)


def load_weights(trainer: Trainer, folder: Path) -> None:
    """Put a checkpoint's weights into a trainer's model, in any launch and for any kind of model."""
    trainer.state.best_model_checkpoint = str(folder)
    trainer._load_best_model()
