"""Which models can be trained, and with how long a context; read from the configuration, before weights are loaded.

Does the sampler compute what the model is? A ``SlotCache`` needs layers that attend to the full context, with our mask
and our positions. Refused are sliding windows, because a slot never moves; recurrent layers, because their state is not
one entry per token; and ALiBi as Transformers builds it. Does the trainer compute what the sampler did? Rotary
frequencies that depend on the longest row of a pass (longrope, dynamic NTK) agree only up to the model's first length.
"""

from typing import Any

import transformers
from peft import PeftConfig, PeftModel
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig, PreTrainedModel

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.model_calls import cache_name, takes_positions, unwrapped
from ragen_trl.policies.model_names import check_model

FAMILIES = ("qwen2_5_vl", "qwen3_vl")  # model types that can be sampled and trained on pictures
_FULL = "models whose layers all attend to the full context (Qwen2, Qwen3, Llama, SmolLM2, …)"
# Rotary embeddings whose frequencies depend on the longest row of a pass, and from which length on they do.
_LENGTH_DEPENDENT = {"longrope": "original_max_position_embeddings", "dynamic": "max_position_embeddings"}

# Recurrent models of Transformers whose state reads padding, and by how much that was seen to shift (nats). Others
# (Mamba, Mamba-2, Jamba, Falcon-H1, LFM2, …) leave padding out of their state.
_READ_PADDING = {"rwkv": 2.0, "recurrent_gemma": 0.17}


class UnsupportedModelError(UserError, ValueError):
    """The model's replies would be sampled or scored as another model's, or it cannot be placed as it is asked to."""


def check_policy(model: str | PreTrainedModel | PeftModel, args: StarPOConfig, adapter: PeftConfig | None) -> None:
    """Check a trainer's policy by its configuration: it can be loaded, sampled, scored, and placed on one device.

    Raises:
        ModelNotFoundError: As ``check_model``.
        UnsupportedModelError: If the policy, in TRL's ``peft_config``, cannot be trained with these options.
    """
    if isinstance(model, str):
        given = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
        config = check_model(model, given.get("revision"), bool(given.get("trust_remote_code", args.trust_remote_code)))
        kind, attention, adapters = class_of(config), given.get("attn_implementation"), []
        _check_device_map(given.get("device_map"))
    else:
        config, kind = model.config, type(unwrapped(model))
        attention = config._attn_implementation
        adapters = list(model.peft_config.values()) if isinstance(model, PeftModel) else []
        _check_device_map(getattr(model, "hf_device_map", None))
    for one in adapters if adapter is None else [*adapters, adapter]:
        _check_adapter(one)
    check_modalities(config, args.observation)
    _check_padding(config)
    if not args.use_vllm:
        _check_sampled(config, kind, attention)
    _check_length(config, args)
    _check_router(config.get_text_config(), args)


def check_in_memory(model: PreTrainedModel | PeftModel, args: StarPOConfig, adapter: PeftConfig | None) -> None:
    """Raise `UnsupportedModelError` if TRL needs a path for its reference, and the policy has none."""
    if args.beta and adapter is None and not isinstance(model, PeftModel) and not model.config.name_or_path:
        default = f", the default of {type(args).__name__}" if args.beta == type(args).beta else ""
        raise UnsupportedModelError(
            f"beta is {args.beta}{default}, so TRL loads a reference model from the policy's path, but this policy was "
            "built in memory; save it with its tokenizer and pass the folder, or set beta=0"
        )


def check_supported(model: PreTrainedModel | PeftModel) -> None:
    """Raise `UnsupportedModelError` for a model whose samples would be wrong; it says what to use instead."""
    _check_sampled(model.config, type(unwrapped(model)), model.config._attn_implementation)


def context_length(model: PreTrainedModel | PeftModel | PretrainedConfig) -> int | None:
    """Number of positions that the model knows and that all its passes agree on; ``None`` if there is no limit."""
    config = (model if isinstance(model, PretrainedConfig) else model.config).get_text_config()
    known: int | None = getattr(config, "max_position_embeddings", None)
    exact = _length_of_one_rope(config)
    return known if exact is None or (known is not None and known < exact[1]) else exact[1]


def short_context(model: PreTrainedModel | PeftModel | PretrainedConfig, args: StarPOConfig) -> str:
    """What to say where ``max_completion_length`` allows more than the model's context; empty where it does not."""
    known, allowed = context_length(model), args.max_completion_length
    if known is None or allowed is None or allowed <= known:
        return ""
    return (
        f"max_completion_length is {allowed:,}, but the model's context ends at {known:,} tokens, and an episode with "
        "it, as a failure; lower the first, or take a model with a longer context"
    )


def class_of(config: PretrainedConfig) -> type[PreTrainedModel] | None:
    """The class of the language model that a configuration describes; ``None`` if its code comes with its weights."""
    named = getattr(transformers, (config.architectures or [""])[0], None)
    return named or MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)


def _name(config: PretrainedConfig) -> str:
    kind = config.get_text_config().model_type
    return f"{config.name_or_path!r} ({kind})" if config.name_or_path else repr(kind)


def _check_sampled(config: PretrainedConfig, model: type[PreTrainedModel] | None, attention: str | None) -> None:
    text = config.get_text_config()
    layers, window = _other_layers(text, model)
    if layers:
        raise UnsupportedModelError(
            f"{_name(config)} has {', '.join(layers)} layers{window}; the Transformers backend keeps a KV cache across "
            f"turns only for {_FULL}. Use one of those, or sample with vLLM (use_vllm=True)"
        )
    if model is not None and not takes_positions(model) or getattr(text, "alibi", False):
        raise UnsupportedModelError(
            f"{_name(config)} takes no position ids (ALiBi); the Transformers backend needs rotary or learned "
            "positions. Use such a model (Qwen2, Qwen3, Llama, SmolLM2, OPT, …), or sample with vLLM (use_vllm=True)"
        )
    if model is not None and not cache_name(model):
        raise UnsupportedModelError(
            f"{_name(config)} keeps no keys and values of what it has read; use a model that does, such as {_FULL}, or "
            "sample with vLLM (use_vllm=True)"
        )
    if attention not in ("sdpa", "eager", None):
        raise UnsupportedModelError(
            f"{_name(config)} was loaded with attn_implementation={attention!r}, which takes no custom attention mask; "
            'pass model_init_kwargs={"attn_implementation": "sdpa"}'
        )


def _other_layers(config: PretrainedConfig, model: type[PreTrainedModel] | None) -> tuple[list[str], str]:
    """The kinds of the model's layers that do not attend to the whole context, and the figure of a window."""
    if model is not None and model._is_stateful:
        return ["recurrent"], ""
    kinds = set(getattr(config, "layer_types", None) or ())
    known = getattr(config, "max_position_embeddings", None)
    window = getattr(config, "sliding_window", None)
    if not kinds and window is not None:  # Mistral, Phi-3: one kind for all
        kinds = {"sliding_attention"}
    if "local" in (getattr(config, "attention_layers", None) or ()):  # GPT-Neo
        kinds, window = {"sliding_attention"}, config.window_size
    if window is not None and known is not None and window >= known:  # no context is longer than the window
        kinds.discard("sliding_attention")
    figure = f" (a window of {window} of {known} positions)" if "sliding_attention" in kinds else ""
    return sorted(kinds - {"full_attention"}), figure


def _length_of_one_rope(config: PretrainedConfig) -> tuple[str, int] | None:
    """The kind of a rotary embedding that depends on the length of a pass, and up to which length it does not."""
    ropes: Any = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *(part for part in ropes.values() if isinstance(part, dict))]:
        kind = rope.get("rope_type")
        if kind in _LENGTH_DEPENDENT:
            field = _LENGTH_DEPENDENT[kind]
            return kind, rope.get(field) or getattr(config, field)
    return None


def _check_length(config: PretrainedConfig, args: StarPOConfig) -> None:
    """Refuse contexts in which two passes over one token would turn it by different angles."""
    text = config.get_text_config()
    found = _length_of_one_rope(text)
    if found is None:
        return
    kind, exact = found
    about = (
        f"{_name(config)} has {kind} positions, whose frequencies depend on the longest row of a pass beyond {exact} "
        "tokens: a sampled token would be scored at other positions than it was sampled at"
    )
    if args.use_vllm and kind == "dynamic":
        raise UnsupportedModelError(
            f"{about}; vLLM scales them at every length. Set use_vllm=False, or take a model without them"
        )
    if args.use_vllm and args.vllm_mode == "colocate" and not _up_to(args.vllm_max_model_length, exact):
        raise UnsupportedModelError(
            f"{about}, and vLLM takes its longest context for it, vllm_max_model_length "
            f"{args.vllm_max_model_length}; set it to {exact} or less"
        )
    if not _up_to(args.max_completion_length, exact - 1):
        raise UnsupportedModelError(
            f"{about}. max_completion_length is {args.max_completion_length}; set it so low that a first prompt with "
            f"so many tokens has at most {exact}"
        )


def _up_to(value: int | None, limit: int) -> bool:
    return value is not None and value <= limit


def check_modalities(config: PretrainedConfig, observation: str) -> None:
    """Raise `UnsupportedModelError` for a model that does not read what messages show."""
    others = sorted(set(config.sub_configs) - {"text_config"})
    named = f"{config.name_or_path or config.model_type!r} ({config.model_type})"
    if observation == "image":
        if config.model_type not in FAMILIES:
            raise UnsupportedModelError(
                f"observation is 'image', but {named} is none of {', '.join(FAMILIES)}; take a Qwen2.5-VL or a Qwen3-VL"
            )
    elif others and config.get_text_config() is not config:
        raise UnsupportedModelError(
            f"{named} reads more than text ({', '.join(others)}), but rollouts send text only, so that it would be "
            "trained as a text model with positions and weights that nothing uses; take a text model of its family, "
            "save its language model alone, or set observation='image' for a model that docs/pictures.md lists"
        )


def _check_padding(config: PretrainedConfig) -> None:
    if config.model_type in _READ_PADDING:
        raise UnsupportedModelError(
            f"{_name(config)} has recurrent layers that read the padding before a prompt, which shifts the trainer's "
            f"log-probabilities (by {_READ_PADDING[config.model_type]:g} nats in a small model); take another model"
        )


def _check_router(config: PretrainedConfig, args: StarPOConfig) -> None:
    """TRL adds a mixture's load-balancing loss wherever there is one, and reads its size from ``num_experts``."""
    weight: Any = getattr(config, "router_aux_loss_coef", 0.0)
    weight = weight if args.router_aux_loss_coef is None else args.router_aux_loss_coef
    if weight and getattr(config, "output_router_logits", None) is not None and not getattr(config, "num_experts", 0):
        raise UnsupportedModelError(
            f"{_name(config)} has router_aux_loss_coef {weight:g}, but its configuration names no num_experts, from "
            "which TRL computes that loss; set router_aux_loss_coef=0 to train without it"
        )


def _check_adapter(adapter: PeftConfig) -> None:
    if adapter.is_prompt_learning or adapter.is_adaption_prompt:
        raise UnsupportedModelError(
            f"the adapter is a {type(adapter).__name__}, which puts trained tokens before every context; a kept KV "
            "cache and the trainer's positions have no room for them. Use LoraConfig(...)"
        )


def _check_device_map(device_map: Any) -> None:
    """Raise `UnsupportedModelError` for a model that is spread over devices."""
    if isinstance(device_map, dict):
        devices = {str(device) for device in device_map.values()}
        if len(devices) <= 1:
            return
        found = f"is spread over {', '.join(sorted(devices))}"
    elif isinstance(device_map, str) and device_map in ("auto", "balanced", "balanced_low_0", "sequential"):
        found = f"has device_map={device_map!r}, which spreads it over the machine's devices"
    else:
        return
    raise UnsupportedModelError(
        f"the model {found}, but a process trains on one device: leave device_map unset, and start one process per GPU "
        "(accelerate launch); a model that is too large for one trains with LoRA, in 4 bits, or with DeepSpeed"
    )
