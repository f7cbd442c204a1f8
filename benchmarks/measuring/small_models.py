"""Configurations of small models of many kinds, as data: what `architectures.py` and its test try.

Every model has two to four layers of width 32 and weights so large that a wrong position shows.
"""

from typing import Any

from transformers import AutoConfig, PretrainedConfig

_SHAPE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_COMMON = {**_SHAPE, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "initializer_range": 0.2}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "initializer_range": 0.2}
_FALCON = {**_SHAPE, "max_position_embeddings": 512, "initializer_range": 0.2}
_STATE = {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}
_NO_WINDOW = {"sliding_window": None}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MAMBA = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 4, "mamba_d_head": 16}
_LATENT = {
    **{"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    **{"num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 4, "n_shared_experts": 1},
    **{"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
}
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0}
_FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}

# Name → (type in transformers, what differs from the common shape).
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    # rotary positions, full attention
    **{
        name: (name, _COMMON)
        for name in (
            *("llama", "qwen2", "qwen3", "gemma", "phi", "stablelm", "olmo", "olmo2", "granite", "glm", "glm4"),
            *(
                "smollm3",
                "nemotron",
                "persimmon",
                "ernie4_5",
                "hunyuan_v1_dense",
                "apertus",
                "arcee",
                "seed_oss",
                "helium",
            ),
            *("starcoder2", "diffllama", "bitnet", "gpt_neox_japanese"),
        )
    },
    "gpt_neox": ("gpt_neox", {**_COMMON, "rotary_pct": 0.5}),
    "mistral, no window": ("mistral", {**_COMMON, **_NO_WINDOW}),
    "phi3, no window": ("phi3", {**_COMMON, **_NO_WINDOW}),
    "cohere": ("cohere", {**_COMMON, "logit_scale": 1.0}),
    "falcon": ("falcon", {**_FALCON, "multi_query": False, "new_decoder_architecture": False}),
    "gptj": ("gptj", {**_GPT, "rotary_dim": 8}),
    "codegen": ("codegen", {**_GPT, "rotary_dim": 8}),
    # mixtures of experts
    "mixtral, no window": ("mixtral", {**_COMMON, **_LOCAL_EXPERTS, **_NO_WINDOW}),
    "qwen2_moe": ("qwen2_moe", {**_COMMON, **_EXPERTS, "shared_expert_intermediate_size": 16}),
    "qwen3_moe": ("qwen3_moe", {**_COMMON, **_EXPERTS}),
    "olmoe": ("olmoe", {**_COMMON, **_EXPERTS}),
    "phimoe, no window, no router loss": ("phimoe", {**_COMMON, **_LOCAL_EXPERTS, **_NO_WINDOW}),
    "granitemoe": ("granitemoe", {**_COMMON, **_LOCAL_EXPERTS}),
    "granitemoe, no router loss": ("granitemoe", {**_COMMON, **_LOCAL_EXPERTS}),
    "deepseek_v2": ("deepseek_v2", {**_COMMON, **_LATENT}),
    "deepseek_v3": ("deepseek_v3", {**_COMMON, **_LATENT}),
    "dots1": ("dots1", {**_COMMON, **_LATENT, "num_key_value_heads": 2, **_NO_WINDOW}),
    "glm4_moe": ("glm4_moe", {**_COMMON, **_LATENT, "num_key_value_heads": 2}),
    # learned positions
    "gpt2": ("gpt2", _GPT),
    "gpt_bigcode": ("gpt_bigcode", _GPT),
    "opt": ("opt", {**_COMMON, "ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.2}),
    "biogpt": ("biogpt", _COMMON),
    "xglm, sinusoidal": (
        "xglm",
        {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4, "init_std": 0.2}
        | {"max_position_embeddings": 512},
    ),
    "openai-gpt": ("openai-gpt", _GPT),
    "ctrl": ("ctrl", {**_GPT, "dff": 48}),
    "gpt_neo, global": (
        "gpt_neo",
        {**_COMMON, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]},
    ),
    # frequencies that depend on the length of a pass
    "phi3, longrope": (
        "phi3",
        {**_COMMON, **_NO_WINDOW, "max_position_embeddings": 1024}
        | {"rope_parameters": {**_LONGROPE, **_FACTORS}, "original_max_position_embeddings": 256},
    ),
    "llama, dynamic NTK": (
        "llama",
        {**_COMMON, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}}
        | {"max_position_embeddings": 256},
    ),
    "llama, yarn": (
        "llama",
        {**_COMMON, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0}},
    ),
    # windows and chunks
    **{
        name: (name, {**_COMMON, "sliding_window": 32})
        for name in ("mistral", "mixtral", "gemma2", "gemma3_text", "cohere2", "olmo3", "gpt_oss", "exaone4", "phi3")
    },
    "gpt_neo, local": (
        "gpt_neo",
        {**_COMMON, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 32},
    ),
    "qwen2, sliding window": (
        "qwen2",
        {**_COMMON, "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1},
    ),
    # recurrent layers, and hybrids of them
    "mamba": ("mamba", _STATE),
    "mamba2": ("mamba2", {**_STATE, "num_heads": 4, "head_dim": 16, "n_groups": 1}),
    "falcon_mamba": ("falcon_mamba", _STATE),
    "rwkv": ("rwkv", {"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}),
    "jamba": ("jamba", {**_COMMON, **_MAMBA, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1}),
    "bamba": ("bamba", {**_COMMON, **_MAMBA, "attn_layer_indices": [1]}),
    "zamba2": (
        "zamba2",
        {
            **_COMMON,
            "num_key_value_heads": 4,
            "mamba_d_state": 8,
            "n_mamba_heads": 4,
            "layers_block_type": ["mamba", "hybrid"],
        }
        | {"num_mem_blocks": 1, "mamba_headdim": 16, "attention_head_dim": 16, "attention_hidden_size": 64},
    ),
    "recurrent_gemma": (
        "recurrent_gemma",
        {**_COMMON, "lru_width": 32, "attention_window_size": 32, "num_hidden_layers": 3},
    ),
    "falcon_h1": ("falcon_h1", {**_COMMON, **_MAMBA, "mamba_d_ssm": 64}),
    "lfm2": ("lfm2", {**_COMMON, "full_attn_idxs": [1]}),
    "granitemoehybrid": (
        "granitemoehybrid",
        {**_COMMON, **_MAMBA, **_LOCAL_EXPERTS, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 16},
    ),
    "nemotron_h": ("nemotron_h", {**_COMMON, "hybrid_override_pattern": "M*"}),
    "qwen3_next": (
        "qwen3_next",
        {**_COMMON, **_EXPERTS, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
        | {
            "linear_value_head_dim": 8,
            "shared_expert_intermediate_size": 16,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "minimax": (
        "minimax",
        {**_COMMON, **_LOCAL_EXPERTS, "layer_types": ["linear_attention", "full_attention"], "block_size": 16},
    ),
    # ALiBi, and others that take no positions
    "bloom": ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}),
    "mpt": ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 512}),
    "falcon, ALiBi": ("falcon", {**_FALCON, "alibi": True, "multi_query": False, "new_decoder_architecture": False}),
    # more than text
    "qwen2_5_vl": ("qwen2_5_vl", {}),
    "gemma3": ("gemma3", {}),
}


def config_of(name: str, vocabulary: int, stop: int) -> PretrainedConfig:
    """The configuration of one of `MODELS`.

    Args:
        name: Which.
        vocabulary: Number of tokens of the tokenizer.
        stop: Its end-of-turn token, which also pads.
    """
    kind, fields = MODELS[name]
    tokens = {"vocab_size": vocabulary, "bos_token_id": stop, "eos_token_id": stop, "pad_token_id": stop}
    config = AutoConfig.for_model(kind, **tokens, **fields)
    config.name_or_path = ""
    return config
