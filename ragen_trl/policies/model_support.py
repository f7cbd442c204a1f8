"""Which models can be sampled with a kept KV cache, with how long a context, and whether a name leads to a model.

A ``SlotCache`` needs layers that attend to the full context, with our mask and our positions. Left out, and refused:
sliding windows, because a slot never moves; recurrent layers, because their state is not one entry per token; and ALiBi
as transformers builds it, from a mask that says which tokens count but not their positions.
"""

import inspect
import json
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from peft import PeftModel
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import CONFIG_NAME
from transformers.utils.hub import extract_commit_hash

from ragen_trl.errors import UserError


class UnsupportedModelError(UserError, ValueError):
    """The model cannot be sampled with a kept KV cache."""


class ModelNotFoundError(UserError, FileNotFoundError):
    """A model's path or hub id names nothing that can be loaded."""


class NoReferenceError(UserError, ValueError):
    """TRL cannot load the reference model of its KL term."""


def check_supported(model: PreTrainedModel | PeftModel) -> None:
    """Raise `UnsupportedModelError` for a model whose samples would be wrong; it says what to use instead."""
    config = model.config.get_text_config()
    name = config.name_or_path or config.model_type
    layers = _other_layers(model)
    if layers:
        raise UnsupportedModelError(
            f"{name!r} has {', '.join(layers)} layers; the Transformers backend keeps a KV cache across turns only for "
            "models whose layers all attend to the full context (Qwen2, Qwen3, Llama, SmolLM2, …). Use one of those"
        )
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if "position_ids" not in inspect.signature(type(base).forward).parameters or getattr(config, "alibi", False):
        raise UnsupportedModelError(
            f"{name!r} takes no position ids (ALiBi); the Transformers backend needs rotary or learned positions. "
            "Use such a model (Qwen2, Qwen3, Llama, SmolLM2, OPT, …)"
        )
    attention = model.config._attn_implementation
    if attention not in ("sdpa", "eager"):
        raise UnsupportedModelError(
            f"{name!r} was loaded with attn_implementation={attention!r}, which takes no custom attention mask; "
            'pass model_init_kwargs={"attn_implementation": "sdpa"}'
        )


def context_length(model: PreTrainedModel | PeftModel) -> int | None:
    """Number of positions that the model knows; ``None`` if its config names no limit."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def _other_layers(model: PreTrainedModel | PeftModel) -> list[str]:
    """The kinds of the model's layers that do not attend to the whole context."""
    config = model.config.get_text_config()
    if model._is_stateful:
        return ["recurrent"]
    kinds = set(getattr(config, "layer_types", None) or ())
    window, known = getattr(config, "sliding_window", None), context_length(model)
    if not kinds and window is not None:  # Mistral, Phi-3: one kind for all
        kinds = {"sliding_attention"}
    if window is not None and known is not None and window >= known:  # no context is longer than the window
        kinds.discard("sliding_attention")
    return sorted(kinds - {"full_attention"})


def check_policy(model: str | PreTrainedModel, beta: float | None) -> None:
    """Check a trainer's policy: a name must lead to a model, and TRL must be able to load its reference.

    Args:
        model: The policy.
        beta: KL coefficient. If it is not 0, TRL loads a reference from the model's path. ``None`` with an adapter.

    Raises:
        ModelNotFoundError: As ``check_model``.
        NoReferenceError: If TRL needs a path and there is none.
    """
    if isinstance(model, str):
        check_model(model)
    elif beta and not isinstance(model, PeftModel) and not model.config.name_or_path:
        raise NoReferenceError(
            f"beta is {beta}, so TRL loads a reference model from the policy's path, but this policy was built in "
            "memory; save it with its tokenizer and pass the folder, or set beta=0"
        )


def check_model(name: str) -> None:
    """Check that a path or hub id leads to a model.

    Raises:
        ModelNotFoundError: If it does not.
    """
    folder = Path(name).expanduser()
    adapter = folder / "adapter_config.json"
    if adapter.is_file():  # LoRA weights; their base model must exist as well
        return check_model(json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"])
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelNotFoundError(
            f"{name!r} is a folder without config.json or adapter_config.json, so it is not a saved model; give the "
            "folder that save_pretrained or the trainer wrote"
        )
    beside_one = "/" in name and Path(name).parts[0] in {path.name for path in Path().iterdir() if path.is_dir()}
    looks_local = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or beside_one
    if looks_local and not folder.is_dir():
        raise ModelNotFoundError(f"there is no folder {name!r}; give a saved model's folder or a hub id (owner/name)")
    try:
        AutoConfig.from_pretrained(str(folder) if folder.is_dir() else name)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"{name!r} is neither a folder here nor a model that could be loaded from the hub "
            f"({str(error).splitlines()[0]}); check the spelling and the connection"
        ) from error


def commit_of(name: str) -> str | None:
    """The hub's commit of a model whose configuration is in the local cache; ``None`` if it is not."""
    found = try_to_load_from_cache(name, CONFIG_NAME)
    return extract_commit_hash(found if isinstance(found, str) else None, None)
