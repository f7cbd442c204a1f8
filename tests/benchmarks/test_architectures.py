"""The script that tries kinds of models, on a few of them: one for each kind of positions, and for each refusal."""

import pytest
from architectures import tried
from measuring.small_adapters import ADAPTERS

ACCEPTED = {  # and how far padding on the left shifts it without positions, at least
    "llama": 0.0,
    "deepseek_v3": 0.0,
    "gpt2": 1.0,
    "gpt_bigcode": 1.0,
    "xglm, sinusoidal": 1.0,
    "phi3, longrope": 0.0,
    "llama, dynamic NTK": 0.0,
}
REFUSED = {
    "gpt_neo, local": "sliding_attention layers",
    "mamba": "recurrent layers",
    "lfm2": "conv layers",
    "bloom": "takes no position ids",
    "qwen2_5_vl": "more than text",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_accepted_model_scores_what_it_sampled(name: str) -> None:
    found = tried(name)
    assert found["gap"]["tokens"] > 100
    assert found["gap"]["largest"] < 1e-4
    assert found["padded"]["with_positions"] < 1e-4
    assert found["padded"]["without"] >= ACCEPTED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_model_says_why(name: str) -> None:
    assert REFUSED[name] in tried(name)["refused"]


@pytest.mark.parametrize("name", ["IA3", "LoHa"])
def test_adapters_other_than_lora_score_what_they_sampled(name: str) -> None:
    found = tried("llama", ADAPTERS[name]())
    assert found["gap"]["largest"] < 1e-4
