"""What a trainer refuses by the configuration of its policy, before any weights are read: no folder here has any."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    BioGptConfig,
    CTRLConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoConfig,
    GraniteMoeConfig,
    LlamaConfig,
    MambaConfig,
    OpenAIGPTConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2Config,
    RwkvConfig,
    XGLMConfig,
)

from ragen_trl import StarPOConfig
from ragen_trl.policies.model_calls import with_positions
from ragen_trl.policies.model_support import UnsupportedModelError, check_policy, context_length

SHAPE = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "initializer_range": 0.2}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SHAPE |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.2}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0}
LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
PHI3 = Phi3Config(**SHAPE, rope_parameters=LONGROPE, original_max_position_embeddings=32, sliding_window=None)
NTK = LlamaConfig(**{**SHAPE, "max_position_embeddings": 32}, rope_parameters=DYNAMIC)
LLAMA = LlamaConfig(**SHAPE)


def options(**changes: Any) -> StarPOConfig:
    return StarPOConfig(output_dir="x", use_cpu=True, bf16=False, report_to="none", **{"beta": 0.0, **changes})


def saved(config: PretrainedConfig, folder: Path) -> str:
    config.save_pretrained(folder)
    return str(folder)


def random_model(config: PretrainedConfig) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


PADDED: dict[str, tuple[PretrainedConfig, float]] = {  # what padding on the left shifted without positions, at least
    "gpt2": (GPT2Config(**GPT), 1.0),
    "gpt_bigcode": (GPTBigCodeConfig(**GPT), 1.0),
    "biogpt": (BioGptConfig(**SHAPE), 1.0),
    "ctrl": (CTRLConfig(**GPT, dff=48), 1.0),
    "xglm": (XGLMConfig(vocab_size=40, d_model=32, ffn_dim=48, num_layers=2, attention_heads=4, init_std=0.2), 1.0),
    "opt": (OPTConfig(**SHAPE, ffn_dim=48, word_embed_proj_dim=32, init_std=0.2), 0.0),
    "longrope": (PHI3, 0.1),
    "dynamic NTK": (NTK, 0.1),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_on_the_left_shifts_no_position(name: str) -> None:
    """Rows of 30 and 12 tokens in a batch 40 wide: beyond the length (32) at which frequencies change."""
    config, shift = PADDED[name]
    model = random_model(config)
    ids = torch.arange(80).view(2, 40) % 37 + 3
    attention = torch.stack([torch.arange(40) >= 10, torch.arange(40) >= 28]).long()
    found = {"without": 0.0, "with": 0.0}
    with torch.no_grad():
        for key, call in {"without": model, "with": with_positions(model, model, attention)}.items():
            logits = call(input_ids=ids, attention_mask=attention, use_cache=False).logits
            for row, length in enumerate((30, 12)):
                alone = model(input_ids=ids[row : row + 1, -length:], use_cache=False).logits[0]
                gap = (logits[row, -length:].log_softmax(-1) - alone.log_softmax(-1)).abs().max().item()
                found[key] = max(found[key], gap)
    assert found["with"] < 1e-4
    assert found["without"] >= shift


NEO = {"vocab_size": 40, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64}
REFUSED: dict[str, tuple[PretrainedConfig, dict[str, Any], str]] = {
    "local attention": (
        GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1]], window_size=16),
        {},
        r"gpt_neo.*sliding_attention layers \(a window of 16 of 64 positions\).*Qwen2.*use_vllm=True",
    ),
    "recurrent": (MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1), {}, "mamba.*recurrent layers"),
    "no cache": (OpenAIGPTConfig(**GPT), {}, "openai-gpt.*keeps no keys and values"),
    "reads padding": (
        RwkvConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1),
        {"use_vllm": True},
        "rwkv.*read the padding.*by 2 nats",
    ),
    "longrope": (PHI3, {"max_completion_length": 32}, "phi3.*longrope positions.*beyond 32 tokens.*is 32; set it so"),
    "longrope, no limit": (PHI3, {"max_completion_length": None}, "max_completion_length is None; set it so low"),
    "longrope in vLLM": (
        PHI3,
        {"use_vllm": True, "vllm_mode": "colocate", "max_completion_length": 16, "vllm_max_model_length": 64},
        "takes its longest context for it, vllm_max_model_length 64; set it to 32 or less",
    ),
    "dynamic NTK": (NTK, {"max_completion_length": 40}, "llama.*dynamic positions.*beyond 32 tokens"),
    "dynamic NTK in vLLM": (
        NTK,
        {"use_vllm": True, "max_completion_length": 16},
        "vLLM scales them at every length. Set use_vllm=False",
    ),
    "vision": (Qwen2_5_VLConfig(), {}, r"qwen2_5_vl.*more than text \(vision_config\).*take a text model"),
    "router": (
        GraniteMoeConfig(**SHAPE, num_local_experts=2, num_experts_per_tok=1, router_aux_loss_coef=0.01),
        {},
        "granitemoe.*router_aux_loss_coef 0.01.*num_experts.*router_aux_loss_coef=0",
    ),
    "flash attention": (
        LLAMA,
        {"model_init_kwargs": {"attn_implementation": "flash_attention_2"}},
        'flash_attention_2.*"attn_implementation": "sdpa"',
    ),
    "spread": (LLAMA, {"model_init_kwargs": {"device_map": "auto"}}, "device_map='auto', which spreads it.*accelerate"),
    "spread by hand": (
        LLAMA,
        {"model_init_kwargs": {"device_map": {"model.layers.0": 0, "model.layers.1": 1}}},
        "spread over 0, 1, but a process trains on one device",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_scored_otherwise_than_sampled_is_refused_by_name(name: str, tmp_path: Path) -> None:
    config, changes, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        check_policy(saved(config, tmp_path), options(**changes), None)


ACCEPTED: dict[str, tuple[PretrainedConfig, dict[str, Any]]] = {
    "llama": (LLAMA, {}),
    "longrope within its first length": (PHI3, {"max_completion_length": 20}),
    "longrope in a vLLM as short": (
        PHI3,
        {"use_vllm": True, "vllm_mode": "colocate", "max_completion_length": 16, "vllm_max_model_length": 32},
    ),
    "dynamic NTK within its length": (NTK, {"max_completion_length": 20}),
    "recurrent in vLLM": (MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1), {"use_vllm": True}),
    "local attention in vLLM": (GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1]]), {"use_vllm": True}),
    "one device": (LLAMA, {"model_init_kwargs": {"device_map": {"": 0}}}),
    "one device by name": (LLAMA, {"model_init_kwargs": {"device_map": "cuda:0"}}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_scored_as_sampled_passes(name: str, tmp_path: Path) -> None:
    config, changes = ACCEPTED[name]
    check_policy(saved(config, tmp_path), options(**changes), LoraConfig())


def test_no_context_is_longer_than_all_passes_agree_on() -> None:
    assert context_length(PHI3) == 32
    assert context_length(random_model(PHI3)) == 32
    assert context_length(NTK) == 32
    assert context_length(LLAMA) == 128


@pytest.mark.parametrize("kind", [PromptTuningConfig, PrefixTuningConfig, PromptEncoderConfig])
def test_trained_tokens_before_the_context_are_refused(kind: Any, tmp_path: Path) -> None:
    """They died in the first rollout."""
    adapter = kind(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with pytest.raises(UnsupportedModelError, match=f"{kind.__name__}.*Use LoraConfig"):
        check_policy(saved(LLAMA, tmp_path), options(), adapter)
    with pytest.raises(UnsupportedModelError, match=f"{kind.__name__}.*Use LoraConfig"):
        check_policy(get_peft_model(random_model(Qwen2Config(**SHAPE)), adapter), options(), None)
