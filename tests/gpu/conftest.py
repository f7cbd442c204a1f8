"""Tests on a GPU. They run with ``RAGEN_TEST_GPU=cuda``; ``make test`` passes them over.

``RAGEN_TEST_GPU=cpu`` runs the same on the CPU, as a rehearsal. Models are small, of widths that a GPU's kernels take.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ragen_trl import StarPOConfig, StarPOTrainer
from tests.support.ragen_trl.pretrained import Run, variety
from tests.support.ragen_trl.trainers import LAKE, SMALL, TOKENIZER

DEVICE = os.environ.get("RAGEN_TEST_GPU")
if not DEVICE:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the tests compute."""
    if DEVICE == "cuda" and not torch.cuda.is_available():
        pytest.fail("RAGEN_TEST_GPU is cuda, but torch sees no GPU; RAGEN_TEST_GPU=cpu rehearses these tests")
    return torch.device(str(DEVICE))


@pytest.fixture
def model(device: torch.device) -> Callable[..., Qwen2ForCausalLM]:
    """Makes a Qwen2 with heads of 64 numbers, the same every time; arguments are those of its configuration."""

    def make(**changes: Any) -> Qwen2ForCausalLM:
        sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
        ends = {"eos_token_id": TOKENIZER.eos_token_id, "pad_token_id": TOKENIZER.pad_token_id, "bos_token_id": None}
        torch.manual_seed(0)
        shape = {**sizes, **ends, "num_key_value_heads": 2, "vocab_size": len(TOKENIZER), "tie_word_embeddings": True}
        return Qwen2ForCausalLM(Qwen2Config(**{**shape, **changes}))

    return make


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Callable[..., Run]:
    """Makes short runs of a model in bfloat16; keywords are options, or ``peft_config``."""

    def make(model: Any, **changes: Any) -> Run:
        options = {**SMALL, "bf16": True, "use_cpu": device.type == "cpu", "max_steps": 3, "learning_rate": 1e-4}
        adapter = changes.pop("peft_config", None)
        args = StarPOConfig(output_dir=str(tmp_path_factory.mktemp("run")), **{**options, **changes})
        trainer = StarPOTrainer(
            model, LAKE, args, reward_funcs=variety, processing_class=TOKENIZER, peft_config=adapter
        )
        return Run(trainer)

    return make
