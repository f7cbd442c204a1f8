"""The vLLM part of the two-process tests: trainers and play on one server, with unequal numbers of turns."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOTrainer, evaluate
from tests.support.ragen_trl.fake_vllm import install_fake_vllm
from tests.support.ragen_trl.trainers import LastRollout, lottery, parameters, small_trainer

SERVER: dict[str, Any] = {
    "use_vllm": True,
    "vllm_mode": "server",
    "per_device_train_batch_size": 2,
    "num_generations": 2,
    "max_completion_length": 600,
    "learning_rate": 1e-2,
    "ddp_backend": "gloo",
}
# Five episodes, played four at a time: of the last one the second process has nothing.
STAGE_1: dict[str, Any] = {"num_train_seeds": 5, "reference_samples": 1, "max_reference_samples": 3}


def starpo(folder: Path) -> dict[str, Any]:
    """Two updates on episodes of up to nine draws, then an evaluation."""
    trainer = small_trainer(folder / "starpo", lottery(draws=9), **SERVER)
    last = LastRollout(trainer)
    trainer.train()
    evaluated = evaluate(trainer.policy(0.0), lottery(draws=3), trainer.args, episodes=4)
    return result(trainer, last) | {"evaluated": evaluated.mean_return}


def astar_po(folder: Path) -> dict[str, Any]:
    """Stage 1 with shares of different size, one of them empty, then two updates; one episode after the other."""
    options = {**SERVER, "num_generations": 1, "max_steps": 2, "rollout_batch_size": 1, **STAGE_1}
    trainer = small_trainer(
        folder / "astar_po", lottery(draws=3), config=AStarPOConfig, trainer=AStarPOTrainer, **options
    )
    last = LastRollout(trainer)
    trainer.train()
    return result(trainer, last) | {"values": trainer.values}


def result(trainer: StarPOTrainer, last: LastRollout) -> dict[str, Any]:
    return {
        "metrics": trainer.state.log_history,
        "turns": [len(trajectory.turns) for trajectory in last.played],
        "parameters": parameters(trainer),
    }


def served(folder: Path) -> dict[str, Any]:
    """Everything above, with the fake in place of vLLM."""
    install_fake_vllm(pytest.MonkeyPatch())
    return {"starpo": starpo(folder), "astar_po": astar_po(folder)}
