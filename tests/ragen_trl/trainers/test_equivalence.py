"""Pairs of runs that must take the same step: micro-batch sizes, padding, and a run that was stopped and resumed.

Plain SGD, so that the step is the gradient: Adam would hide a wrong scale and blow up rounding.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.trainers.trl.synced_reference import SyncedReferenceError
from tests.support.ragen_trl.equivalence import CREDITS, STEP, Awake, assert_same_step, played_in_turns, step, timeless
from tests.support.ragen_trl.trainers import lottery, parameters, small_model, small_trainer


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_one_batch_equals_accumulated_micro_batches(tmp_path: Path, loss_type: str) -> None:
    """1 × 24 against 24 × 1 and 6 × 4, every group kept; the next test has a filter."""
    options = {**STEP, "loss_type": loss_type}
    whole = step(small_trainer(tmp_path, lottery(), per_device_train_batch_size=24, **options))
    for size, count in ((1, 24), (4, 6)):
        split = small_trainer(
            tmp_path, lottery(), per_device_train_batch_size=size, gradient_accumulation_steps=count, **options
        )
        assert_same_step(whole, step(split))


CASES = [
    *((advantage, "grpo") for advantage in CREDITS),
    *[("group", "dapo"), ("gae", "dapo"), ("group", "dr_grpo"), ("gigpo", "dr_grpo")],
]


@pytest.mark.parametrize(("advantage", "loss_type"), CASES)
def test_the_split_into_micro_batches_changes_nothing(tmp_path: Path, advantage: str, loss_type: str) -> None:
    """One batch against 6 micro-batches, with an entropy bonus.

    A filter of 0.4 keeps 2 of 6 groups: 8 trajectories, which 4 rows of filler make up to 6 · 2.
    """
    options = {"loss_type": loss_type, "filter_ratio": 0.4}
    whole = played_in_turns(tmp_path, advantage, 24, 1, **options)
    split = played_in_turns(tmp_path, advantage, 4, 6, **options)
    assert_same_step(step(whole), step(split))
    for one in (whole, split):
        assert one.state.log_history[0]["filter/trajectories_used"] == 8
    critics = [one.critic.network.parameters for one in (whole, split) if one.critic is not None]
    assert len(critics) == (2 if "gae" in advantage else 0)
    for first, second in zip(*critics, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-3, atol=2e-5)  # Adam blows rounding up


def test_the_entropy_bonus_is_part_of_the_step(tmp_path: Path) -> None:
    """Without it the tests of this file would say nothing about it."""
    with_bonus = step(played_in_turns(tmp_path, "group", 24, 1, entropy_coef=0.5))
    without = step(played_in_turns(tmp_path, "group", 24, 1, entropy_coef=0.0))
    assert max(float((with_bonus[name] - without[name]).abs().max()) for name in without) > 1e-3


class Dealt(Awake):
    """Deals its trajectories out to the updates in one order, whatever else has drawn from torch's generator."""

    def _learn_from(self, rollout: Any, kept: Any) -> Any:
        batch = super()._learn_from(rollout, kept)
        torch.manual_seed(0)  # TRL shuffles next
        return batch


@pytest.mark.parametrize(("advantage", "loss_type"), [("group", "grpo"), ("gae", "dapo"), ("gae", "dr_grpo")])
def test_two_updates_on_one_rollout_do_not_depend_on_the_split(tmp_path: Path, advantage: str, loss_type: str) -> None:
    """12 kept rows make two updates of 6 rows, each in one micro-batch or in three."""
    options = {"trainer": Dealt, "loss_type": loss_type, "max_steps": 2, "learning_rate": 0.1, "filter_ratio": 0.5}
    whole = played_in_turns(tmp_path, advantage, 12, 1, steps_per_generation=2, **options)
    split = played_in_turns(tmp_path, advantage, 4, 3, steps_per_generation=6, **options)
    assert_same_step(step(whole), step(split))
    assert split.state.global_step == 2
    deviations = [run.state.log_history[1]["sampling/ratio_deviation_max"] for run in (whole, split)]
    assert deviations[0] > 1e-3  # the second is off-policy
    assert deviations[1] == pytest.approx(deviations[0], rel=1e-3)


def test_each_update_on_a_rollout_is_normalised_by_its_own_rows(tmp_path: Path) -> None:
    """Six micro-batches, three a step: every one is told the tokens and trajectories of its three."""
    seen: list[dict[str, Any]] = []

    class Spy(StarPOTrainer):
        def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            seen.append(inputs)
            return super().policy_loss(model, inputs)

    small_trainer(
        tmp_path,
        lottery(draws=3),
        trainer=Spy,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=3,
        steps_per_generation=6,
        **{**STEP, "max_steps": 2},
    ).train()
    assert len(seen) == 6
    tokens = [int((inputs["completion_mask"] * inputs["tool_mask"]).sum()) for inputs in seen]
    for first in (0, 3):
        for inputs in seen[first : first + 3]:
            assert inputs["step_tokens"].item() == sum(tokens[first : first + 3])
            assert inputs["step_trajectories"].item() == 12
    assert sum(tokens[:3]) != sum(tokens[3:])


class OneRollout(StarPOTrainer):
    """Counts the loss of one rollout only, of several that make a step."""

    counted = 0
    calls = 0

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super().policy_loss(model, inputs) * (self.calls == self.counted)
        self.calls += 1
        return loss


def test_several_rollouts_a_step_weigh_the_same(tmp_path: Path) -> None:
    """The step of two rollouts is the sum of what each of them adds to it."""
    options = {"steps_per_generation": 1, "entropy_coef": 0.0}
    together = step(played_in_turns(tmp_path, "group", 12, 2, **options))
    parts = []
    for counted in (0, 1):
        trainer = played_in_turns(tmp_path, "group", 12, 2, trainer=OneRollout, **options)
        trainer.counted = counted  # type: ignore[attr-defined]
        parts.append(step(trainer))
    assert_same_step(together, {name: parts[0][name] + parts[1][name] for name in together})
    assert all(max(float(value.abs().max()) for value in part.values()) > 1e-3 for part in parts)


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


def test_a_resumed_run_has_the_reference_that_followed_the_policy(tmp_path: Path) -> None:
    """Regression: it began again with the first one, so that the KL term was another."""
    small_model().save_pretrained(tmp_path / "model")
    options: dict[str, Any] = {
        **{"model": str(tmp_path / "model"), "beta": 0.5, "learning_rate": 1e-2, "max_steps": 4},
        **{"sync_ref_model": True, "ref_model_mixup_alpha": 0.5, "ref_model_sync_steps": 1},
        **{"save_strategy": "steps", "save_steps": 2},
    }
    unbroken = small_trainer(tmp_path, lottery(), **options)
    unbroken.train()
    resumed = small_trainer(tmp_path, lottery(), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert timeless(resumed)[2:4] == timeless(unbroken)[2:4]
    assert resumed.ref_model is not None and unbroken.ref_model is not None
    for model, other in ((resumed.model, unbroken.model), (resumed.ref_model, unbroken.ref_model)):
        assert all(map(torch.equal, model.parameters(), other.parameters()))
    with pytest.raises(FileNotFoundError, match="checkpoint-9 is no checkpoint"):
        small_trainer(tmp_path, lottery(), **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-9"))
    (tmp_path / "checkpoint-2" / "synced_reference.safetensors").unlink()
    with pytest.raises(SyncedReferenceError, match="sync_ref_model is True.*cannot be read.*resume from another"):
        small_trainer(tmp_path, lottery(), **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
