"""Which model a name leads to, how long its contexts are, and which models cannot be sampled as they are trained.

Whether the trainer computes what the sampler did is measured at the first update (`training.self_check`). Refused here,
by the configuration and before weights are loaded, is what that check would not see: it sees no evaluation, and no
context longer than those of the first rollout.
"""

from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import try_to_load_from_cache
from peft import LoraConfig, PeftConfig, PeftModel
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.utils import CONFIG_NAME
from transformers.utils.hub import extract_commit_hash

from ragen_trl.config.recipes import base_model
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.gguf_file import UNREADABLE, GGUFError, is_gguf, model_source, unreadable
from ragen_trl.policies.model_calls import cache_name, takes_positions, unwrapped

FAMILIES = ("qwen2_5_vl", "qwen3_vl")  # model types that can be sampled and trained on pictures
# Rotary embeddings whose frequencies depend on the longest row of a pass, and from which length on they do.
_LENGTH_DEPENDENT = {"longrope": "original_max_position_embeddings", "dynamic": "max_position_embeddings"}


class ModelNotFoundError(UserError, FileNotFoundError):
    """A model's path or hub id names nothing that can be loaded."""


class UnsupportedModelError(UserError, ValueError):
    """The model cannot be trained, or its replies would be sampled or scored as another model's."""


# Names


def check_model(name: str, revision: str | None = None, trust_remote_code: bool = False) -> PretrainedConfig:
    """The configuration of the model that a name (folder, hub id, GGUF file) leads to; of an adapter, its base model's.

    Raises:
        ModelNotFoundError: If there is no such model.
        GGUFError: If a name that ends with ``.gguf`` is no such file, or the package ``gguf`` is missing.
    """
    check_folder(name)
    if is_adapter(name):
        base = base_model(name)
        if base is None:
            raise ModelNotFoundError(f"the adapter {name!r} names no base model; set its base_model_name_or_path")
        try:
            return check_model(base)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                f"{name!r} is an adapter of {base!r}, which cannot be loaded from here: {error}. If it has moved, "
                "write its place into adapter_config.json"
            ) from error
    options = {"trust_remote_code": trust_remote_code} | ({} if revision is None else {"revision": revision})
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(**model_source(name), **options)
    except GGUFError:
        raise
    except UNREADABLE as error:
        if is_gguf(name):
            raise unreadable(Path(name).expanduser(), error) from error
        if not isinstance(error, (OSError, ValueError)):
            raise
        raise ModelNotFoundError(
            f"{name!r} is neither a folder here nor a model that could be loaded from the hub "
            f"({str(error).splitlines()[0]}); check the spelling and the connection"
        ) from error
    return config


def check_folder(name: str) -> None:
    """Raise `ModelNotFoundError` for a name that looks like a folder's and holds no model; asks no hub."""
    folder = Path(name).expanduser()
    if is_gguf(name) or any((folder / file).is_file() for file in (CONFIG_NAME, "adapter_config.json")):
        return
    if folder.is_dir():
        raise ModelNotFoundError(
            f"{name!r} is a folder without config.json or adapter_config.json, so it is not a saved model; give the "
            "folder that save_pretrained or the trainer wrote (of a run of `train`, the folder model in it)"
        )
    looks_local = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if looks_local or ("/" in name and (Path(name).parts[0] in ("models", "runs") or Path(name).parent.is_dir())):
        raise ModelNotFoundError(
            f"there is no folder {name!r}; give a saved model's folder or a hub id (owner/name). make smollm2 makes "
            "models/SmolLM2-135M-Instruct without a hub"
        )


def commit_of(name: str) -> str | None:
    """The hub's commit of a model whose configuration is in the local cache; ``None`` if it is not."""
    found = try_to_load_from_cache(name, CONFIG_NAME)
    return extract_commit_hash(found if isinstance(found, str) else None, None)


# Adapters


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


# What can be trained


def check_policy(model: str | PreTrainedModel | PeftModel, args: StarPOConfig, adapter: PeftConfig | None) -> None:
    """Check a trainer's policy by its configuration; ``adapter`` is TRL's ``peft_config``.

    Raises:
        ModelNotFoundError: As ``check_model``.
        UnsupportedModelError: If no weight of it is trained, or it would be sampled or scored as another model.
    """
    if isinstance(model, str):
        given = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
        config = check_model(model, given.get("revision"), bool(given.get("trust_remote_code", args.trust_remote_code)))
        kind, attention = class_of(config), given.get("attn_implementation")
    else:
        config, kind, attention = model.config, type(unwrapped(model)), model.config._attn_implementation
        if adapter is None and not any(weight.requires_grad for weight in model.parameters()):
            raise UnsupportedModelError(
                "no weight of the model is trained (requires_grad is False for all), so the run would learn nothing; "
                "load a saved adapter with PeftModel.from_pretrained(..., is_trainable=True), or give a peft_config"
            )
    if args.observation == "image":
        check_sees(config)
    if not args.use_vllm:
        _check_sampled(config, kind, attention)
    _check_length(config, args.max_completion_length)


def check_named_policy(model: str | None, args: StarPOConfig, adapter: PeftConfig | None) -> None:
    """As `check_policy`, for a command's ``--model``; ``None`` is the embedded model, which reads text."""
    if model is not None:
        check_policy(model, args, adapter)
    elif args.observation == "image":
        raise UnsupportedModelError(
            "observation is 'image', but the embedded model reads text; give a Qwen2.5-VL or a Qwen3-VL by --model"
        )


def check_sees(config: PretrainedConfig) -> None:
    """Raise `UnsupportedModelError` for a model that cannot be shown pictures."""
    if config.model_type not in FAMILIES:
        raise UnsupportedModelError(
            f"observation is 'image', but {_name(config)} is none of {', '.join(FAMILIES)}; take a Qwen2.5-VL or a "
            "Qwen3-VL"
        )


def check_in_memory(model: PreTrainedModel | PeftModel, args: StarPOConfig, adapter: PeftConfig | None) -> None:
    """Raise `UnsupportedModelError` if TRL needs a path for its reference, and the policy has none."""
    if args.beta and adapter is None and not isinstance(model, PeftModel) and not model.config.name_or_path:
        default = f", the default of {type(args).__name__}" if args.beta == type(args).beta else ""
        raise UnsupportedModelError(
            f"beta is {args.beta}{default}, so TRL loads a reference model from the policy's path, but this policy was "
            "built in memory; save it with its tokenizer and pass the folder, or set beta=0"
        )


def check_supported(model: PreTrainedModel | PeftModel) -> None:
    """Raise `UnsupportedModelError` unless the model reads a kept cache with our mask and our positions."""
    _check_sampled(model.config, type(unwrapped(model)), model.config._attn_implementation)


def context_length(model: PreTrainedModel | PeftModel | PretrainedConfig) -> int | None:
    """Number of positions that the model knows and that all its passes agree on; ``None`` if there is no limit."""
    config = (model if isinstance(model, PretrainedConfig) else model.config).get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), (_length_of_one_rope(config) or (None, None))[1]]
    return min((limit for limit in limits if limit is not None), default=None)


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
    text, reason = config.get_text_config(), ""
    if layers := _other_layers(text, model):
        reason = f"has {', '.join(layers)} layers, for which no KV cache is kept across turns"
    elif (model is not None and not takes_positions(model)) or getattr(text, "alibi", False):
        reason = "takes no position ids (ALiBi), which a kept KV cache needs"
    elif model is not None and not cache_name(model):
        reason = "keeps no keys and values of what it has read"
    if reason:
        raise UnsupportedModelError(
            f"{_name(config)} {reason}. Take a model whose layers all attend to the full context (Qwen2, Qwen3, Llama, "
            "SmolLM2, …), or sample with vLLM (use_vllm=True)"
        )
    if attention not in ("sdpa", "eager", None):
        raise UnsupportedModelError(
            f"{_name(config)} was loaded with attn_implementation={attention!r}, which takes no custom attention mask; "
            'pass model_init_kwargs={"attn_implementation": "sdpa"}'
        )


def _other_layers(config: PretrainedConfig, model: type[PreTrainedModel] | None) -> list[str]:
    """The kinds of the model's layers that do not attend to the whole context."""
    if model is not None and model._is_stateful:
        return ["recurrent"]
    kinds = set(getattr(config, "layer_types", None) or ())
    known = getattr(config, "max_position_embeddings", None)
    window = getattr(config, "sliding_window", None)
    if not kinds and window is not None:  # Mistral, Phi-3: one kind for all
        kinds = {"sliding_attention"}
    if "local" in (getattr(config, "attention_layers", None) or ()):  # GPT-Neo
        kinds, window = {"sliding_attention"}, config.window_size
    if window is not None and known is not None and window >= known:  # no context is longer than the window
        kinds.discard("sliding_attention")
    return sorted(kinds - {"full_attention"})


def _length_of_one_rope(config: PretrainedConfig) -> tuple[str, int] | None:
    """The kind of a rotary embedding that depends on the length of a pass, and up to which length it does not."""
    ropes: Any = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *(part for part in ropes.values() if isinstance(part, dict))]:
        kind = rope.get("rope_type")
        if kind in _LENGTH_DEPENDENT:
            field = _LENGTH_DEPENDENT[kind]
            return kind, rope.get(field) or getattr(config, field)
    return None


def _check_length(config: PretrainedConfig, max_completion_length: int | None) -> None:
    """Refuse contexts in which two passes over one token would turn it by different angles."""
    kind, exact = _length_of_one_rope(config.get_text_config()) or ("", 0)
    if kind and (max_completion_length is None or max_completion_length >= exact):
        raise UnsupportedModelError(
            f"{_name(config)} has {kind} positions, whose frequencies depend on the longest row of a pass beyond "
            f"{exact} tokens: a sampled token would be scored at other positions than it was sampled at. "
            f"max_completion_length is {max_completion_length}; set it so low that a first prompt with so many tokens "
            f"has at most {exact}"
        )
