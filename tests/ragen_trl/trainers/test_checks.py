"""What hooks and reward functions return, checked: each mistake has its own words, and nothing wrong is trained on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig

from ragen_trl import StarPOTrainer
from ragen_trl.errors import OptionError
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trainers.checks import (
    HookError,
    check_advantages,
    check_loss,
    check_played,
    checked_groups,
    checked_rewards,
)
from tests.support.ragen_trl.trainers import lottery, small_trainer


@pytest.mark.parametrize("groups", [[0, 2], (0, 2), torch.tensor([0, 2]), np.array([0, 2]), list(np.array([0, 2]))])
def test_indices_of_groups_come_in_any_container(groups: Any) -> None:
    assert checked_groups(groups, 3, 3) == [0, 2]


@pytest.mark.parametrize("groups", [[1, 1], [-1], [3], [2, 0], [0.0], [True], torch.tensor([True, False, True])])
def test_groups_that_are_not_there_or_twice_there_are_refused(groups: Any) -> None:
    """[1, 1] trained one group and counted two; [-1] trained none and counted one."""
    with pytest.raises(HookError, match="select_groups returned .*; return ascending, different indices.* 0 to 2"):
        checked_groups(groups, 3, 3)


def test_no_more_groups_than_a_rollout_has_are_trained_on() -> None:
    """Regression: after refills 12 groups of 4 made one pass of 48 rows where 16 were asked for."""
    assert checked_groups([0, 5], 6, 2) == [0, 5]
    with pytest.raises(HookError, match="returned 3 groups of 6, and a rollout has 2,.* args.groups_per_update"):
        checked_groups([0, 2, 5], 6, 2)


def test_a_hook_that_keeps_all_groups_of_refills_is_told_so(tmp_path: Path) -> None:
    class Greedy(StarPOTrainer):
        def select_groups(self, rollout: Any) -> Any:
            return list(range(rollout.num_groups)) if rollout.num_groups > 2 else []

    trainer = small_trainer(tmp_path, trainer=Greedy, per_device_train_batch_size=8, max_refills=1, max_steps=1)
    with pytest.raises(HookError, match="returned 4 groups of 4, and a rollout has 2"):
        trainer.train()


@pytest.mark.parametrize("groups", [None, 1])
def test_groups_that_are_no_list_are_named(groups: Any) -> None:
    """Regression: a TypeError that named no hook."""
    with pytest.raises(HookError, match=f"select_groups returned {groups}; return a list"):
        checked_groups(groups, 3, 3)


def test_a_rollout_is_a_list_with_a_trajectory_a_start() -> None:
    starts = [Start.drawn(seed, [seed]) for seed in (4, 4, 5)]
    with pytest.raises(HookError, match="rollout returned 2 trajectories for 3 starts"):
        check_played([None, None], starts, strict=False)
    with pytest.raises(HookError, match="rollout returned a NoneType; return a list"):
        check_played(None, starts, strict=False)


class Reversed(StarPOTrainer):
    def rollout(self, *args: Any) -> Any:
        return super().rollout(*args)[::-1]


@pytest.mark.parametrize(
    "options",
    [
        {"per_device_train_batch_size": 8},  # two groups
        {"env": [lottery(1.0), lottery(9.0)]},
        {"reward_funcs": [lambda trajectory, **_: [0.0] * len(trajectory)]},
    ],
)
def test_trajectories_come_in_the_order_of_their_starts(options: dict[str, Any], tmp_path: Path) -> None:
    """Regression: in another order groups were mixed, and one environment had the returns of the other."""
    trainer = small_trainer(tmp_path, **{"env": lottery(), **options}, trainer=Reversed, max_steps=1)
    with pytest.raises(HookError, match="at place 0 a trajectory .*, where the start has .*; return them in the order"):
        trainer.train()


def test_a_trajectory_without_an_outcome_seed_is_told_by_its_start_state(tmp_path: Path) -> None:
    class Bare(StarPOTrainer):
        def rollout(self, *args: Any) -> Any:
            return [replace(trajectory, outcome_seed=None) for trajectory in super().rollout(*args)]

    trainer = small_trainer(tmp_path, [lottery(1.0), lottery(9.0)], trainer=Bare, max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


def test_advantages_have_one_of_two_shapes_and_are_finite() -> None:
    check_advantages(torch.zeros(8), 8, (4, 20))
    check_advantages(torch.zeros(4, 20), 8, (4, 20))
    with pytest.raises(HookError, match=r"shape \(4,\); give one for each of the 8 .* or \(4, 20\)"):
        check_advantages(torch.zeros(4), 8, (4, 20))
    with pytest.raises(HookError, match="type list; give one"):
        check_advantages([0.0] * 8, 8, (4, 20))
    with pytest.raises(HookError, match="2 of 8 values that are NaN or infinite"):
        check_advantages(torch.tensor([float("nan"), float("inf"), *[0.0] * 6]), 8, (4, 20))


def test_a_loss_is_one_number() -> None:
    check_loss(torch.tensor(1.0, requires_grad=True))
    check_loss(torch.tensor(0.0))  # of a micro-batch with nothing to learn
    with pytest.raises(HookError, match="policy_loss has no gradient, .* the entropy bonus"):
        check_loss(torch.tensor(1.0))
    with pytest.raises(HookError, match=r"policy_loss has shape \(2,\)"):
        check_loss(torch.zeros(2))
    with pytest.raises(HookError, match="policy_loss has type float"):
        check_loss(1.0)


@pytest.mark.parametrize("rewards", [[1, None], (1.0, 0.0), np.array([1.0, 0.0]), torch.zeros(2), [np.float32(1), 0.0]])
def test_rewards_come_in_any_container_of_numbers(rewards: Any) -> None:
    def judge(completions: Any, **_: Any) -> Any:
        return rewards

    found = checked_rewards(judge)
    assert found.__name__ == "judge"
    assert found(completions=["", ""]) == [None if value is None else float(value) for value in rewards]


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([float("nan"), 0.0], "reward function judge returned nan for trajectory 0; return a finite number"),
        ([0.0, float("inf")], "returned inf for trajectory 1"),
        (["1", "2"], "returned '1' for trajectory 0"),
        ([1.0], r"returned \[1.0\]; return a list of 2 numbers"),
        (1.0, "returned 1.0; return a list of 2 numbers"),
    ],
)
def test_rewards_that_trl_cannot_use_are_named(rewards: Any, message: str) -> None:
    """A NaN counts as "no reward" in TRL, so that a function that returned nothing else did nothing, silently."""

    def judge(completions: Any, **_: Any) -> Any:
        return rewards

    with pytest.raises(HookError, match=message):
        checked_rewards(judge)(completions=["", ""])


class Wrong(StarPOTrainer):
    """A first try at a subclass."""

    wrong = ""

    def rollout(self, *args: Any) -> Any:
        played = super().rollout(*args)
        return played[1:] if self.wrong == "rollout" else played

    def select_groups(self, rollout: Any) -> Any:
        return [0, 99] if self.wrong == "select_groups" else super().select_groups(rollout)

    def advantages(self, rollout: Any) -> Any:
        found = super().advantages(rollout)
        return found * float("nan") if self.wrong == "advantages" else found

    def policy_loss(self, model: Any, inputs: Any) -> Any:
        if self.wrong == "policy_loss of no model":
            return torch.ones((), requires_grad=True)
        loss = super().policy_loss(model, inputs)
        return loss[None] if self.wrong == "policy_loss" else loss


@pytest.mark.parametrize("hook", ["rollout", "select_groups", "advantages", "policy_loss", "policy_loss of no model"])
def test_a_trainer_names_the_hook_that_is_wrong_before_a_weight_moves(hook: str, tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery(), trainer=Wrong, max_steps=1)
    trainer.wrong = hook  # type: ignore[attr-defined]
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    with pytest.raises(HookError, match=f"^{hook.split()[0]} "):
        trainer.train()
    assert all(torch.equal(*pair) for pair in zip(before, trainer.model.parameters(), strict=True))


def test_a_trainer_names_the_reward_function_that_is_wrong(tmp_path: Path) -> None:
    def judge(completions: Any, **_: Any) -> list[float]:
        return [float("nan")] * len(completions)

    with pytest.raises(HookError, match="reward function judge returned nan"):
        small_trainer(tmp_path, lottery(), reward_funcs=[judge], max_steps=1).train()


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"model": torch.nn.Linear(1, 1)}, r"the model has no adapter; train LoRA \(lora_r\), or leave it off"),
        ({"use_vllm": True}, "use_vllm, which merges anyway"),
        ({"is_deepspeed_enabled": True}, "NO holds the weights that it changes; leave it off, or use DDP"),
    ],
)
def test_what_cannot_be_merged_is_said_before_training(held: dict[str, Any], message: str, tmp_path: Path) -> None:
    adapter = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = small_trainer(tmp_path, peft_config=adapter, merge_lora=True)
    for name, value in held.items():
        setattr(trainer, name, value)
    with pytest.raises(OptionError, match=f"merge_lora is True.*{message}"):
        trainer._check_launch()
