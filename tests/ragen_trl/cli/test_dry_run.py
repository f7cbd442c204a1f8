"""``--dry-run``: what is counted, that nothing is made, and the memory of the published Qwen2.5-0.5B by hand."""

from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from ragen_trl import StarPOConfig
from ragen_trl.cli.dry_run import memory, shares
from ragen_trl.cli.main import main

OPTIONS = "--max_steps 5 --per_device_train_batch_size 8 --num_generations 4 --eval_episodes 16".split()
QWEN = Qwen2Config(
    vocab_size=151936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
P = 494_032_768  # its published number of parameters


def plan(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a dry run prints, its white space made plain."""
    assert main([*argv, "--dry-run"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_plan_of_a_run_counts_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = plan(capsys, "train", *OPTIONS, "--max_turns", "2", "--max_reply_length", "10")
    assert "run folder runs/frozenlake-starpo-s-seed42" in said
    assert "max_actions: 6" in said and "max_actions_per_turn: 2" in said and "max_turns: 2" in said
    assert "2 start states · 4 = 8 a rollout; 5 rollouts = 40" in said
    assert "4 · 16 episodes" in said
    assert "in the first prompt, then at most 700, of which 20 are sampled" in said
    assert "531,744 parameters" in said and "2.0 MiB weights" in said
    assert list(tmp_path.iterdir()) == []


def estimate(lora_rank: int = 0, **changes: Any) -> dict[str, int]:
    options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 16, "beta": 0.0, "bf16": True}
    args = StarPOConfig(output_dir="unused", report_to="none", **{**options, "gradient_checkpointing": True, **changes})
    return memory(QWEN, args, 2048, lora_rank)


def test_full_fine_tuning_of_qwen_by_hand() -> None:
    found = estimate()
    assert found["weights"] == found["gradients, in an update"] == 4 * P
    assert found["AdamW"] == 8 * P
    # Two key-value heads of 64 numbers in bfloat16, 128 trajectories, an eighth more slots than tokens.
    assert found["keys and values, in a rollout"] == 24 * 2 * 128 * 2 * 128 * 2304
    assert found["cast or gathered weights, in a rollout"] == 2 * P
    assert found["checkpoints of layers, in an update"] == 8 * 2048 * 24 * 896 * 4
    kept = 26 * 896 + 8 * 896 + 8 * 4864 + 2 * 2048 + 4 * 14 + 8
    assert found["activations, in an update"] == 8 * 2048 * kept
    rollout, update = (sum(n for name, n in found.items() if name.endswith(end)) for end in ("a rollout", "an update"))
    assert found["peak"] == found["weights"] + found["AdamW"] + max(rollout, update)
    assert (
        estimate(rollout_batch_size=32)["keys and values, in a rollout"] * 4 == found["keys and values, in a rollout"]
    )


def test_lora_a_reference_and_a_critic() -> None:
    adapter = 64 * 24 * (4 * 896 + 2 * (896 + 128) + 3 * (896 + 4864))
    found = estimate(64)
    assert found["LoRA"] == found["gradients, in an update"] == 4 * adapter and found["AdamW"] == 8 * adapter
    assert estimate(beta=0.1)["reference"] == 4 * P and estimate(64, beta=0.1)["reference"] == 0
    assert estimate(advantage="gae")["critic"] == 12 * P


def test_a_launch_divides_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert shares() == (1, 1, 1)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage, expected in ((1, (1, 1, 8)), (2, (1, 8, 8)), (3, (8, 8, 8))):
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", str(stage))
        assert shares() == expected
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert shares() == (8, 8, 8)
