"""What a launch divides, and the memory of one of its processes by hand: the published Qwen2.5-0.5B on eight GPUs."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from ragen_trl.cli.launch import Launch, LaunchConfigError, launch_of
from ragen_trl.cli.memory_estimate import MemoryUse, ModelShape, memory_lines, shape_of

P = 494_032_768  # parameters
LINEAR = 24 * (2 * 896 * 896 + 2 * 896 * 128 + 3 * 896 * 4864)
ADAPTER = 64 * 549_888
USE: dict[str, Any] = {"rows": 8, "tokens": 2048, "rollout_rows": 16, "mixed": True, "triton": True}


@pytest.fixture(scope="module")
def qwen() -> ModelShape:
    """Read once; nothing of it lies in memory."""
    sizes = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
    return shape_of(Qwen2Config(vocab_size=151936, num_key_value_heads=2, tie_word_embeddings=True, **sizes))


def by_name(shape: ModelShape, launch: Launch, **changes: Any) -> dict[str, int]:
    """Bytes of every line of a process."""
    return {line.name: line.bytes for line in memory_lines(shape, MemoryUse(**{**USE, **changes}, launch=launch))}


def test_ddp_holds_everything_and_its_buckets_of_gradients(qwen: ModelShape) -> None:
    one, eight = by_name(qwen, Launch()), by_name(qwen, Launch("DDP", 8))
    assert eight == one | {"buckets of gradients": 4 * P}
    assert by_name(qwen, Launch("DDP", 8), lora_rank=64)["buckets of gradients"] == 4 * ADAPTER


def test_fsdp2_divides_all_that_is_held_and_has_whole_weights_in_a_rollout(qwen: ModelShape) -> None:
    found = by_name(qwen, Launch("FSDP2", 8), reference=True, critic=True)
    assert found["weights"] == found["gradients"] == found["reference"] == P // 2  # 4 bytes / 8 processes
    assert found["AdamW"] == P
    assert found["critic"] == 3 * P // 2 and found["gradients of the critic"] == P // 2
    assert found["whole weights"] == 2 * P  # in bfloat16
    # Two layers, and what belongs to none: embeddings, norms and biases.
    assert found["gathered weights"] == 2 * (P - LINEAR + 2 * LINEAR // 24)
    # They are bfloat16 already, so that autocast makes no copies and the residual stream is half as wide.
    assert not {"bfloat16 weights", "bfloat16 copies", "buckets of gradients"} & set(found)
    assert found["checkpoints"] == 8 * 2048 * 24 * 896 * 2
    assert found["activations"] == 8 * 2048 * (16 * 896 + 8 * 896 + 8 * 4864 + 2 * 2048 + 4 * 14 + 8)


def test_a_launch_is_read_from_what_accelerate_tells_its_processes(tmp_path: Path) -> None:
    file = tmp_path / "zero.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    fsdp, deepspeed = {"ACCELERATE_USE_FSDP": "true"}, {"ACCELERATE_USE_DEEPSPEED": "true"}
    cases: list[tuple[dict[str, str], Any, str]] = [
        ({}, None, "DDP"),
        ({**fsdp, "FSDP_VERSION": "2"}, None, "FSDP2"),
        ({**deepspeed, "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}, None, "ZeRO-2"),
        ({**deepspeed, "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(file)}, None, "ZeRO-3"),
        ({}, str(file), "ZeRO-3"),
        ({}, {"zero_optimization": {"stage": 1}}, "ZeRO-1"),
    ]
    for environ, given, engine in cases:
        assert launch_of(4, given, None, environ) == Launch(engine, 4)  # type: ignore[arg-type]
    assert launch_of(4, None, True, {}) == Launch("FSDP2", 4)
    with pytest.raises(LaunchConfigError, match="fsdp_version: 2"):
        launch_of(4, None, None, {**fsdp, "FSDP_VERSION": "1"})
    for wrong in ({"zero_optimization": {"stage": 7}}, {}, str(tmp_path / "none.json")):
        with pytest.raises(LaunchConfigError, match="no stage of ZeRO from 0 to 3"):
            launch_of(4, wrong or {"other": 1}, None, {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "9"})
