"""Tests on a pretrained model, SmolLM2-135M-Instruct. ``make test-pretrained`` gets the model and asks for them.

``RAGEN_TEST_PRETRAINED`` names the model's folder; without it, as in ``make test``, they are passed over. Everything is
as short as it can be: a few trajectories of a few tokens, because two cores compute some hundred tokens a second.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ragen_trl import StarPOSConfig, StarPOTrainer
from ragen_trl.rollout.chat import Chat
from ragen_trl.trainers import trajectory as second_half
from ragen_trl.trainers.self_check import Gap
from ragen_trl.trajectory import Trajectory

FOLDER = os.environ.get("RAGEN_TEST_PRETRAINED")
if not FOLDER:
    collect_ignore_glob = ["test_*.py"]

SHORT: dict[str, Any] = {
    "temperature": 0.7,
    "think": False,
    "max_turns": 2,
    "max_actions_per_turn": 2,
    "max_reply_length": 8,
    "max_completion_length": 200,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "num_generations": 2,
    "max_steps": 3,
    "learning_rate": 1e-4,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}
LORA = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")


def variety(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """A reward that differs within a group, so that there is something to learn: a number made of the tokens."""
    return [(sum(one.token_ids) % 97) / 97 for one in trajectory]


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


class Run:
    """A short training: its trainer, what it compared with the sampler before the first update, and its weights before.

    Attributes:
        gaps: What the self-check of the first update found.
        before: A copy of the parameters that are trained.
    """

    def __init__(self, trainer: StarPOTrainer) -> None:
        self.trainer = trainer
        self.gaps: list[Gap] = []
        self.before = self.trained()

    def trained(self) -> dict[str, torch.Tensor]:
        """A copy of the parameters that are trained, as they are now."""
        named = self.trainer.model.named_parameters()
        return {name: value.detach().clone() for name, value in named if value.requires_grad}

    def logged(self, name: str) -> list[float]:
        """A metric of every update that was logged."""
        return [row[name] for row in self.trainer.state.log_history if name in row]

    def train(self, **how: Any) -> "Run":
        """Train, and keep what the self-check found."""
        with pytest.MonkeyPatch.context() as patch:
            checked = second_half.check_gap

            def keep(gap: Gap, *rest: Any) -> None:
                self.gaps.append(gap)
                checked(gap, *rest)

            patch.setattr(second_half, "check_gap", keep)
            self.trainer.train(**how)
        return self


@pytest.fixture(scope="session")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Makes short runs; keywords are options, or arguments of the trainer."""

    def make(env: Any, config: Any = StarPOSConfig, trainer: Any = StarPOTrainer, **changes: Any) -> Run:
        arguments = {name: changes.pop(name) for name in ("peft_config", "reward_funcs") if name in changes}
        output = changes.pop("output_dir", None) or str(tmp_path_factory.mktemp("run"))
        args = config(output_dir=output, **{**SHORT, **changes})
        return Run(trainer(str(folder), env, args, reward_funcs=arguments.pop("reward_funcs", variety), **arguments))

    return make
