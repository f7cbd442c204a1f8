"""Which model a name leads to, how long its contexts are, and which models cannot be sampled as they are trained.

Whether the trainer computes what the sampler did is measured at the first update (`training.self_check`). Refused here
is what that check would not see: it sees no evaluation, and no context longer than those of the first rollout.
"""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel

from ragen_trl.config.recipes import base_model
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.policies.model_calls import cache_name, takes_positions, unwrapped
from ragen_trl.system.atomic import MANIFEST, damage, read_manifest
from ragen_trl.system.shards import whole

FAMILIES = ("qwen2_5_vl", "qwen3_vl")  # model types that can be sampled and trained on pictures
# Rotary embeddings whose frequencies depend on the longest row of a pass, and from which length on they do.
_LENGTH_DEPENDENT = {"longrope": "original_max_position_embeddings", "dynamic": "max_position_embeddings"}


class UnsupportedModelError(UserError, ValueError):
    """The model cannot be trained, or its replies would be sampled or scored as another model's."""


def check_model(name: str, revision: str | None = None, trust_remote_code: bool = False) -> PretrainedConfig:
    """The configuration of the model that a name leads to; of an adapter, its base model's. `OptionError`."""
    base = base_model(name) if is_adapter(name) else None
    options = {"trust_remote_code": trust_remote_code} | ({} if revision is None else {"revision": revision})
    if (Path(name) / MANIFEST).is_file() and (wrong := damage(Path(name), "*.safetensors")):
        raise OptionError(f"the model in {name} is damaged: {wrong}; copy it again")
    try:
        found: PretrainedConfig = AutoConfig.from_pretrained(base or name, **({} if base else options))
    except Exception as error:  # of a hostile file any
        of_base = f" is an adapter of {base!r}, which" if base else ""
        if (Path(name) / "model").is_dir():
            raise OptionError(f"{name!r} is the folder of a run; give the model in it: {name}/model") from error
        raise OptionError(
            f"{name!r}{of_base} is neither a saved model's folder nor a model that could be loaded from the hub "
            f"({str(error).splitlines()[0]}). Check the spelling and the connection; of a run of `train` give the "
            "folder model in it, of a GGUF file the folder that python -m ragen_trl convert makes. make smollm2 makes "
            "models/SmolLM2-135M-Instruct without a hub"
        ) from error
    return found


def load_model(name: str, kind: Any = AutoModelForCausalLM, trains: bool = False) -> PreTrainedModel | PeftModel:
    """The model that a name leads to, in float32 as TRL trains it; an adapter's folder gives its base with it.

    ``kind`` is the Auto class of the base; with ``trains`` the adapter goes on learning. Tokens that were added to the
    vocabulary are in the tokenizer beside the adapter, and the base grows by them.
    """
    base = base_model(name) if is_adapter(name) else None
    model: PreTrainedModel = kind.from_pretrained(base or name, dtype="float32")
    if base is None:
        return model
    words = len(AutoTokenizer.from_pretrained(name if (Path(name) / "tokenizer_config.json").is_file() else base))
    if words > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(words)
    adapted = PeftModel.from_pretrained(model, name, is_trainable=trains)
    if (Path(name) / MANIFEST).is_file():
        check_base(Path(name), read_manifest(Path(name)).get("base"), base_weights(adapted))
    return adapted


def base_weights(model: PreTrainedModel | PeftModel) -> dict[str, Any] | None:
    """The base model under an adapter: its name and a hash of some of its ``weights``; all processes call it.

    The hash is the same in float32 and bfloat16; in other precisions there is none. What an adapter may come with, more
    embeddings and other biases, is left out.
    """
    if not isinstance(model, PeftModel):
        return None
    found, digest = {"name": model.active_peft_config.base_model_name_or_path, "weights": None}, sha256()
    for name, value in model.get_base_model().named_parameters():
        if set(model.peft_config) & set(name.split(".")) or re.search(r"embed|lm_head|wte|wpe|bias$", name):
            continue
        if value.dtype not in (torch.float32, torch.bfloat16):
            return found
        some = whole(value).flatten()
        digest.update(some[:: max(1, len(some) // 64)].bfloat16().view(torch.int16).cpu().numpy().tobytes())
    return {**found, "weights": digest.hexdigest()}


def check_base(folder: Path, trained: Any, now: Any) -> None:
    """Raise `OptionError` if an adapter in a folder was ``trained`` on another base than there is ``now``."""
    bases = [base for base in (trained, now) if isinstance(base, dict) and base.get("weights")]
    if len({base["weights"] for base in bases}) > 1:
        raise OptionError(
            f"the adapter in {folder} was trained on {trained['name']!r}, and {now['name']!r} has other weights now; "
            "give it the base model that it was trained on"
        )


def lora(rank: int, alpha: int) -> LoraConfig | None:
    """The adapter that commands train: LoRA on all linear layers; ``None`` for rank 0, which trains all weights."""
    if rank == 0:
        return None
    return LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def is_adapter(model: str | None) -> bool:
    """Whether a model's name is the folder of an adapter."""
    return model is not None and (Path(model) / "adapter_config.json").is_file()


def name_base_absolutely(model: PreTrainedModel | PeftModel) -> None:
    """Let the adapters of a model find their base from everywhere, if that is a folder here."""
    for adapter in model.peft_config.values() if isinstance(model, PeftModel) else ():
        base = adapter.base_model_name_or_path
        if base is not None and Path(base).is_dir():
            adapter.base_model_name_or_path = str(Path(base).resolve())


def check_policy(model: str | PreTrainedModel | PeftModel | None, args: StarPOConfig, new_adapter: bool) -> None:
    """Check a trainer's policy, if it has a name by its configuration; ``None`` is the embedded one.

    `OptionError` for a new adapter on the one that a folder holds; `UnsupportedModelError` if the policy cannot see
    what it is shown, or as `check_supported`.
    """
    config: PretrainedConfig | None = None
    if isinstance(model, str):
        if new_adapter and is_adapter(model):
            raise OptionError(f"model {model!r} is an adapter, which goes on learning: leave peft_config or lora_r out")
        given = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
        config = check_model(model, given.get("revision"), bool(given.get("trust_remote_code", args.trust_remote_code)))
    elif model is not None:
        config = model.config
        if not args.use_vllm:
            check_supported(model)
    if args.observation == "image":
        check_sees(config)


def check_sees(config: PretrainedConfig | None) -> None:
    """Raise `UnsupportedModelError` for a model that cannot be shown pictures; ``None`` is the embedded one."""
    if config is None or config.model_type not in FAMILIES:
        model = "the embedded model" if config is None else f"{config.name_or_path!r}, a {config.model_type},"
        raise UnsupportedModelError(f"observation is 'image', but {model} reads text; take a Qwen2.5-VL or a Qwen3-VL")


def check_supported(model: PreTrainedModel | PeftModel) -> None:
    """Raise `UnsupportedModelError` unless the model reads a kept cache with our mask and our positions."""
    kind, text, attention = type(unwrapped(model)), model.config.get_text_config(), model.config._attn_implementation
    remedy = "take a model whose layers all attend to the full context (Qwen2, Qwen3, Llama, SmolLM2, …), or sample "
    remedy += "with vLLM (use_vllm=True)"
    if kind._is_stateful or _has_other_layers(text):
        reason = "has recurrent or sliding-window layers, for which no KV cache is kept across turns"
    elif not (takes_positions(kind) and cache_name(kind)) or getattr(text, "alibi", False):
        reason = "takes no position ids (ALiBi) or no cache, and a kept KV cache needs both"
    elif attention not in ("sdpa", "eager", None):
        reason = f"was loaded with attn_implementation={attention!r}, which takes no custom attention mask"
        remedy = 'pass model_init_kwargs={"attn_implementation": "sdpa"}'
    else:
        return
    raise UnsupportedModelError(f"{model.config.name_or_path!r} ({text.model_type}) {reason}; {remedy}")


def context_length(model: PreTrainedModel | PeftModel | PretrainedConfig) -> int | None:
    """Number of positions that the model knows and that all its passes agree on; ``None`` if there is no limit.

    Beyond it some rotary embeddings turn a token by another angle in a longer pass: it would be scored at another
    position than it was sampled at. Episodes end there.
    """
    config = (model if isinstance(model, PretrainedConfig) else model.config).get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), _length_of_one_rope(config)]
    return min((limit for limit in limits if limit is not None), default=None)


def _has_other_layers(config: PretrainedConfig) -> bool:
    """Whether some of the model's layers do not attend to the whole context."""
    kinds = set(getattr(config, "layer_types", None) or ())
    known, window = (getattr(config, name, None) for name in ("max_position_embeddings", "sliding_window"))
    if not kinds and window is not None:  # Mistral, Phi-3: one kind for all
        kinds = {"sliding_attention"}
    if "local" in (getattr(config, "attention_layers", None) or ()):  # GPT-Neo
        kinds, window = {"sliding_attention"}, config.window_size
    if window is not None and known is not None and window >= known:  # no context is longer than the window
        kinds.discard("sliding_attention")
    return bool(kinds - {"full_attention"})


def _length_of_one_rope(config: PretrainedConfig) -> int | None:
    """Up to which length the rotary frequencies do not depend on the length of a pass; ``None`` if they never do."""
    ropes: Any = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes, *(part for part in ropes.values() if isinstance(part, dict))]:
        field = _LENGTH_DEPENDENT.get(rope.get("rope_type"))
        if field is not None:
            return int(rope.get(field) or getattr(config, field))
    return None
