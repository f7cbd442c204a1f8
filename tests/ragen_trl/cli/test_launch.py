"""What a launch divides, and the memory of one of its processes by hand: the published Qwen2.5-0.5B on eight GPUs."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from ragen_trl.cli.launch import Launch, LaunchConfigError, launch_of
from ragen_trl.cli.main import main
from ragen_trl.cli.memory_estimate import MemoryUse, ModelShape, memory_lines, peak_bytes, shape_of

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


def test_zero_2_divides_gradients_and_moments_and_zero_3_weights_too(qwen: ModelShape) -> None:
    two, three = (by_name(qwen, Launch(engine, 8)) for engine in ("ZeRO-2", "ZeRO-3"))
    assert two["weights"] == 2 * P and three["weights"] == P // 4  # in bfloat16
    for found in (two, three):
        assert found["float32 copy for the optimizer"] == found["float32 gradients of a step"] == P // 2
        assert found["AdamW"] == P and found["gradients"] == P // 4
        assert found["bucket of gradients"] == 2 * P  # fewer than DeepSpeed's 500 million
    assert "whole weights" not in two and "gathered weights" not in two
    assert three["whole weights"] == three["gathered weights"] == 2 * P  # fewer than its 1000 million


def test_lora_divides_the_base_where_the_engine_divides_weights(qwen: ModelShape) -> None:
    fsdp = by_name(qwen, Launch("FSDP2", 4), lora_rank=64, weight_bytes=2, critic=True)
    assert fsdp["weights"] == P // 2 and fsdp["whole weights"] == 2 * (P + ADAPTER)
    assert fsdp["LoRA"] == fsdp["gradients"] == ADAPTER and fsdp["AdamW"] == 2 * ADAPTER
    assert fsdp["critic"] == 12 * ADAPTER  # an adapter stays whole
    zero = by_name(qwen, Launch("ZeRO-2", 4), lora_rank=64)
    assert zero["weights"] == 2 * P and zero["LoRA"] == 2 * ADAPTER
    assert zero["float32 copy for the optimizer"] == ADAPTER and zero["AdamW"] == 2 * ADAPTER


def test_while_a_critic_learns_an_adapter_needs_the_whole_base_of_zero_3_and_a_model_of_its_own_two_layers(
    qwen: ModelShape,
) -> None:
    def gathered(engine: str, **options: Any) -> dict[str, int]:
        use = MemoryUse(**{**USE, **options}, critic=True, launch=Launch(engine, 8))  # type: ignore[arg-type]
        return {line.name: line.bytes for line in memory_lines(qwen, use) if line.phase == "critic"}

    assert gathered("ZeRO-3", lora_rank=64)["gathered weights"] == 2 * P
    assert "gathered weights" not in gathered("ZeRO-2", lora_rank=64)
    of_two_layers = P - qwen.linear_weights + 2 * (qwen.linear_weights // 24)
    for engine in ("FSDP2", "ZeRO-2", "ZeRO-3"):  # FSDP2 divides it in each, in float32
        assert gathered(engine)["gathered weights of the critic"] == 4 * of_two_layers
    assert not [name for name in gathered("DDP") if name.startswith("gathered")]


def test_with_vllm_nothing_is_gathered_for_a_rollout(qwen: ModelShape) -> None:
    assert "whole weights" not in by_name(qwen, Launch("FSDP2", 8), rollout_rows=0)


def test_more_processes_never_take_more_memory_each(qwen: ModelShape) -> None:
    for engine in ("FSDP2", "ZeRO-2", "ZeRO-3"):
        peaks = [
            peak_bytes(memory_lines(qwen, MemoryUse(**USE, launch=Launch(engine, number)))) for number in (2, 4, 8)
        ]
        assert peaks == sorted(peaks, reverse=True)


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


def test_fsdp_of_version_1_is_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "1")
    for more in ([], ["--dry-run"]):
        assert main(["train", "--output_dir", str(tmp_path / "run"), *more]) == 2
        said = capsys.readouterr()
        assert "write fsdp_version: 2 into the launch configuration" in said.err and "evaluating" not in said.out
    assert not (tmp_path / "run").exists()


def test_a_dry_run_counts_one_process_of_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = []
    for processes, environ in ((1, {}), (8, {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"})):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        assert main(["train", "--num_processes", str(processes), "--eval_episodes", "16", "--dry-run"]) == 0
        said.append(" ".join(capsys.readouterr().out.split()))
    assert "weights, held: 531,744 parameters · 4 bytes" in said[0]
    assert "in each of 8 processes, FSDP2" in said[1] and "processes" not in said[0].partition("memory")[2]
    assert "weights, held: 531,744 parameters · 4 bytes / 8 processes" in said[1]


def test_a_dry_run_counts_the_trajectories_of_all_processes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It starts none of them, so that TRL computes the size of a rollout for one."""
    options = ["--num_generations", "4", "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"]
    command = ["train", *options, "--num_processes", "3", "--output_dir", str(tmp_path / "run"), "--dry-run"]
    assert main(command) == 0
    assert "6 start states · 4 = 24 a rollout" in capsys.readouterr().out
    sized = [*command, "--gradient_accumulation_steps", "1", "--generation_batch_size"]
    assert main([*sized, "24"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "6 start states · 4 = 24 a rollout; 150 rollouts" in said  # of two updates each
    with pytest.raises(SystemExit):
        main([*sized, "32"])
    assert "(32) must be divisible by the global batch size (12)" in capsys.readouterr().err  # as in the run itself
