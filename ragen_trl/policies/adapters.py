"""Adapters of PEFT: the one that commands train, and how one finds its base model."""

from pathlib import Path

from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel


def lora(rank: int, alpha: int) -> LoraConfig | None:
    """The adapter that commands train: LoRA on all linear layers; ``None`` for rank 0, which trains all weights."""
    if rank == 0:
        return None
    return LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def is_adapter(model: str | None) -> bool:
    """Whether a model's name is the folder of an adapter."""
    return model is not None and (Path(model).expanduser() / "adapter_config.json").is_file()


def name_base_absolutely(model: PreTrainedModel | PeftModel) -> None:
    """Let the adapters of a model find their base from everywhere, if that is a folder here."""
    for adapter in model.peft_config.values() if isinstance(model, PeftModel) else ():
        base = adapter.base_model_name_or_path
        if base is not None and Path(base).is_dir():
            adapter.base_model_name_or_path = str(Path(base).resolve())
