"""Every option is of its kind and in its range, TRL's too; what would be silently wrong is refused; the defaults."""

import inspect
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

import pytest
import torch

from ragen_trl import AStarPOConfig, StarPOConfig, StarPOSConfig
from ragen_trl.config.options import check_range
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.trainers import SMALL

KINDS = {
    name: kind
    for owner in reversed(AStarPOConfig.__mro__)
    for name, kind in inspect.get_annotations(owner).items()
    if owner.__module__.startswith("ragen_trl.")
}
NUMBERS = {name: kind for name, kind in KINDS.items() if {int, float} & {kind, *get_args(kind)}}
RANGES = {one.name: one.metadata["metavar"] for one in fields(AStarPOConfig) if "metavar" in one.metadata}


def config(kind: type[StarPOConfig] = StarPOConfig, **changes: Any) -> StarPOConfig:
    return kind(output_dir="unused", **{**SMALL, **changes})


@pytest.mark.parametrize("value", [True, "x", float("nan")], ids=str)
@pytest.mark.parametrize("option", NUMBERS)
def test_a_number_is_no_truth_value_no_text_and_not_nan(option: str, value: Any) -> None:
    """Such values were accepted, and failed in the first rollout or made every loss NaN, or had no named error."""
    whole = "whole " if int in (NUMBERS[option], *get_args(NUMBERS[option])) else ""
    with pytest.raises(OptionError, match=f"^{option} is {value!r}; give a {whole}number$"):
        config(AStarPOConfig, **{option: value})


@pytest.mark.parametrize("option", RANGES)
def test_a_number_outside_its_range_is_refused(option: str) -> None:
    within = RANGES[option]
    low = float(within[1:-1].split(",")[0])
    outside = 1.0 if low == float("-inf") else low if within[0] == "(" else low - 1
    value = int(outside) if int in (NUMBERS[option], *get_args(NUMBERS[option])) else float(outside)
    with pytest.raises(OptionError, match=f"^{option} is {value}; it must be in "):
        config(AStarPOConfig, **{option: value})


def test_an_interval_is_read_as_mathematics_writes_it() -> None:
    for value, within in ((1, "(0, 1]"), (0, "[0, 1)"), (10**9, "[1, inf)"), (-5, "(-inf, 0]")):
        check_range("x", value, within)
    for value, within in ((0, "(0, 1]"), (1, "[0, 1)"), (float("inf"), "[1, inf)"), (0.1, "(-inf, 0]")):
        with pytest.raises(OptionError):
            check_range("x", value, within)


@pytest.mark.parametrize("option", [name for name, kind in KINDS.items() if get_origin(kind) is Literal])
def test_a_choice_is_one_of_those_that_are_declared(option: str) -> None:
    with pytest.raises(OptionError, match=f"{option} is 'foo'; choose one of {get_args(KINDS[option])[0]}"):
        config(AStarPOConfig, **{option: "foo"})


ONE: dict[str, Any] = {"num_generations": 1, "advantage": "gae"}
EVALUATES = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_p": 0.1}, "^min_p is 0.1, which rollouts do not honour; leave None"),
        # A value of another kind is not read as true.
        ({"log_kl": "false"}, "log_kl is 'false'; give True or False"),
        ({"num_generations": 1}, "num_generations is 1; a group needs at least 2"),
        # Groups of one, which TRL refuses and a critic does not need, must not hide what else TRL refuses.
        ({**ONE, "num_generations_eval": 3, "do_eval": True, "eval_strategy": "steps", "eval_steps": 1}, "for eval"),
        ({**ONE, "filter_ratio": 0.5}, "need groups to compare"),
        ({"loss_type": "cispo", "epsilon_high": 0.28}, "epsilon_high is 0.28, by which loss_type 'cispo' bounds"),
        ({"epsilon_high": 4.0}, "delta is 3.0, inside the clip range of epsilon 0.2 and epsilon_high 4.0;"),
        ({"advantage": "gigpo", "scale_rewards": "batch"}, "which advantage 'gigpo' does not have"),
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2, "num_generations": 2}, "does not divide"),
        ({"load_best_model_at_end": True, **EVALUATES}, "metric_for_best_model is 'loss' .*|='eval_success'"),
        (
            {"save_strategy": "steps", "save_steps": 0.25, "max_steps": 10, "num_iterations": 2},
            "save_steps is 0.25, a checkpoint every 3 updates, but a rollout has 2,",
        ),
    ],
)
def test_options_that_would_be_silently_wrong_or_fail_late_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_what_merely_has_no_effect_is_taken_and_a_critic_needs_no_groups() -> None:
    assert config(gamma=0.5, critic_epochs=2, step_weight=0.5, image_size=200, log_kl=True, beta=0.1).gamma == 0.5
    assert config(**ONE).groups_per_generation == 8


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator computes in bfloat16 itself")
def test_bfloat16_without_a_gpu_is_computed_on_the_cpu() -> None:
    args = StarPOConfig(output_dir="unused", bf16=True, report_to="none")
    assert args.use_cpu and args.bf16
    args = StarPOConfig(output_dir="unused", report_to="none")
    assert not args.use_cpu and not args.bf16


def test_starpo_and_starpo_s_have_the_defaults_of_the_papers() -> None:
    plain, stable = StarPOConfig(output_dir="x", bf16=False), StarPOSConfig(output_dir="x", bf16=False)
    assert (plain.filter_ratio, plain.beta, plain.epsilon, plain.epsilon_high) == (1.0, 0.001, 0.2, None)
    assert (stable.filter_ratio, stable.beta, stable.epsilon, stable.epsilon_high) == (0.25, 0.0, 0.2, 0.28)
    assert (plain.groups_per_generation, plain.num_generations, plain.num_rollouts) == (8, 16, 200)
    assert (plain.max_turns, plain.max_actions_per_turn, plain.max_actions, plain.format_penalty) == (5, 5, 10, -0.1)


def test_astar_po_has_the_defaults_of_the_paper() -> None:
    """β₁ 0.5 and β₂ 0.001 for rewards of 0 and 1, so in return ranges; N = 8; one trajectory; 1e-6; a batch of 128."""
    args: Any = AStarPOConfig(output_dir="unused", bf16=False, use_cpu=True)
    assert (args.beta1, args.beta2, args.reference_samples) == (0.5, 1e-3, 8)
    assert (args.num_generations, args.groups_per_generation, args.generation_batch_size) == (1, 128, 128)
    assert (args.learning_rate, args.lr_scheduler_type, args.max_grad_norm) == (1e-6, "constant", 1.0)
    assert (args.temperature, args.top_p, args.top_k) == (1.0, 1.0, 0)
    assert (args.beta, args.kl_coef, args.entropy_coef, args.steps_per_rollout) == (0.0, 0.0, 0.0, 1)
    assert (args.num_train_seeds, args.num_rollouts, args.filter_ratio) == (256, 200, 1.0)
