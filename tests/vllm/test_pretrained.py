"""A real engine with a pretrained model: real vocabulary, weights of every update, LoRA."""

import os
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig

from ragen_trl import StarPOTrainer
from tests.support.ragen_trl.pretrained import variety
from tests.support.ragen_trl.trainers import parameters

pytestmark = pytest.mark.timeout(1200)  # an engine takes minutes to start
Make = Callable[..., StarPOTrainer]
SHORT: dict[str, Any] = {
    "temperature": 0.7,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_steps": 2,
    "max_reply_length": 8,
    "vllm_max_model_length": 1024,
}


@pytest.fixture(scope="session")
def folder(root: Path) -> Path:
    """SmolLM2-135M-Instruct, in place of the small model that the other files of this folder use."""
    path = root / os.environ.get("RAGEN_TEST_PRETRAINED", "models/SmolLM2-135M-Instruct")
    if not (path / "config.json").is_file():
        pytest.skip(f"there is no pretrained model in {path}; make smollm2 gets it")
    return path


def check_updates(trainer: StarPOTrainer) -> None:
    """The engine has the weights of each update: it gives sampled tokens the trainer's log-probabilities."""
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert len(rows) == 2 and all(isfinite(row["loss"]) and row["grad_norm"] > 0 for row in rows)
    assert max(row["sampling/ratio_deviation_max"] for row in rows) < 2e-3


def test_all_weights(train: Make) -> None:
    made = train("ragen/FrozenLake-v0", learning_rate=1e-4, reward_funcs=variety, **SHORT)
    before = parameters(made)
    made.train()
    check_updates(made)
    assert all(bool((value != before[name]).any()) for name, value in parameters(made).items())


def test_lora_with_thoughts(train: Make) -> None:
    lora = LoraConfig(r=8, target_modules="all-linear")
    made = train("ragen/Bandit-v0", learning_rate=1e-3, think=True, peft_config=lora, reward_funcs=variety, **SHORT)
    made.train()
    check_updates(made)
