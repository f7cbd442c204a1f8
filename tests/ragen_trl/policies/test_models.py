"""Which models are refused, and how a model is called in a rollout: casts of weights, merged LoRA, positions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    OpenAIGPTConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
)

from ragen_trl.errors import OptionError
from ragen_trl.policies.model_calls import cache_name, lora_merged, weights_cast_once, with_positions
from ragen_trl.policies.models import (
    UnsupportedModelError,
    base_weights,
    check_model,
    check_policy,
    check_supported,
    context_length,
    load_model,
    lora,
)
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.system.atomic import seal
from tests.support.ragen_trl.trainers import on_cpu, with_adapter

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


@pytest.mark.parametrize("name", SAMPLED_WRONGLY)
def test_a_model_that_a_kept_cache_would_sample_wrongly_is_refused_without_vllm(name: str) -> None:
    model = AutoModelForCausalLM.from_config(SAMPLED_WRONGLY[name])
    with pytest.raises(UnsupportedModelError, match=SAMPLED_WRONGLY[name].model_type):
        check_policy(model, on_cpu(beta=0.0), False)
    check_policy(model, on_cpu(beta=0.0, use_vllm=True), False)


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
    LLAMA.save_pretrained(tmp_path / "model")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{tmp_path / "model"}"}}')
    for name in ("model", "adapter"):
        assert check_model(str(tmp_path / name)).max_position_embeddings == 64
    (tmp_path / "empty").mkdir()
    (tmp_path / "itself").mkdir()
    (tmp_path / "itself" / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{tmp_path / "itself"}"}}')
    for name in ("empty", "nothing", "itself/adapter_config.json"):
        with pytest.raises(OptionError, match=name):
            check_model(str(tmp_path / name.partition("/")[0]))


# How a model is called in a rollout


class CountedCasts(TorchDispatchMode):
    """Counts the casts of tensors of one shape to bfloat16."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.casts = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_cast = func is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") == torch.bfloat16
        self.casts += is_cast and tuple(args[0].shape) == self.shape
        return func(*args, **(kwargs or {}))


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


@torch.no_grad()
def logits_of(model: PeftModel) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.arange(1, 9)[None]).logits
    return logits


def test_merged_lora_computes_the_same_in_fewer_operations_and_leaves_every_bit_as_it_was() -> None:
    model = with_adapter(0.5).eval()
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


WIDE = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "initializer_range": 0.2}
WIDE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
WIDE |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.2}
PHI3_WIDE = Phi3Config(**WIDE, rope_parameters=LONGROPE, original_max_position_embeddings=32, sliding_window=None)
NTK_WIDE = LlamaConfig(**{**WIDE, "max_position_embeddings": 32}, rope_parameters=DYNAMIC)
PADDED: dict[str, tuple[PretrainedConfig, float]] = {  # what padding on the left shifted without positions, at least
    "gpt2": (GPT2Config(**GPT), 1.0),
    "opt": (OPTConfig(**WIDE, ffn_dim=48, word_embed_proj_dim=32, init_std=0.2), 0.0),
    "longrope": (PHI3_WIDE, 0.1),
    "dynamic NTK": (NTK_WIDE, 0.1),
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


def test_an_adapter_is_loaded_on_its_own_base_with_the_tokens_that_were_added_for_it(tmp_path: Path) -> None:
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
    adapted.active_peft_config.base_model_name_or_path = "theirs"
    seal(tmp_path / "adapter", {"base": base_weights(adapted)})
    ids = torch.tensor([[1, 2, len(tokenizer) - 1, 3]])
    for trains in (False, True):
        found = load_model(str(tmp_path / "adapter"), trains=trains)
        torch.testing.assert_close(found.eval()(ids).logits, adapted.eval()(ids).logits)
        assert any(value.requires_grad for value in found.parameters()) == trains
    model.bfloat16().save_pretrained(tmp_path / "base")
    assert base_weights(load_model(str(tmp_path / "adapter")))["weights"] == base_weights(adapted)["weights"]
    build_tiny_model(build_tiny_tokenizer(), seed=1).save_pretrained(tmp_path / "base")
    with pytest.raises(OptionError, match="adapter was trained on 'theirs', and '.*/base' has other weights now"):
        load_model(str(tmp_path / "adapter"))
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"cut off")
    with pytest.raises(OptionError, match="adapter is damaged: adapter_model.safetensors has 7 bytes instead"):
        check_model(str(tmp_path / "adapter"))
