"""Pairs of runs that must take the same step, and how their steps are compared."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ragen_trl import StarPOTrainer, Trajectory
from ragen_trl.system.shards import part, part_of
from tests.support.ragen_trl.trainers import lottery, parameters, small_trainer

# Plain SGD, so that the step is the gradient.
STEP: dict[str, Any] = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "max_steps": 1}


def step(trainer: StarPOTrainer) -> dict[str, torch.Tensor]:
    """By how much one update moves every parameter."""
    before = parameters(trainer)
    trainer.train()
    return {name: value - before[name] for name, value in parameters(trainer).items()}


def assert_same_step(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert max(float(value.abs().max()) for value in first.values()) > 1e-3  # it is a step at all
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-4, atol=1e-6, msg=name)


CREDITS = {
    "group": {},
    "gae": {"gamma": 0.99, "gae_lambda": 0.9},
    "turn_gae": {"turn_lambda": 0.9},
    "bi_level_gae": {"gamma": 0.99, "gae_lambda": 0.9},
    "gigpo": {"step_weight": 0.5},
    "mt_grpo": {"step_weight": 0.5},
}


class Awake(StarPOTrainer):
    """Its critic, if it has one, starts with values that are not all 0."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.critic is not None:
            head = self.critic.network.head.weight
            weight = torch.empty(head.shape).normal_(std=0.3, generator=torch.Generator().manual_seed(1))
            part(head).copy_(part_of(weight.to(head.device), head))


def played_in_turns(folder: Path, advantage: str, size: int, count: int, **options: Any) -> StarPOTrainer:
    """24 trajectories of 1 to 3 turns in 6 groups of 4."""
    return small_trainer(
        folder,
        lottery(draws=3),
        trainer=Awake,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=count,
        **{**STEP, "advantage": advantage, **CREDITS[advantage], "entropy_coef": 0.01, **options},
    )


def timeless(trainer: StarPOTrainer) -> list[dict[str, Any]]:
    """The logged rows without what depends on the clock."""
    clocks = ("rollout/seconds", "rollout/wait_seconds", "step_time")
    return [{key: value for key, value in row.items() if key not in clocks} for row in trainer.state.log_history]


def every_turn_alone(played: Trajectory) -> Trajectory:
    """The same episode, each turn after the first with the context that it had anyway, marked as rebuilt."""
    seen: tuple[int, ...] = ()
    turns = []
    for place, turn in enumerate(played.turns):
        turns.append(replace(turn, context_ids=seen if place else None))
        seen = (*seen, *turn.prompt_ids, *turn.reply_ids)
    return replace(played, turns=tuple(turns))


class Alone(StarPOTrainer):
    """Every turn in a row of its own, with the context that it had."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        return [every_turn_alone(played) for played in super().rollout(starts, envs, policy)]
