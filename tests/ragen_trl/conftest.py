"""What the tests of the trainers share: the tiny tokenizer and model, and a policy that follows a script."""

import pytest
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The embedded tokenizer. Shared: do not change it."""
    return build_tiny_tokenizer()


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Two layers of width 32 with random weights. Shared: do not train it."""
    return build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=2)
