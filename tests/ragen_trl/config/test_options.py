"""Every option is of its kind and inside its range, TRL's too, and what would be silently wrong together is refused."""

import inspect
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

import pytest

from ragen_trl import AStarPOConfig, StarPOConfig
from ragen_trl.config.checks import REFUSED
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
# A value that each refused option is given.
ASKED: dict[str, Any] = {
    "multi_objective_aggregation": "normalize_then_sum",
    "sync_ref_model": True,
    "min_p": 0.1, "repetition_penalty": 1.1, "generation_kwargs": {"num_beams": 2}, "disable_dropout": False,
    "ds3_gather_for_generation": False, "mask_truncated_completions": True, "use_adaptive_entropy": True,
    "top_entropy_quantile": 0.5, "off_policy_mask_threshold": 0.5, "max_tool_calling_iterations": 3,
    "vllm_structured_outputs_regex": "a+", "neftune_noise_alpha": 5.0, "remove_unused_columns": True,
    "parallelism_config": "tp", "log_completions": True,
}  # fmt: skip


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


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_of_trl_that_rollouts_do_not_honour_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} is .*, which rollouts do not honour; leave "):
        config(**{name: ASKED[name]})


ONE: dict[str, Any] = {"num_generations": 1, "advantage": "gae"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_generations": 3}, r"generation_batch_size \(8\) must be divisible by num_generations \(3\)"),
        # Groups of one, which TRL refuses and a critic does not need, must not hide what else TRL refuses.
        ({**ONE, "generation_batch_size": 8, "steps_per_generation": 1}, "can not be both configured"),
        ({**ONE, "generation_batch_size": 9}, "must be divisible by the global batch size"),
        ({**ONE, "num_generations_eval": 3, "do_eval": True, "eval_strategy": "steps", "eval_steps": 1}, "for eval"),
        ({"num_generations": 1}, "num_generations is 1; a group needs at least 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_whatever_the_group(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_a_critic_needs_no_groups() -> None:
    assert config(**ONE).groups_per_generation == 8


EVALUATES = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, r"temperature is 0.0; it must be in \[1e-30"),
        ({"top_p": 2.0}, "top_p is 2.0"),
        *[
            ({name: 1.01}, rf"{name} is 1.01; it must be in \[0, 1\]")
            for name in ("gamma", "gae_lambda", "turn_gamma", "turn_lambda")
        ],
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"scale_rewards": "foo"}, "scale_rewards is 'foo'; choose one of group, batch, none"),
        ({"loss_type": "cispo", "epsilon_high": 0.28}, "epsilon_high is 0.28, by which loss_type 'cispo' bounds"),
        ({"epsilon_high": 4.0}, "delta is 3.0, inside the clip range of epsilon 0.2 and epsilon_high 4.0;"),
        ({"advantage": "gigpo", "scale_rewards": "batch"}, "which advantage 'gigpo' does not have"),
        ({**ONE, "filter_ratio": 0.5}, "need groups to compare"),
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 2, "num_generations": 2}, "does not divide"),
        ({"load_best_model_at_end": True, **EVALUATES}, "metric_for_best_model is 'loss' .*|='eval_success'"),
        (
            {"save_strategy": "steps", "save_steps": 0.25, "max_steps": 10, "num_iterations": 2},
            "save_steps is 0.25, a checkpoint every 3 updates, but a rollout has 2,",
        ),
        ({"window_turns": 2, "context": "actions_so_far"}, "give one of the two"),
        ({"context": "nowhere:f"}, "context is 'nowhere:f', which cannot be used"),
        ({"observation": "image", "advantage": "gae"}, "observation is 'image'"),
        ({"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 2}, "set vllm_mode='server'"),
    ],
)
def test_options_that_would_be_silently_wrong_or_fail_late_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        config(**changes)


def test_an_option_that_merely_has_no_effect_is_taken() -> None:
    assert config(gamma=0.5, critic_epochs=2, step_weight=0.5, image_size=200, log_kl=True, beta=0.1).gamma == 0.5


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("log_kl", "false", "True or False"),
        ("whiten_advantages", "off", "True or False"),
        ("think", 1, "True or False"),
        ("env_weights", "1,2", "a list"),
        ("system_prompt", 3, "a text"),
        ("max_turns", True, "a whole number"),
        ("max_turns", "5", "a whole number"),
    ],
)
def test_a_value_of_another_kind_is_refused_and_not_read_as_true(name: str, value: Any, kind: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is {value!r}; give {kind}"):
        StarPOConfig(**{**SMALL, name: value})
