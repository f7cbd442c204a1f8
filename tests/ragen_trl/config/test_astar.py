"""AStarPOConfig: the paper's defaults, what is refused with which remedy, and what TRL offers besides training."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl import AStarPOConfig
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import small_model


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
    ("changes", "message"),
    [
        ({"num_iterations": 2}, "2 updates in 2 passes.*set num_iterations to 1"),
        ({"steps_per_generation": 64}, "2 updates.*leave steps_per_generation unset"),
        ({"beta": 0.001}, "beta is 0.001.*beta2, kl_coef"),
        ({"advantage": "gae"}, "advantage is 'gae'"),
        ({"vllm_importance_sampling_correction": True}, "leave False"),
        ({"filter_ratio": 0.25}, "filter_ratio 0.25.*raise num_generations"),
        ({"max_refills": 3, "num_generations": 4, "num_train_seeds": None}, "max_refills is 3.*set num_train_seeds"),
        ({"max_reference_samples": 4}, "max_reference_samples is 4, below reference_samples 8; raise it"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_value_and_a_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        config(**changes)


def test_a_run_does_not_go_on_from_a_checkpoint_without_its_reference(tmp_path: Path) -> None:
    """That of a run from another model was made with another."""
    astar(tmp_path / "astar", max_steps=1, save_strategy="steps", save_steps=1).train()
    other = astar(tmp_path / "astar", model=small_model(7), max_steps=2)
    with pytest.raises(OptionError, match="checkpoint-1 belongs to a run with another reference; make the"):
        other.train(resume_from_checkpoint=True)
    assert other.state.global_step == 1  # the checkpoint's; nothing was trained
