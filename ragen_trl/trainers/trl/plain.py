"""What the monitor and the warm start need of the inside of any trainer, ours or TRL's own, under public names.

Relies on ``_logs``, ``_buffered_inputs``, ``_tokenizer``, ``_metrics``, ``_load_best_model``, ``_n_gpu`` and
``grpo_trainer.prepare_fsdp``; held by ``test_trl_contract.py``.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation
from trl.trainer import grpo_trainer

from ragen_trl.system.shards import is_divided, whole_weights


@contextmanager
def unwrapped_for_generation(trainer: GRPOTrainer) -> Iterator[PreTrainedModel]:
    """The policy of any ``GRPOTrainer``, unwrapped and with whole weights; all processes enter together.

    TRL gathers weights for ZeRO-3 only. Under FSDP2 every forward pass would, and processes whose episodes take more
    turns make more passes. Before training the model of a launch that divides it is on the CPU; here it is not.
    """
    unwrapped = unwrap_model_for_generation(
        trainer.model_wrapped,
        trainer.accelerator,
        gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
        gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
    )
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


def keeps_weights_whole(trainer: GRPOTrainer) -> bool:
    """Whether `unwrapped_for_generation` can: not with FSDP1, whose parameters are views of a flat tensor."""
    return not trainer.is_fsdp_enabled or trainer.accelerator.state.fsdp_plugin.fsdp_version == 2


class PlainRollout(NamedTuple):
    """The last rollout of a plain ``GRPOTrainer``, as far as TRL keeps it.

    ``rewards`` are (B, F) of all processes, ``completions`` B texts or lists of messages; ``micro_batches`` this
    process's.
    """

    rewards: torch.Tensor
    completions: list[Any]
    micro_batches: list[dict[str, Any]]


def last_rollout(trainer: GRPOTrainer) -> PlainRollout:
    """The last rollout of a plain ``GRPOTrainer``."""
    logs = trainer._logs
    by_function = [list(logs["rewards"][name]) for name in trainer.reward_func_names]
    return PlainRollout(torch.tensor(by_function).T, list(logs["completion"]), trainer._buffered_inputs)


def tokenizer_of(trainer: GRPOTrainer) -> PreTrainedTokenizerBase:
    """The tokenizer of any ``GRPOTrainer``."""
    return trainer._tokenizer


def log_training(trainer: GRPOTrainer, values: Mapping[str, float]) -> None:
    """Log values in any ``GRPOTrainer``; TRL writes the mean of each since the last row of its log."""
    for name, value in values.items():
        trainer._metrics["train"][name].append(float(value))


@contextmanager
def without_message(text: str | None, source: str = "trl.trainer.grpo_trainer") -> Iterator[None]:
    """Suppress log records of the logger ``source`` that contain ``text``; ``None`` suppresses nothing."""
    logger = logging.getLogger(source)

    def others(record: logging.LogRecord) -> bool:
        return text is None or text not in record.getMessage()

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


def without_tied_head(model: PreTrainedModel) -> AbstractContextManager[None]:
    """Keep Transformers from reporting a head as missing in a checkpoint that is the embedding's matrix."""
    tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
    text = "missing keys in the checkpoint model loaded: ['lm_head.weight']" if tied else None
    return without_message(text, "transformers.trainer")


@contextmanager
def references_divided_by_layer() -> Iterator[None]:
    """Let FSDP2 divide the layers of a frozen model that TRL makes, and not its root alone.

    TRL's ``prepare_fsdp`` gathers all of it in each pass, and leaves other processes without its weights where only
    the first one loads them (``cpu_ram_efficient_loading``).
    """
    theirs = grpo_trainer.prepare_fsdp

    def prepare(model: PreTrainedModel, accelerator: Accelerator) -> Any:
        if accelerator.state.fsdp_plugin.fsdp_version == 1:
            return theirs(model, accelerator)
        return fsdp2_prepare_model(accelerator, model.requires_grad_(False)).eval()

    grpo_trainer.prepare_fsdp = prepare
    try:
        yield
    finally:
        grpo_trainer.prepare_fsdp = theirs


def use_one_device(args: TrainingArguments) -> None:
    """Let a process train on one device where it sees several; Transformers would make copies on all, or refuse."""
    args._n_gpu = min(args.n_gpu, 1)


def load_weights(trainer: Trainer, folder: Path) -> None:
    """Put a checkpoint's weights into a trainer's model, in any launch and for any kind of model."""
    trainer.state.best_model_checkpoint = str(folder)
    trainer._load_best_model()
