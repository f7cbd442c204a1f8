"""``python -m ragen_trl eval --use_vllm true``: an engine without a trainer plays what Transformers plays."""

import json
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from ragen_trl.cli.main import main
from ragen_trl.policies.tiny_model import build_tiny_tokenizer

pytestmark = pytest.mark.timeout(900)  # an engine takes minutes to start


def rows(model: Path, output: Path, *more: str) -> list[dict[str, Any]]:
    """What each greedy episode of the model came to, without its time."""
    options = ["--env", "ragen/Bandit-v0", "ragen/FrozenLake-v0", "--episodes", "8", "--eval_temperature", "0"]
    think = ["--think", "false", "--max_reply_length", "8", "--max_completion_length", "600", "--bf16", "false"]
    assert main(["eval", "--model", str(model), *options, *think, "--output_dir", str(output), *more]) == 0
    files = sorted((output / "episodes").glob("*model*.jsonl"))
    found = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


def test_greedy_play_is_that_of_transformers_with_merged_lora_weights_too(
    folder: Path, cpu_engine: None, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "model")
    build_tiny_tokenizer().save_pretrained(tmp_path / "model")
    played = rows(tmp_path / "model", tmp_path / "vllm", "--use_vllm", "true", "--vllm_max_model_length", "1024")
    assert len(played) == 16
    assert played == rows(tmp_path / "model", tmp_path / "transformers")
    settings = json.loads((tmp_path / "vllm" / "evaluation.json").read_text())["policies"]
    assert settings[str(tmp_path / "model")]["backend"] == "vllm"
