"""The memory estimate: the published Qwen2.5-0.5B by hand, and what torch holds in a small update, tensor by tensor."""


import pytest
from transformers import Qwen2Config

from ragen_trl.cli.memory_estimate import (
    MemoryUse,
    ModelShape,
    memory_lines,
    peak_bytes,
    shape_of,
)

QWEN = Qwen2Config(
    vocab_size=151936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
ON_GPU = {"rows": 8, "tokens": 2048, "rollout_rows": 128, "mixed": True, "triton": True}


@pytest.fixture(scope="module")
def qwen() -> ModelShape:
    """Read once; nothing of it lies in memory."""
    return shape_of(QWEN)


def by_name(shape: ModelShape, use: MemoryUse) -> dict[str, int]:
    """Bytes of every line."""
    return {line.name: line.bytes for line in memory_lines(shape, use)}


def test_the_shape_of_qwen_has_the_published_number_of_parameters(qwen: ModelShape) -> None:
    attention = 2 * 896 * 896 + 2 * 896 * 128
    assert qwen.linear_weights == 24 * (attention + 3 * 896 * 4864)
    biases_and_norms = 24 * (896 + 2 * 128 + 2 * 896) + 896
    assert qwen.parameters == 151936 * 896 + qwen.linear_weights + biases_and_norms == 494_032_768
    assert qwen.linear_widths == 24 * (4 * 896 + 2 * (896 + 128) + 3 * (896 + 4864))


def test_full_fine_tuning_of_qwen_on_a_gpu_by_hand(qwen: ModelShape) -> None:
    found = by_name(qwen, MemoryUse(**ON_GPU))
    parameters = 494_032_768
    assert found["weights"] == found["gradients"] == 4 * parameters
    assert found["AdamW"] == 8 * parameters
    # Two key-value heads of 64 numbers in bfloat16; an eighth more slots than tokens.
    assert found["keys and values"] == 24 * 2 * 128 * 2 * 128 * 2304
    assert found["bfloat16 weights"] == 2 * (qwen.linear_weights + 151936 * 896)
    # Two residual streams, three of the 896 queries, the mask; copies of keys and values for all heads, 64 rows.
    attention = 4096 * (2 * 4 * 896 + 3 * 2 * 896 + 3 * 2048)
    assert found["a pass that reads prompts"] == attention + 64 * 2048 * 2 * 2 * 896
    assert found["a pass that reads prompts"] > 128 * 151936 * 16  # what the draw of a token takes
    assert found["checkpoints"] == 8 * 2048 * 24 * 896 * 4
    assert found["bfloat16 copies"] == 2 * (2 * 896 * 896 + 2 * 896 * 128 + 3 * 896 * 4864)
    kept = 26 * 896 + 8 * 896 + 8 * 4864 + 2 * 2048 + 4 * 14 + 8
    assert found["activations"] == 8 * 2048 * kept
    head = by_name(qwen, MemoryUse(**ON_GPU, checkpointing=False))["language-model head"]
    assert head == 4096 * 32768 * 2 + (151936 + 8 * 2048) * 896 * 4
    assert head < found["activations"] and "language-model head" not in found  # they are not there at the same time
    update = sum(found[name] for name in ("gradients", "checkpoints", "bfloat16 copies", "activations"))
    rollout = found["keys and values"] + found["bfloat16 weights"] + found["a pass that reads prompts"]
    peak = peak_bytes(memory_lines(qwen, MemoryUse(**ON_GPU)))
    assert peak == found["weights"] + found["AdamW"] + max(rollout, update)
