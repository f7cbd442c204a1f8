"""Which models can be sampled with a kept KV cache, and for how long a context.

A ``SlotCache`` needs layers that attend to the full context under a mask of ours, at positions of ours. Left out, and
refused: sliding windows, because a slot never moves; recurrent layers, whose state is not one entry a token; ALiBi as
transformers builds it, from a mask that says only which tokens count and not where they stand.
"""

import inspect

from peft import PeftModel
from transformers import PreTrainedModel

from ragen_trl.errors import UserError


class UnsupportedModelError(UserError, ValueError):
    """The model cannot be sampled with a kept KV cache."""


def check_supported(model: PreTrainedModel | PeftModel) -> None:
    """Raise `UnsupportedModelError`, with the name and the remedy, for a model that would sample something else."""
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
            f"{name!r} takes no position ids (ALiBi); the Transformers backend needs rotary or learned positions "
            "(Qwen2, Qwen3, Llama, SmolLM2, OPT, …). Use such a model"
        )
    attention = model.config._attn_implementation
    if attention not in ("sdpa", "eager"):
        raise UnsupportedModelError(
            f"{name!r} was loaded with attn_implementation={attention!r}, which takes no custom attention mask; "
            'pass model_init_kwargs={"attn_implementation": "sdpa"}'
        )


def context_length(model: PreTrainedModel | PeftModel) -> int | None:
    """Positions the model knows, ``None`` if its config names no limit."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def _other_layers(model: PreTrainedModel | PeftModel) -> list[str]:
    """Kinds of layers that do not attend to all of the context."""
    config = model.config.get_text_config()
    if model._is_stateful:
        return ["recurrent"]
    kinds = set(getattr(config, "layer_types", None) or ())
    window, known = getattr(config, "sliding_window", None), context_length(model)
    if not kinds and window is not None:  # Mistral, Phi-3: one kind for all
        kinds = {"sliding_attention"}
    if window is not None and known is not None and window >= known:  # no context can outgrow the window
        kinds.discard("sliding_attention")
    return sorted(kinds - {"full_attention"})
