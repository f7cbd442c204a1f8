"""A real vLLM server that gets a LoRA adapter alone: whose weights it samples with, after updates and new starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from peft import LoraConfig
from transformers import TrainerCallback
from trl.generation.vllm_client import VLLMClient

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.trainers import LAKE, SMALL, parameters
from tests.support.ragen_trl.vllm_process import VLLMProcess

pytestmark = pytest.mark.timeout(900)
Make = Callable[..., StarPOTrainer]
# Contexts of several blocks of vLLM's cache, which has 128 tokens in each on the CPU.
LONG: dict[str, Any] = {"max_turns": 3, "max_reply_length": 24, "max_completion_length": 600, "learning_rate": 3e-2}


@pytest.fixture
def make(folder: Path, server: VLLMProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes LoRA trainers that play on the server."""
    # TRL would open a group of NCCL.
    monkeypatch.setattr(VLLMClient, "init_communicator", lambda *_, **__: pytest.fail("it needs no group"))

    def made(name: str, **changes: Any) -> StarPOTrainer:
        lora = LoraConfig(r=4, target_modules="all-linear")
        served = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server.url}
        options = {**SMALL, **served, "vllm_adapter_dir": str(tmp_path / name / "adapters"), **LONG, **changes}
        options |= {"per_device_train_batch_size": 4, "num_generations": 2}
        return StarPOTrainer(
            str(folder), LAKE, StarPOConfig(output_dir=str(tmp_path / name), **options), peft_config=lora
        )

    return made


def greedy(trainer: StarPOTrainer) -> tuple[list[Trajectory], list[Trajectory]]:
    """Greedy episodes on the server, and the trainer's own."""
    starts = [Start(seed, sampling_seed=9 + seed) for seed in range(2)]
    served = play(quizzes([1, 3]), trainer.policy(0.0), starts)
    model = trainer.accelerator.unwrap_model(trainer.model)
    training = model.training
    model.eval()
    own = TransformersPolicy(model, trainer.chat, Sampling(trainer.args.max_reply_length, 0.0))
    expected = play(quizzes([1, 3]), own, starts)
    model.train(training)
    return served, expected


def check_greedy(trainer: StarPOTrainer) -> list[tuple[int, ...]]:
    """They are the same, with the same log-probabilities."""
    served, expected = greedy(trainer)
    for one, other in zip(served, expected, strict=True):
        assert one.token_ids == other.token_ids
        for turn, twin in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(twin.logprobs, abs=1e-3)
    return [one.token_ids for one in served]


class AfterEachUpdate(TrainerCallback):
    """Plays greedy episodes when an update is over, and counts what lies in the folder of adapters."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.played: list[list[tuple[int, ...]]] = []
        self.versions: list[list[Path]] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Weights have just changed."""
        self.played.append(check_greedy(self.trainer))
        self.versions.append(sorted(Path(self.trainer.args.vllm_adapter_dir).iterdir()))


def hits(server: VLLMProcess) -> float:
    """Tokens that a server has found in its prefix cache so far."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))


def test_a_server_has_the_adapter_of_every_update(make: Make, server: VLLMProcess) -> None:
    trainer = make("run", max_steps=4)
    watch, before = AfterEachUpdate(), hits(server)
    watch.trainer = trainer
    base = {name: value for name, value in parameters(trainer).items() if "lora_" not in name}
    trainer.add_callback(watch)
    trainer.train()
    deviations = [row["sampling/ratio_deviation_max"] for row in trainer.state.log_history if "loss" in row]
    assert len(deviations) == 4 and max(deviations) < 1e-3
    assert len({tuple(played) for played in watch.played}) == 4  # every update changes what is said
    assert hits(server) > before  # with a cache in use
    assert all(torch.equal(value, parameters(trainer)[name]) for name, value in base.items())
    assert [len(found) for found in watch.versions] == [1] * 4 and len({*map(tuple, watch.versions)}) == 4
    sent = sum(file.stat().st_size for file in watch.versions[-1][0].iterdir())
    merged = sum(value.numel() * value.element_size() for value in base.values())
    assert sent < merged / 10


def test_without_its_adapter_the_base_is_asked(make: Make) -> None:
    trainer = make("base", max_steps=1)
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    adapted = check_greedy(trainer)
    with model.disable_adapter():
        base = check_greedy(trainer)
    assert base != adapted
    assert check_greedy(trainer) == adapted
