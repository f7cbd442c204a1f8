"""Pairs of runs that must take the same step: micro-batch sizes, padding, and a run that was stopped and resumed.

Plain SGD, so that the step is the gradient: Adam would hide a wrong scale and blow up rounding.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from tests.ragen_trl.trainers import lottery, parameters, small_trainer

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


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize("filter_ratio", [1.0, 0.4])
def test_one_batch_equals_accumulated_micro_batches(tmp_path: Path, loss_type: str, filter_ratio: float) -> None:
    """1 × 24 against 24 × 1 and 6 × 4; of 6 groups 2 are kept, which do not fill the micro-batches: 8 rows in 6 × 4."""
    options = {**STEP, "loss_type": loss_type, "filter_ratio": filter_ratio}
    whole = step(small_trainer(tmp_path, lottery(), per_device_train_batch_size=24, **options))
    for size, count in ((1, 24), (4, 6)):
        split = small_trainer(
            tmp_path, lottery(), per_device_train_batch_size=size, gradient_accumulation_steps=count, **options
        )
        assert_same_step(whole, step(split))


def test_filler_rows_weigh_nothing(tmp_path: Path) -> None:
    """Five micro-batches and 8 kept rows: two of ten rows are fillers."""
    options = {**STEP, "filter_ratio": 0.4}
    whole = step(small_trainer(tmp_path, lottery(), per_device_train_batch_size=20, **options))
    split = small_trainer(tmp_path, lottery(), per_device_train_batch_size=4, gradient_accumulation_steps=5, **options)
    assert_same_step(whole, step(split))


class Padded(StarPOTrainer):
    """Adds columns of padding on both sides of prompt and completion."""

    extra = 0

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        def pad(value: torch.Tensor, left: int, right: int) -> torch.Tensor:
            return torch.nn.functional.pad(value, (left, right))

        if self.extra:
            for key in ("prompt_ids", "prompt_mask"):
                inputs[key] = pad(inputs[key], self.extra, 0)
            for key in ("completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps"):
                inputs[key] = pad(inputs[key], 0, self.extra)
        return super()._compute_loss(model, inputs)


def test_padding_on_either_side_changes_nothing(tmp_path: Path) -> None:
    plain = step(small_trainer(tmp_path, lottery(), trainer=Padded, **STEP))
    wide = small_trainer(tmp_path, lottery(), trainer=Padded, **STEP)
    wide.extra = 7  # type: ignore[attr-defined]
    assert_same_step(plain, step(wide))


def test_order_inside_a_group_changes_nothing(tmp_path: Path) -> None:
    class Reversed(StarPOTrainer):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            played = super().rollout(starts, envs, policy)
            return [trajectory for i in range(0, len(played), 4) for trajectory in reversed(played[i : i + 4])]

    plain = step(small_trainer(tmp_path, lottery(), **STEP))
    assert_same_step(plain, step(small_trainer(tmp_path, lottery(), trainer=Reversed, **STEP)))


@pytest.mark.parametrize("num_train_seeds", [None, 3])
def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path: Path, num_train_seeds: int | None) -> None:
    options: dict[str, Any] = {
        "learning_rate": 1e-2,
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        "num_train_seeds": num_train_seeds,
    }
    unbroken = small_trainer(tmp_path, lottery(), **options)
    unbroken.train()
    resumed = small_trainer(tmp_path, lottery(), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert timeless(resumed)[2:4] == timeless(unbroken)[2:4]


def timeless(trainer: StarPOTrainer) -> list[dict[str, Any]]:
    """The logged rows without what depends on the clock."""
    clocks = ("rollout/seconds", "step_time")
    return [{key: value for key, value in row.items() if key not in clocks} for row in trainer.state.log_history]
