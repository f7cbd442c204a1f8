"""How a model is called in a rollout: which casts of weights autocast keeps, and LoRA as a part of the weights."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    BioGptConfig,
    CTRLConfig,
    GPT2Config,
    GPTBigCodeConfig,
    LlamaConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    XGLMConfig,
)

from ragen_trl.policies.model_calls import cache_name, lora_merged, weights_cast_once, with_positions
from ragen_trl.policies.tiny_model import build_tiny_model
from tests.support.ragen_trl.casts import CountedCasts
from tests.support.ragen_trl.trainers import TOKENIZER


def casts_of_three_passes(model: torch.nn.Linear, kept: bool, enabled: bool = True) -> int:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        with CountedCasts(tuple(model.weight.shape)) as counted:
            if kept:
                with weights_cast_once(model):
                    for _ in range(3):
                        model(torch.ones(1, 5))
            else:
                for _ in range(3):
                    model(torch.ones(1, 5))
    return counted.casts


@pytest.mark.parametrize("trained", [True, False])
def test_frozen_weights_are_cast_once_as_trained_ones_are(trained: bool) -> None:
    """Regression: below an adapter autocast cast all weights of the model again for each token of a reply."""
    model = torch.nn.Linear(5, 7).requires_grad_(trained)
    assert casts_of_three_passes(model, kept=False) == (1 if trained else 3)
    assert casts_of_three_passes(model, kept=True) == 1
    assert [value.requires_grad for value in model.parameters()] == [trained, trained]
    assert casts_of_three_passes(model, kept=True, enabled=False) == 0


def adapted(**options: object) -> PeftModel:
    """A small model with an adapter whose products are not zero."""
    torch.manual_seed(0)
    model = build_tiny_model(TOKENIZER, 0, hidden_size=32, num_layers=2)
    usual = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    found = get_peft_model(model, LoraConfig(**{**usual, **options})).eval()
    for name, value in found.named_parameters():
        if "lora_B" in name or "lora_embedding_B" in name:  # with a bias of theirs, if there is one
            torch.nn.init.normal_(value, std=0.5)
    return found


@torch.no_grad()
def logits_of(model: PeftModel) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.arange(1, 9)[None]).logits
    return logits


def test_merged_lora_computes_the_same_in_fewer_operations_and_leaves_every_bit_as_it_was() -> None:
    model = adapted()
    before = {name: value.clone() for name, value in model.named_parameters()}
    apart = logits_of(model)
    with model.disable_adapter():
        assert (logits_of(model) - apart).abs().max() > 0.1
    down = [layer for name, layer in model.named_modules() if name.endswith("lora_A.default")]
    calls = [layer.register_forward_hook(lambda *_: ran.append(1)) for layer in down]
    ran: list[int] = []
    with pytest.raises(ZeroDivisionError), torch.no_grad(), lora_merged(model):
        torch.testing.assert_close(logits_of(model), apart, atol=1e-4, rtol=1e-4)
        assert not ran
        _ = 1 / 0
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert torch.equal(logits_of(model), apart)
    assert len(ran) == len(down) == len(calls) > 0


@pytest.mark.parametrize("name", ["cache", "past_key_values", ""])
def test_keys_and_values_are_passed_by_the_name_that_the_model_has_for_them(name: str) -> None:
    forward = {"cache": lambda self, cache: 0, "past_key_values": lambda self, past_key_values: 0}
    kind: Any = type("Model", (), {"forward": forward.get(name, lambda self: 0)})
    assert cache_name(kind) == name


SHAPE = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "initializer_range": 0.2}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SHAPE |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.2}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0}
LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
PHI3 = Phi3Config(**SHAPE, rope_parameters=LONGROPE, original_max_position_embeddings=32, sliding_window=None)
NTK = LlamaConfig(**{**SHAPE, "max_position_embeddings": 32}, rope_parameters=DYNAMIC)
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
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
