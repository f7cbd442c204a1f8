"""What the tests of A*-PO's trainer share: short runs on environments that an untrained model sometimes wins."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from ragen_trl import AStarPOConfig, AStarPOTrainer
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import lottery, small_model, small_trainer

SMALL_STAGE: dict[str, Any] = {
    "num_generations": 1,
    "num_train_seeds": 8,
    "reference_samples": 4,
    "max_reference_samples": 4,
}


def draws(win: float = 1.0) -> Any:
    """A maker of lotteries with up to three draws: episodes of one, two and three turns."""
    return lottery(win, draws=3)


class Spy(AStarPOTrainer):
    """Keeps what was played by the reference and in training, what was trained, and when V* was estimated.

    ``at_checkpoint`` has how many episodes of both kinds and how many estimates came before the checkpoint of a step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.reference_played: list[Trajectory] = []
        self.played: list[Trajectory] = []
        self.batches: list[dict[str, Any]] = []
        self.estimated_at: list[int] = []
        self.at_checkpoint: dict[int, tuple[int, int, int]] = {}
        super().__init__(*args, **kwargs)

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        played = super().rollout(starts, envs, policy)
        kept = self.played if self.accelerator.unwrap_model(self.model).training else self.reference_played
        kept += played
        return played

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        self.batches.append(inputs)
        return super().policy_loss(model, inputs)

    def estimate_values(self) -> Any:
        self.estimated_at.append(self.state.global_step)
        return super().estimate_values()

    def save_algorithm_state(self, folder: Path) -> None:
        super().save_algorithm_state(folder)
        counts = (len(self.played), len(self.reference_played), len(self.estimated_at))
        self.at_checkpoint[self.state.global_step] = counts


def astar(folder: Path, env: Any = None, trainer: Any = Spy, **changes: Any) -> Any:
    """A trainer of the small model with 8 start states of 4 reference episodes each."""
    return small_trainer(folder, env or lottery(), config=AStarPOConfig, trainer=trainer, **{**SMALL_STAGE, **changes})


def stored(folder: Path) -> dict[str, dict[int, list[float]]]:
    """Returns by key and start seed in a cache, in the order of the samples."""
    found: dict[str, dict[int, list[float]]] = {}
    with closing(sqlite3.connect(folder / "values.sqlite")) as database:
        rows = database.execute("SELECT key, seed, episode_return FROM samples ORDER BY key, seed, sample")
        for key, seed, episode_return in rows.fetchall():
            found.setdefault(key, {}).setdefault(seed, []).append(episode_return)
    return found


def cached(folder: Path) -> dict[int, list[float]]:
    """Returns by start seed of the only key in a cache."""
    (returns,) = stored(folder).values()
    return returns


def log_likelihood(model: Any, trajectory: Trajectory) -> torch.Tensor:
    """Sum over the sampled tokens of their log-probability; one trajectory, no padding, no mask of the trainer's."""
    ids = torch.tensor([trajectory.token_ids])
    logprobs = model(input_ids=ids).logits[0].log_softmax(dim=-1)  # (T, V); row t predicts token t + 1
    return sum(
        (logprobs[place - 1, ids[0, place]] for place, bit in enumerate(trajectory.action_mask) if bit),
        start=torch.zeros(()),
    )


def gradient(trajectories: list[Trajectory], weights: list[float]) -> dict[str, torch.Tensor]:
    """Σ weight · ∇ log π of the untrained small model, by a slow loop."""
    model = small_model()
    for trajectory, weight in zip(trajectories, weights, strict=True):
        (weight * log_likelihood(model, trajectory)).backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
