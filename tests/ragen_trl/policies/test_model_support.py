"""Which models are refused: those that would sample something else than what is trained."""

import pytest
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma3TextConfig,
    MambaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
)

from ragen_trl.policies.model_support import UnsupportedModelError, check_supported, context_length

SHAPE = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
SLIDING: dict[str, PretrainedConfig] = {
    "mistral": MistralConfig(**SHAPE, sliding_window=8),
    "qwen2": Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "gemma3_text": Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=63),
}


@pytest.mark.parametrize("config", SLIDING.values(), ids=SLIDING)
def test_a_sliding_window_is_refused(config: PretrainedConfig) -> None:
    """Regression: a window that holds for all layers is declared in another field (Mistral, Phi-3) and was missed."""
    with pytest.raises(UnsupportedModelError, match=f"{config.model_type}.*sliding_attention layers"):
        check_supported(AutoModelForCausalLM.from_config(config))


def test_a_window_as_long_as_the_longest_context_is_none() -> None:
    config = MistralConfig(**SHAPE, sliding_window=64)
    check_supported(AutoModelForCausalLM.from_config(config))
    assert context_length(AutoModelForCausalLM.from_config(config)) == 64
    check_supported(AutoModelForCausalLM.from_config(Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=64)))


def test_a_recurrent_model_is_refused() -> None:
    model = AutoModelForCausalLM.from_config(MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1))
    with pytest.raises(UnsupportedModelError, match="mamba.*recurrent layers"):
        check_supported(model)


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(vocab_size=40, hidden_size=16, n_layer=1, n_head=2),
        FalconConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, alibi=True),
    ],
    ids=["bloom", "falcon"],
)
def test_a_model_without_position_ids_is_refused(config: PretrainedConfig) -> None:
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedModelError, match=f"{config.model_type}.*takes no position ids.*Qwen2"):
        check_supported(model)
    adapted = get_peft_model(model, LoraConfig(target_modules=["query_key_value"]))
    with pytest.raises(UnsupportedModelError, match=f"{config.model_type}.*takes no position ids"):
        check_supported(adapted)
