"""Which models are refused: those that would sample something else than what is trained, and nobody would see it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma3TextConfig,
    GPTNeoConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    OpenAIGPTConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
)

from ragen_trl import StarPOConfig
from ragen_trl.policies.models import (
    ModelNotFoundError,
    UnsupportedModelError,
    check_model,
    check_policy,
    check_supported,
    context_length,
    load_model,
    lora,
)
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

SHAPE = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
NEO = {"vocab_size": 40, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0}
LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
PHI3 = Phi3Config(
    **SHAPE, rope_parameters=LONGROPE, original_max_position_embeddings=32, sliding_window=None, pad_token_id=0
)
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
NTK = LlamaConfig(**{**SHAPE, "max_position_embeddings": 32}, rope_parameters=DYNAMIC)
LLAMA = LlamaConfig(**SHAPE)

SAMPLED_WRONGLY: dict[str, PretrainedConfig] = {
    # a window that holds for all layers is declared in another field than one that holds for some
    "mistral": MistralConfig(**SHAPE, sliding_window=8),
    "qwen2": Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "gemma3": Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=63),
    "gpt_neo": GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1]], window_size=16),
    "mamba": MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1),
    "bloom": BloomConfig(vocab_size=40, hidden_size=16, n_layer=1, n_head=2),
    "falcon": FalconConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, alibi=True),
    "gpt": OpenAIGPTConfig(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=64),
}


def options(**changes: Any) -> StarPOConfig:
    return StarPOConfig(output_dir="x", use_cpu=True, bf16=False, report_to="none", **{"beta": 0.0, **changes})


def saved(config: PretrainedConfig, folder: Path) -> str:
    config.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("name", SAMPLED_WRONGLY)
def test_a_model_that_a_kept_cache_would_sample_wrongly_is_refused_without_vllm(name: str) -> None:
    model = AutoModelForCausalLM.from_config(SAMPLED_WRONGLY[name])
    with pytest.raises(UnsupportedModelError, match=SAMPLED_WRONGLY[name].model_type):
        check_policy(model, options(), False)
    check_policy(model, options(use_vllm=True), False)


def test_an_adapter_on_a_refused_model_is_refused() -> None:
    model = AutoModelForCausalLM.from_config(SAMPLED_WRONGLY["bloom"])
    with pytest.raises(UnsupportedModelError, match="bloom"):
        check_supported(get_peft_model(model, LoraConfig(target_modules=["query_key_value"])))


def test_a_window_as_long_as_the_longest_context_is_none() -> None:
    check_supported(AutoModelForCausalLM.from_config(MistralConfig(**SHAPE, sliding_window=64)))
    check_supported(AutoModelForCausalLM.from_config(Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=64)))


@pytest.mark.parametrize("config", [PHI3, NTK], ids=["longrope", "dynamic NTK"])
def test_contexts_stay_below_the_length_at_which_positions_depend_on_the_pass(config: PretrainedConfig) -> None:
    """A self-check at the first update would not see it: contexts may grow later."""
    assert context_length(config) == context_length(AutoModelForCausalLM.from_config(config)) == 32
    assert context_length(LLAMA) == 64


def test_a_kernel_that_takes_no_mask_is_refused() -> None:
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE))
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(UnsupportedModelError, match="flash_attention_2"):
        check_supported(model)


def test_a_name_leads_to_a_configuration_or_to_an_error(tmp_path: Path) -> None:
    saved(LLAMA, tmp_path / "model")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{tmp_path / "model"}"}}')
    for name in ("model", "adapter"):
        assert check_model(str(tmp_path / name)).max_position_embeddings == 64
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nothing"):
        with pytest.raises(ModelNotFoundError, match=name):
            check_model(str(tmp_path / name))


def test_an_adapter_is_loaded_with_the_tokens_that_were_added_for_it(tmp_path: Path) -> None:
    """Regression: what such a run had saved could neither be evaluated nor trained on."""
    tokenizer, model = build_tiny_tokenizer(), build_tiny_model(build_tiny_tokenizer())
    model.save_pretrained(tmp_path / "base")
    tokenizer.add_tokens(["<more>"])
    grown = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    grown.resize_token_embeddings(len(tokenizer))
    adapted = get_peft_model(grown, lora(4, 8))
    torch.nn.init.normal_(adapted.get_submodule("base_model.model.model.layers.0.mlp.up_proj.lora_B.default").weight)
    adapted.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    ids = torch.tensor([[1, 2, len(tokenizer) - 1, 3]])
    for trains in (False, True):
        found = load_model(str(tmp_path / "adapter"), trains=trains)
        torch.testing.assert_close(found.eval()(ids).logits, adapted.eval()(ids).logits)
        assert any(value.requires_grad for value in found.parameters()) == trains
