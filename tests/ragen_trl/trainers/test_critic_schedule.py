"""The critic's own schedule: its minibatches, its passes over a rollout, and its learning rate."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.credit.estimators import critic_steps
from tests.support.ragen_trl.trainers import lottery, small_trainer

RATE = 1e-3


def make(folder: Path, **options: Any) -> Any:
    """A trainer of rollouts of 8 trajectories in groups of 4, and a list of its critic's steps."""
    trainer: Any = small_trainer(
        folder, lottery(draws=2), advantage="gae", **{"critic_learning_rate": RATE, "learning_rate": 1e-3, **options}
    )
    trainer.taken = []
    trainer.critic._optimizer.register_step_post_hook(lambda *_: trainer.taken.append(trainer.state.global_step))
    return trainer


def rates(trainer: Any) -> list[float]:
    return [row["critic/learning_rate"] for row in trainer.state.log_history if "critic/learning_rate" in row]


def test_ragens_schedule_for_the_critic_alone(tmp_path: Path) -> None:
    """Mini-batches of a quarter of the rollout: four steps, where the policy makes one."""
    trainer = make(tmp_path, critic_batch_size=2, max_steps=2)
    trainer.train()
    assert trainer.taken == [0] * 4 + [1] * 4


def test_ragens_schedule_for_both(tmp_path: Path) -> None:
    options = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "gradient_accumulation_steps": 1}
    trainer = make(tmp_path, max_steps=8, **options)
    trainer.train()
    assert trainer.taken == [0] * 4 + [4] * 4
    ratios = [row["sampling/ratio_deviation_max"] for row in trainer.state.log_history if "loss" in row]
    assert ratios[0] < 1e-4 < min(ratios[1:4]) and ratios[4] < 1e-4 < min(ratios[5:])


@pytest.mark.parametrize(
    ("trajectories", "options", "expected"),
    [
        (128, {"critic_batch_size": 32}, (4, 1)),
        (32, {"critic_batch_size": 32}, (1, 1)),  # StarPO-S keeps a quarter: one step, as in RAGEN
        (33, {"critic_batch_size": 32, "critic_epochs": 3}, (2, 3)),
        (8, {"critic_batch_size": 32}, (1, 1)),
        (128, {}, (4, 1)),
        (128, {"gradient_accumulation_steps": 32}, (1, 1)),
        (128, {"gradient_accumulation_steps": 16, "steps_per_generation": 32, "num_iterations": 2}, (2, 2)),
        (128, {"num_iterations": 2, "critic_epochs": 1, "filter_ratio": 0.5}, (1, 1)),
    ],
)
def test_steps_of_the_critic(trajectories: int, options: dict[str, Any], expected: tuple[int, int]) -> None:
    args = StarPOConfig(output_dir="unused", advantage="gae", use_cpu=True, report_to="none", bf16=False, **options)
    assert critic_steps(trajectories, args) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"advantage": "gae"}, (8, 32, 800, 200)),  # RAGEN's: four updates on each of 200 rollouts
        ({"advantage": "bi_level_gae", "max_steps": 100}, (8, 32, 100, 25)),
        ({"advantage": "gae", "filter_ratio": 0.25}, (32, 32, 200, 200)),  # the kept quarter is one mini-batch
        ({"advantage": "gae", "gradient_accumulation_steps": 4}, (4, 4, 200, 200)),
        ({"advantage": "gae", "steps_per_generation": 64}, (32, 64, 400, 200)),
        ({"advantage": "group"}, (32, 32, 200, 200)),
        ({}, (32, 32, 200, 200)),
    ],
)
def test_updates_on_a_rollout_by_default(options: dict[str, Any], expected: tuple[int, ...]) -> None:
    """Accumulation, micro-batches of a rollout, updates, rollouts of 128 trajectories unless more is given."""
    args = StarPOConfig(output_dir="unused", use_cpu=True, report_to="none", bf16=False, **options)
    found = (args.gradient_accumulation_steps, args.steps_per_generation, args.max_steps, args.num_rollouts)
    assert found == expected


def test_checkpoints_are_at_the_end_of_a_rollout_by_default() -> None:
    """TRL's 500 is between two of six updates on a rollout; a number that a user chose is not changed, but refused."""
    options: dict[str, Any] = {"steps_per_generation": 64, "gradient_accumulation_steps": 32, "num_iterations": 3}
    assert StarPOConfig(output_dir="unused", use_cpu=True, bf16=False, **options).save_steps == 504
    assert StarPOConfig(output_dir="unused", use_cpu=True, bf16=False).save_steps == 500


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [1.0, 1.0, 1.0, 1.0]),
        ("linear", 0, [1.0, 0.75, 0.5, 0.25]),
        ("constant_with_warmup", 2, [0.0, 0.5, 1.0, 1.0]),
        ("linear", 1, [0.0, 1.0, 2 / 3, 1 / 3]),
    ],
)
def test_the_rate_follows_its_schedule_rollout_by_rollout(
    tmp_path: Path, schedule: str, warmup: int, expected: list[float]
) -> None:
    """Four rollouts, of two critic's steps each, which have one rate."""
    options = {"critic_lr_scheduler_type": schedule, "critic_lr_warmup_rollouts": warmup, "critic_batch_size": 4}
    trainer = make(tmp_path, max_steps=4, **options)
    trainer.train()
    assert rates(trainer) == pytest.approx([RATE * factor for factor in expected])


def test_a_rollout_of_which_no_group_is_kept_is_one_of_the_schedule(tmp_path: Path) -> None:
    """Regression: with every second rollout empty the rate ended at 0.625 of the first, the policy's at 0.125."""

    class EverySecond(StarPOTrainer):
        def select_groups(self, rollout: Any) -> list[int]:
            return super().select_groups(rollout) if self.state.global_step % 2 else []

    trainer = make(tmp_path, trainer=EverySecond, max_steps=8, critic_lr_scheduler_type="linear")
    trainer.train()
    assert rates(trainer) == pytest.approx([RATE * factor for factor in (0.875, 0.625, 0.375, 0.125)])


def test_a_schedule_knows_a_length_in_epochs(tmp_path: Path) -> None:
    """Regression: it fell over no rollout at all, and the critic never learnt. Twice 4 start states, two a rollout."""
    options = {"max_steps": None, "num_train_epochs": 2, "num_train_seeds": 4, "critic_lr_scheduler_type": "linear"}
    trainer = make(tmp_path, **options)
    trainer.train()
    assert rates(trainer) == pytest.approx([RATE * factor for factor in (1.0, 0.75, 0.5, 0.25)])


def test_a_resumed_schedule_goes_on(tmp_path: Path) -> None:
    options = {"critic_lr_scheduler_type": "cosine", "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    unbroken = make(tmp_path, **options)
    unbroken.train()
    resumed = make(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert rates(resumed) == rates(unbroken)
    assert rates(unbroken)[2] == pytest.approx(RATE / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"critic_batch_size": 0}, "critic_batch_size is 0; it must be at least 1"),
        ({"critic_epochs": 0}, "critic_epochs is 0; it must be at least 1"),
        ({"critic_lr_scheduler_type": "reduce_lr_on_plateau"}, "critic_lr_scheduler_type is 'reduce_lr_on_plateau'"),
        ({"critic_lr_warmup_rollouts": 5}, "'constant', which has no warm-up; use 'constant_with_warmup'"),
        (
            {"critic_lr_scheduler_type": "linear", "critic_lr_warmup_rollouts": 201},
            "is 201, but the run has 200 rollouts, so that the critic would never reach its learning rate",
        ),
        ({"save_strategy": "steps", "save_steps": 50}, "save_steps is 50, but a rollout has 4 updates.*a multiple"),
        ({"critic_batch_size": 4, "advantage": "group"}, "which advantage 'group' does not read"),
    ],
)
def test_what_makes_no_schedule_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StarPOConfig(output_dir="unused", use_cpu=True, **{"advantage": "gae", "bf16": False, **options})
