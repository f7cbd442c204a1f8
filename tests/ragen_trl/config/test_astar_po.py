"""AStarPOConfig: the paper's defaults, what is refused with which remedy, and what TRL offers besides training."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import AStarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.training.reference import ReferenceWeightsError
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import lottery, small_model, small_trainer


def config(**changes: Any) -> AStarPOConfig:
    """A configuration that needs no accelerator."""
    return AStarPOConfig(output_dir="unused", **{"bf16": False, "use_cpu": True, **changes})


def test_defaults_are_those_of_the_paper() -> None:
    """β₁ 0.5 and β₂ 0.001 for rewards of 0 and 1, so in return ranges; N = 8; one trajectory; 1e-6; a batch of 128."""
    args = config()
    assert (args.beta1, args.beta2, args.reference_samples) == (0.5, 1e-3, 8)
    assert (args.num_generations, args.groups_per_generation, args.generation_batch_size) == (1, 128, 128)
    assert (args.learning_rate, args.lr_scheduler_type, args.max_grad_norm) == (1e-6, "constant", 1.0)
    assert (args.temperature, args.top_p, args.top_k) == (1.0, 1.0, 0)
    assert (args.beta, args.kl_coef, args.entropy_coef, args.steps_per_rollout) == (0.0, 0.0, 0.0, 1)
    assert (args.num_train_seeds, args.num_rollouts, args.filter_ratio) == (256, 200, 1.0)


@pytest.mark.parametrize(
    ("changes", "value", "remedy"),
    [
        ({"num_iterations": 2}, "2 updates in 2 passes", "set num_iterations to 1"),
        (
            {"gradient_accumulation_steps": 4, "steps_per_generation": 1, "num_iterations": 2},
            "0.5 updates in 2 passes",
            "set num_iterations to 1",
        ),
        ({"steps_per_generation": 64}, "2 updates", "leave steps_per_generation unset"),
        ({"beta": 0.001}, "beta is 0.001", "use beta2, or kl_coef"),
        ({"filter_ratio": 0.25}, "filter_ratio 0.25", "raise num_generations"),
        ({"max_refills": 3}, "max_refills 3", "raise num_generations"),
        ({"max_refills": 3, "num_generations": 4, "num_train_seeds": None}, "max_refills is 3", "set num_train_seeds"),
        ({"num_generations": 0}, "num_generations is 0", "at least 1"),
        ({"max_reference_samples": 4}, "max_reference_samples is 4", "below reference_samples 8; raise it"),
        ({"reference_samples": 0}, "reference_samples is 0", "above 0"),
        ({"beta1": 0.0}, "beta1 is 0.0", "above 0"),
        ({"beta1": float("inf")}, "beta1 is inf", "finite"),
        ({"beta2": -0.1}, "beta2 is -0.1", "above 0"),
        ({"value_std_error": 0.0}, "value_std_error is 0.0", "above 0"),
        ({"return_range": 0.0}, "return_range is 0.0", "above 0"),
        ({"residual_cap": -1.0}, "residual_cap is -1.0", "above 0"),
        ({"stale_window": 0}, "stale_window is 0", "above 0"),
        ({"kl_coef": -0.1}, "kl_coef is -0.1", "cannot be negative"),
        ({"kl_coef": float("inf")}, "kl_coef is inf", "or infinite"),
        ({"kl_coef": float("nan")}, "kl_coef is nan", "give a number"),
        ({"beta2": "x"}, "beta2 is 'x'", "give a number"),
        ({"reference_samples": 2.5}, "reference_samples is 2.5", "give a whole number"),
        ({"refresh_steps": 1.5}, "refresh_steps is 1.5", "give a whole number"),
        ({"refresh_steps": -1}, "refresh_steps is -1", "cannot be negative"),
        ({"advantage": "gae"}, "advantage is 'gae'", "A\\*-PO does not read; leave it unset"),
        ({"critic_warmup_steps": 5}, "critic_warmup_steps is 5", "leave it at 0"),
        ({"loss_type": "dapo"}, "loss_type is 'dapo'", "leave it unset"),
        ({"epsilon_high": 0.28}, "epsilon_high is 0.28", "leave it unset"),
        ({"loss_scale": "papper"}, "loss_scale is 'papper'", "unit"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_value_and_a_remedy(
    changes: dict[str, Any], value: str, remedy: str
) -> None:
    with pytest.raises(OptionError, match=f"(?s){value}.*{remedy}"):
        config(**changes)


def test_a_run_does_not_go_on_from_a_checkpoint_without_its_reference(tmp_path: Path) -> None:
    """That of another algorithm holds none; that of a run from another model was made with another."""
    saved = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    small_trainer(tmp_path / "starpo", lottery(), **saved).train()
    with pytest.raises(ReferenceWeightsError, match="astar_po.json does not exist; resume from a checkpoint of an A"):
        astar(tmp_path / "starpo", max_steps=2).train(resume_from_checkpoint=True)
    astar(tmp_path / "astar", **saved).train()
    other = astar(tmp_path / "astar", model=small_model(7), max_steps=2)
    with pytest.raises(ReferenceWeightsError, match="checkpoint-1 belongs to a run with another reference; make the"):
        other.train(resume_from_checkpoint=True)
    assert other.state.global_step == 1  # the checkpoint's; nothing was trained
