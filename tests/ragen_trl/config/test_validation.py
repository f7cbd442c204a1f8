"""What a configuration or a trainer refuses before anything is played: with the value, and a remedy."""

import inspect
from typing import Any, get_args

import pytest
import torch

from ragen_trl import AStarPOConfig, StarPOConfig
from ragen_trl.config.reading import ADVANTAGES, CRITIC_ADVANTAGES, READ_BY_ADVANTAGE
from ragen_trl.credit.estimators import critic_advantages, trajectory_advantages, turn_advantages
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.trainers import (
    SMALL,
    made_up,
    rollout_of,
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


EVALUATES = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"temperature": 1e-39}, "temperature is 1e-39; it must be at least 1e-30"),
        ({"top_p": 2.0}, r"top_p is 2.0; it must be in \(0, 1\], 1 keeps all tokens"),
        ({"top_k": -1}, "top_k is -1; use 0 to keep all tokens or a positive number"),
        ({"seed": 2**32}, r"seed is 4294967296; it must be in \[0, 2\*\*32\)"),
        ({"loss_type": "grop"}, "loss_type is 'grop'; choose one of grpo, dapo"),
        ({"epsilon": -1.0}, "epsilon is -1.0; it cannot be negative"),
        ({"loss_type": "cispo", "delta": 4.0, "epsilon_high": 5.0}, "delta is 4.0, which loss_type 'cispo' does not"),
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
