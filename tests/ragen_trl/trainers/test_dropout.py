"""Sampled tokens are scored in the network that sampled them: nothing is dropped, in the model or in an adapter."""

import logging
from pathlib import Path
from typing import Any

import pytest
from peft import LoHaConfig, LoraConfig
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM, PreTrainedModel

from ragen_trl import StarPOConfig
from ragen_trl.trainers.dropout import switch_off_dropout
from tests.support.ragen_trl.trainers import TOKENIZER, lottery, small_model, small_trainer


def gpt2() -> PreTrainedModel:
    """With 0.1 in its modules, as published."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(TOKENIZER), n_embd=32, n_layer=2, n_head=4, initializer_range=0.2))


def opt() -> PreTrainedModel:
    """With 0.1 and 0.2 as numbers, and layers that are left out; TRL's own switch knows none of them."""
    shape: dict[str, Any] = {"hidden_size": 32, "ffn_dim": 48, "word_embed_proj_dim": 32, "num_hidden_layers": 2}
    drops: dict[str, Any] = {"dropout": 0.1, "attention_dropout": 0.2, "layerdrop": 0.3}
    return OPTForCausalLM(OPTConfig(vocab_size=len(TOKENIZER), num_attention_heads=4, init_std=0.2, **shape, **drops))


LORA = LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.5, init_lora_weights=False)
LOHA = LoHaConfig(target_modules=["q_proj"], rank_dropout=0.5, module_dropout=0.5, init_weights=False)


@pytest.mark.parametrize(
    ("model", "adapter", "said"),
    [
        (gpt2, None, ""),
        (opt, None, "dropout 0.2, layerdrop 0.3"),
        (small_model, LORA, "lora_dropout 0.5"),
        (small_model, LOHA, "module_dropout 0.5, rank_dropout 0.5"),
    ],
    ids=["GPT-2", "OPT", "LoRA", "LoHa"],
)
def test_the_first_ratio_is_one_whatever_drops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, model: Any, adapter: Any, said: str
) -> None:
    """Regression: LoRA dropout was on in the loss, 0.02 to 0.035 nats from what was sampled."""
    with caplog.at_level(logging.WARNING):
        trainer = small_trainer(tmp_path, lottery(draws=2), model=model(), peft_config=adapter, max_steps=1)
    assert said in caplog.text
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "sampling/ratio_deviation_max" in row]
    assert row["sampling/ratio_deviation_max"] < 1e-4


def test_everything_that_drops_is_found_and_nothing_else_changes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2), nn.Dropout1d(0.3))
    model.jitter_noise, model.attention_dropout, model.scale = 0.01, 0.0, 0.5  # type: ignore[assignment]
    model.rank_dropout = {"default": 0.4}  # type: ignore[assignment]
    found = switch_off_dropout(model)
    assert found == {"Dropout": 0.2, "Dropout1d": 0.3, "jitter_noise": 0.01, "rank_dropout": 0.4}
    assert (model.jitter_noise, model.scale, model.rank_dropout) == (0.0, 0.5, {"default": 0.0})
    assert switch_off_dropout(model) == {}


def test_dropout_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="disable_dropout is False, which rollouts do not honour; leave True"):
        StarPOConfig(output_dir=str(tmp_path), use_cpu=True, disable_dropout=False)
