"""Tests on a pretrained model, SmolLM2-135M-Instruct. ``make test-pretrained`` gets the model and asks for them.

``RAGEN_TEST_PRETRAINED`` names the model's folder; without it, as in ``make test``, they are passed over. Everything is
as short as it can be: a few trajectories of a few tokens, because two cores compute some hundred tokens a second.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ragen_trl import StarPOSConfig, StarPOTrainer
from ragen_trl.rollout.chat import Chat
from tests.support.ragen_trl.pretrained import SHORT, variety

FOLDER = os.environ.get("RAGEN_TEST_PRETRAINED")
if not FOLDER:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def folder(root: Path) -> Path:
    """The model's folder."""
    if not FOLDER:
        pytest.skip("RAGEN_TEST_PRETRAINED names no model's folder; make test-pretrained runs these tests")
    path = root / FOLDER
    if not (path / "config.json").is_file():
        pytest.fail(f"there is no model in {path}; make smollm2 gets it")
    return path


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer. Shared: do not change it."""
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def model(folder: Path) -> PreTrainedModel:
    """The model as downloaded. Shared: do not train it."""
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(scope="session")
def chat(tokenizer: PreTrainedTokenizerBase) -> Chat:
    """The chat with the template as it is."""
    return Chat(tokenizer)


@pytest.fixture(scope="session")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., StarPOTrainer]:
    """Makes trainers of short runs; keywords are options, or ``peft_config``."""

    def make(env: Any, config: Any = StarPOSConfig, trainer: Any = StarPOTrainer, **changes: Any) -> StarPOTrainer:
        adapter = changes.pop("peft_config", None)
        args = config(**{"output_dir": str(tmp_path_factory.mktemp("run")), **SHORT, **changes})
        made: StarPOTrainer = trainer(str(folder), env, args, reward_funcs=variety, peft_config=adapter)
        return made

    return make
