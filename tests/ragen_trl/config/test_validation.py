"""What a configuration or a trainer refuses before anything is played: with the value, and a remedy."""

import inspect
import re
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from ragen_trl import AStarPOConfig, StarPOConfig, StarPOTrainer, format_reward
from ragen_trl.config.reading import ADVANTAGES, CRITIC_ADVANTAGES, READ_BY_ADVANTAGE
from ragen_trl.config.validation import CHOICES
from ragen_trl.credit.estimators import critic_advantages, trajectory_advantages, turn_advantages
from ragen_trl.errors import OptionError
from ragen_trl.policies.model_support import UnsupportedModelError
from ragen_trl.trainers.rollout import LaunchError
from tests.support.ragen_trl.trainers import (
    SMALL,
    TOKENIZER,
    LastRollout,
    lottery,
    made_up,
    rollout_of,
    small_model,
    small_trainer,
)

# Another value than the default for every option that not all advantages read.
OTHER: dict[str, Any] = {
    "baseline": "leave_one_out",
    "scale_rewards": "none",
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "turn_gamma": 0.5,
    "turn_lambda": 0.5,
    "step_weight": 0.5,
    "whiten_advantages": False,
    "bootstrap": "all",
    "critic_learning_rate": 0.5,
    "critic_batch_size": 4,
    "critic_epochs": 2,
    "critic_lr_scheduler_type": "linear",
    "critic_lr_warmup_rollouts": 1,
    "critic_warmup_steps": 1,
    "value_clip": None,
}
# What an option needs to have an effect.
NEEDS = {"critic_lr_warmup_rollouts": {"critic_lr_scheduler_type": "linear"}}


def config(**changes: Any) -> StarPOConfig:
    return StarPOConfig(output_dir="unused", **{**SMALL, **changes})


class Reading:
    """A configuration that notes which of its options are read."""

    def __init__(self, args: StarPOConfig) -> None:
        self._args, self.read = args, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._args, name)


class NoCritic:
    """Values everything at 0 and learns nothing."""

    def values(self, trajectories: Any, bootstrap: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(trajectories), 4), torch.zeros(len(trajectories))

    def update(self, *args: Any) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_the_table_of_options_says_what_an_estimator_reads(advantage: str) -> None:
    args: Any = Reading(config(advantage=advantage))
    rollout = rollout_of([made_up((1, 1, 0.5), (1, 1, reward), truncated=True) for reward in (0.0, 1.0)], 2)
    of_trainer: set[str] = set()
    if advantage in CRITIC_ADVANTAGES:
        critic: Any = NoCritic()
        critic_advantages(critic, rollout, args, lambda tensor: tensor, seed=0)
        of_schedule = {"critic_lr_scheduler_type", "critic_lr_warmup_rollouts"}
        of_trainer = {"critic_learning_rate", "critic_warmup_steps", *of_schedule}  # it makes the critic
    elif advantage == "group":
        trajectory_advantages(rollout, args)
    else:
        turn_advantages(rollout, args)
    assert (args.read & OTHER.keys()) | of_trainer == set(READ_BY_ADVANTAGE[advantage])


def test_every_option_of_the_table_is_one_of_the_configuration() -> None:
    listed = {option for read in READ_BY_ADVANTAGE.values() for option in read}
    assert listed == OTHER.keys()
    assert listed <= {field.name for field in fields(StarPOConfig)}
    default = config()
    assert all(getattr(default, name) != value for name, value in OTHER.items())


@pytest.mark.parametrize("option", OTHER)
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_an_option_is_taken_where_it_is_read_and_refused_elsewhere(advantage: str, option: str) -> None:
    changes = {"advantage": advantage, option: OTHER[option]}
    if option in READ_BY_ADVANTAGE[advantage]:
        assert getattr(config(**NEEDS.get(option, {}), **changes), option) == OTHER[option]
        return
    message = f"{option} is {OTHER[option]!r}, which advantage '{advantage}' does not read; leave it at"
    with pytest.raises(OptionError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"filter_ratio": 0.5}, "fp16 is True.*a filter that keeps nothing.*use bf16, or float32"),
        ({"max_refills": 1}, "fp16 is True.*use bf16"),
        ({"advantage": "gae", "critic_warmup_steps": 1}, "fp16 is True.*a critic's warm-up"),
    ],
    ids=str,
)
def test_fp16_is_refused_where_an_update_may_be_left_out(changes: dict[str, Any], message: str) -> None:
    """Its loss scaler asserts that some parameter has a gradient."""
    config(fp16=True)
    config(**changes)
    with pytest.raises(OptionError, match=message):
        config(fp16=True, **changes)


def test_a_share_of_the_spread_that_is_all_of_it_is_refused() -> None:
    with pytest.raises(ValueError, match="filter_strategy is 'top_p' and filter_ratio 1.0, which keeps all; lower it"):
        config(filter_strategy="top_p")
    with pytest.raises(ValueError, match="max_refills is 1, but filter_strategy 'top_p_variance' has no number"):
        config(filter_strategy="top_p_variance", filter_ratio=0.9, max_refills=1)
    assert config(filter_strategy="top_p", filter_ratio=0.9).filter_ratio == 0.9


@pytest.mark.parametrize("changes", [{"baseline": "leave_one_out"}, {"scale_rewards": "none"}], ids=str)
def test_rewards_that_are_normalised_first_have_one_baseline_and_one_scale(changes: dict[str, Any]) -> None:
    (value,) = changes.values()
    with pytest.raises(ValueError, match=f"{value!r}.*'normalize_then_sum' always takes the group's mean and std"):
        config(multi_objective_aggregation="normalize_then_sum", **changes)
    config(multi_objective_aggregation="normalize_then_sum")


def test_turns_do_not_have_rewards_that_are_normalised_first() -> None:
    with pytest.raises(ValueError, match="'normalize_then_sum'.*advantage 'gigpo' needs 'sum_then_normalize'"):
        config(multi_objective_aggregation="normalize_then_sum", advantage="gigpo")


def test_a_trainer_takes_a_configuration_of_ours() -> None:
    for args in (GRPOConfig("unused", use_cpu=True, bf16=False), None):
        with pytest.raises(ValueError, match=f"args is {'a GRPOConfig' if args else None}; pass a StarPOConfig"):
            StarPOTrainer(small_model(), lottery(), args, processing_class=TOKENIZER)


def test_weights_count_the_return_of_the_environment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\[0\.5\]; give one each to environment_return, format_reward, in this"):
        small_trainer(tmp_path, lottery(), reward_funcs=[format_reward], reward_weights=[0.5])


def test_a_single_reward_function_needs_no_list(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(), reward_funcs=format_reward, reward_weights=[1.0, 2.0], max_steps=1)
    last = LastRollout(trainer)
    trainer.train()
    assert trainer.reward_func_names == ["environment_return", "format_reward"]
    assert last.rewards.shape == (8, 2)


ONE: dict[str, Any] = {"num_generations": 1, "advantage": "gae"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_generations": 3}, "8 trajectories a rollout .* are not divisible by num_generations 3; change one"),
        # Groups of one, which TRL refuses and a critic does not need, must not hide what else TRL refuses.
        ({**ONE, "generation_batch_size": 8, "steps_per_generation": 1}, "can not be both configured"),
        ({**ONE, "generation_batch_size": 9}, "must be divisible by the global batch size"),
        ({**ONE, "num_generations_eval": 3, "do_eval": True, "eval_strategy": "steps", "eval_steps": 1}, "for eval"),
        ({**ONE, "auto_find_batch_size": True}, "auto_find_batch_size is True, which rollouts do not"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_whatever_the_group(options: dict[str, Any], message: str) -> None:
    """`StarPOConfig` reads from the sizes that TRL has set which of TRL's checks refused; it knows their order."""
    with pytest.raises(ValueError, match=message):
        StarPOConfig(output_dir="x", **{**SMALL, **options})


def test_groups_of_one_are_taken_with_a_critic() -> None:
    assert StarPOConfig(output_dir="x", **{**SMALL, **ONE}).groups_per_generation == 8


def test_a_trainer_that_compares_trajectories_needs_two() -> None:
    with pytest.raises(ValueError, match="num_generations is 1; a group needs at least 2"):
        config(num_generations=1)
    assert config(num_generations=1, advantage="gae").num_generations == 1  # a critic compares with itself
    with pytest.raises(ValueError, match="num_generations is 1, but filter_ratio 0.5 and max_refills 0 need groups"):
        config(num_generations=1, advantage="gae", filter_ratio=0.5)


def test_options_of_one_trainer_are_not_ignored_by_another(tmp_path: Path) -> None:
    """StarPO once took the options of A*-PO, and trained StarPO."""
    message = "AStarPOConfig, most of whose options StarPOTrainer .* make a AStarPOTrainer"
    with pytest.raises(OptionError, match=message):
        small_trainer(tmp_path, lottery(), AStarPOConfig, StarPOTrainer, num_generations=4)


EVALUATES = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"temperature": 1e-39}, "temperature is 1e-39; it must be at least 1e-30"),
        ({"top_p": 2.0}, r"top_p is 2.0; it must be in \(0, 1\], 1 keeps all tokens"),
        ({"top_k": -1}, "top_k is -1; use 0 to keep all tokens or a positive number"),
        ({"seed": 2**32}, r"seed is 4294967296; it must be in \[0, 2\*\*32\)"),
        ({"loss_type": "grop"}, "loss_type is 'grop'; choose one of grpo, bnpo"),
        ({"epsilon": -1.0}, "epsilon is -1.0; it cannot be negative"),
        ({"loss_type": "sapo", "epsilon": 0.1}, "epsilon is 0.1, which loss_type 'sapo' does not read"),
        ({"loss_type": "vespo", "epsilon_high": 0.1}, "epsilon_high is 0.1, which loss_type 'vespo' does not read"),
        ({"loss_type": "cispo", "delta": 4.0, "epsilon_high": 5.0}, "delta is 4.0, which loss_type 'cispo' does not"),
        ({"sapo_temperature_neg": 2.0}, "sapo_temperature_neg is 2.0, which loss_type"),
        ({"loss_type": "sapo", "vespo_k_pos": 3.0}, "vespo_k_pos is 3.0, which loss_type 'sapo' does not read"),
        ({"loss_type": "cispo"}, "epsilon_high is None, by which loss_type 'cispo' bounds the ratio itself; set it ab"),
        ({"loss_type": "cispo", "epsilon_high": 0.28}, "epsilon_high is 0.28, by which loss_type 'cispo' bounds"),
        ({"loss_type": "dr_grpo", "max_completion_length": None}, "'dr_grpo' divides by max_completion_length"),
        ({"delta": 0.5}, "delta is 0.5, inside the clip range of epsilon 0.2"),
        ({"epsilon_high": 4.0}, "delta is 3.0, inside the clip range of epsilon 0.2 and epsilon_high 4.0;"),
        ({"load_best_model_at_end": True, **EVALUATES}, "metric_for_best_model is 'loss' .*='eval_success'"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau", **EVALUATES}, "metric_for_best_model is 'loss'"),
        ({"metric_for_best_model": "eval_lake_loss"}, "metric_for_best_model is 'eval_lake_loss'"),
        ({"scale_rewards": "foo"}, "scale_rewards is 'foo'; choose one of group, batch, none"),
        ({"multi_objective_aggregation": "foo"}, "choose one of sum_then_normalize, normalize_then_sum"),
        ({"advantage": "gae", "critic_learning_rate": 0.0}, "critic_learning_rate is 0.0; it must be above 0"),
        ({"advantage": "gae", "critic_warmup_steps": 5, "max_steps": 4}, "the policy would never learn"),
        (
            {**EVALUATES, "save_strategy": "best", "metric_for_best_model": "eval_success", "num_iterations": 2},
            "eval_steps is 1, but a rollout has 2 updates; a checkpoint between",
        ),
        (
            {"save_strategy": "steps", "save_steps": 0.25, "max_steps": 10, "num_iterations": 2},
            "save_steps is 0.25 of the run, 3 of 10 updates, but a rollout has 2 updates; a checkpoint between",
        ),
    ],
)
def test_options_that_would_fail_late_or_never_are_refused_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        config(**changes)


NUMBERS = {
    name: kind
    for owner in reversed(AStarPOConfig.__mro__)
    for name, kind in inspect.get_annotations(owner).items()
    if owner.__module__.startswith("ragen_trl.") and {int, float} & {kind, *get_args(kind)}
}


@pytest.mark.parametrize("value", [True, "x", float("nan")], ids=str)
@pytest.mark.parametrize("option", NUMBERS)
def test_a_number_is_no_truth_value_no_text_and_not_nan(option: str, value: Any) -> None:
    """Such values were accepted, and failed in the first rollout or made every loss NaN, or had no named error."""
    whole = "whole " if int in (NUMBERS[option], *get_args(NUMBERS[option])) else ""
    with pytest.raises(OptionError, match=f"^{option} is {value!r}; give a {whole}number$"):
        AStarPOConfig(output_dir="unused", **{**SMALL, option: value})


@pytest.mark.parametrize("option", ["window_turns", "curriculum_rollouts", "max_turns", "max_reference_samples"])
def test_half_a_turn_is_no_whole_number(option: str) -> None:
    with pytest.raises(OptionError, match=f"^{option} is 2.5; give a whole number$"):
        AStarPOConfig(output_dir="unused", **{**SMALL, option: 2.5})


def test_numbers_of_numpy_are_numbers_and_none_is_no_number_of_turns() -> None:
    args = config(max_turns=np.int64(3), gamma=1, format_penalty=np.float32(-0.5), window_turns=None)
    assert (args.max_turns, args.gamma, args.format_penalty, args.window_turns) == (3, 1, -0.5, None)
    with pytest.raises(OptionError, match="^max_turns is None; give a whole number$"):
        config(max_turns=None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mapping", "context is 'Mapping'; give actions_so_far or a function, 'module:function'"),
        ("SlidingWindow", "context is 'SlidingWindow'; give actions_so_far or"),
        ("context_rule", "context is 'context_rule'; give actions_so_far or"),
        ("ragen_trl.rollout.contexts:SlidingWindow", "SlidingWindow', a class; give a function of the turns so far"),
        ("ragen_trl.errors:OptionError", "OptionError', a class"),
        ("gc:isenabled", r"isenabled\(\) cannot be called with .* define it as isenabled\(turns, opening\)"),
        ("nowhere:none", "^context: 'nowhere:none' cannot be imported"),
    ],
)
def test_a_context_is_a_function_of_the_turns_and_the_opening(name: str, message: str) -> None:
    """Classes and helpers beside `actions_so_far` were accepted, and failed in the first turn that was rebuilt."""
    with pytest.raises(ValueError, match=message):
        config(context=name)


def test_the_choices_of_trls_options_are_those_of_its_code() -> None:
    """Contract: TRL looks at them late, so the lists are ours to keep."""
    code = inspect.getsource(GRPOTrainer)
    for name in ("loss_type", "scale_rewards", "multi_objective_aggregation"):
        assert all(f'"{choice}"' in code for choice in CHOICES[name]), name
    named = set(re.findall(r'self\.loss_type == "(\w+)"', code))
    for listed in re.findall(r"self\.loss_type in \[([^\]]*)\]", code):
        named |= set(re.findall(r'"(\w+)"', listed))
    assert named == set(CHOICES["loss_type"])


def test_processes_that_do_not_see_one_another_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would train alone and write over what the others write."""
    args = StarPOConfig(output_dir=str(tmp_path), **SMALL)
    monkeypatch.setenv("WORLD_SIZE", "1")
    StarPOTrainer(small_model(), lottery(), args, processing_class=TOKENIZER)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LaunchError, match="launched as 2 processes.*use_cpu=True and launch with torchrun"):
        StarPOTrainer(small_model(), lottery(), args, processing_class=TOKENIZER)


def test_a_kl_term_needs_a_model_that_can_be_loaded_once_more(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="beta is 0.1.*built in memory; save it.*or set beta=0"):
        small_trainer(tmp_path, lottery(), beta=0.1)
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    assert small_trainer(tmp_path, lottery(), beta=0.1, peft_config=lora).ref_model is None  # the adapter switched off


_CLIPS = ("vllm_importance_sampling_clip_min", "vllm_importance_sampling_clip_max")


@pytest.mark.parametrize("use_vllm", [False, True])
def test_modes_of_the_ratio_to_the_sampler_are_checked_without_vllm_as_well(use_vllm: bool) -> None:
    """`one_step_off_policy` reads them, too. Regression: a traceback at the first rollout, or masks for truncation."""
    for mode in ("token-truncate", "tokn_truncate"):
        with pytest.raises(ValueError, match=f"vllm_importance_sampling_mode is '{mode}'"):
            config(use_vllm=use_vllm, vllm_importance_sampling_mode=mode)


@pytest.mark.parametrize("size", [1, 2])
def test_bounds_of_the_ratio_are_checked_for_groups_of_one_as_well(size: int) -> None:
    """TRL refuses groups of one before it makes these checks."""
    groups = {"advantage": "gae", "num_generations": size}
    with pytest.warns(FutureWarning, match="deprecated") if size > 1 else nullcontext():
        assert config(**groups, vllm_importance_sampling_cap=5.0).vllm_importance_sampling_clip_max == 5.0
    with pytest.raises(ValueError, match="clip_min"):
        config(**groups, **dict(zip(_CLIPS, (3.0, 3.0), strict=True)))
    with pytest.raises(ValueError, match="clip_max"):
        config(**groups, **dict.fromkeys(_CLIPS), vllm_importance_sampling_mode="token_truncate")
