"""The four hooks of a trainer, each overridden alone as a user would: what they are given, and that it counts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.errors import UserError
from tests.support.ragen_trl.astar_runs import draws, gradient
from tests.support.ragen_trl.equivalence import STEP, assert_same_step, step
from tests.support.ragen_trl.trainers import Spy, logged, lottery, parameters, small_trainer

# No bonus, so that a step is the gradient of what a test names.
PLAIN: dict[str, Any] = {**STEP, "entropy_coef": 0.0}


def sampled(trajectory: Any) -> tuple[int, ...]:
    """The sampled tokens of a trajectory."""
    return tuple(token for turn in trajectory.turns for token in turn.reply_ids)


def trained(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """The trained tokens of each row of a batch, sorted; filler rows left out."""
    masks = batch["completion_mask"] * batch["tool_mask"]
    rows = [tuple(ids[mask.bool()].tolist()) for ids, mask in zip(batch["completion_ids"], masks, strict=True)]
    return sorted(row for row in rows if row)


def test_your_own_rollout_is_what_is_trained(tmp_path: Path) -> None:
    """Best of two: every episode is played twice, with another outcome seed, and the better one kept."""
    pairs: list[tuple[Any, Any]] = []

    class BestOfTwo(Spy):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            again = [type(start)(start.seed, start.outcome_seed + 1, start.sampling_seed + 1) for start in starts]
            played = list(zip(super().rollout(starts, envs, policy), super().rollout(again, envs, policy), strict=True))
            pairs.extend(played)
            return [max(pair, key=lambda trajectory: trajectory.episode_return) for pair in played]

    trainer: Any = small_trainer(tmp_path, lottery(), trainer=BestOfTwo, per_device_train_batch_size=16, **PLAIN)
    trainer.train()
    kept = [max(pair, key=lambda trajectory: trajectory.episode_return) for pair in pairs]
    assert any(kept[i] is pairs[i][1] for i in range(16)) and any(kept[i] is pairs[i][0] for i in range(16))
    (batch,) = trainer.batches
    assert trained(batch) == sorted(map(sampled, kept))
    assert logged(trainer, "return") == [sum(trajectory.episode_return for trajectory in kept) / 16]


def test_groups_of_your_own_choice_are_trained(tmp_path: Path) -> None:
    class Longest(Spy):
        def select_groups(self, rollout: Any) -> list[int]:
            super().select_groups(rollout)
            turns = [len(summary.turn_rewards) for summary in rollout.summaries]
            totals = [sum(turns[i : i + 4]) for i in range(0, len(turns), 4)]
            return [totals.index(max(totals))]

    trainer: Any = small_trainer(tmp_path, draws(), trainer=Longest, per_device_train_batch_size=32, **PLAIN)
    trainer.train()
    longest = max(trainer.groups(), key=lambda group: sum(len(trajectory.turns) for trajectory in group))
    (batch,) = trainer.batches
    assert trained(batch) == sorted(map(sampled, longest))
    assert logged(trainer, "filter/kept_groups") == [1]
    assert logged(trainer, "filter/trajectories_used") == [4]


class Returns(Spy):
    """Plain REINFORCE: the advantage is the return."""

    def advantages(self, rollout: Any) -> torch.Tensor:
        return rollout.returns


def test_your_own_advantages_weigh_the_trajectories(tmp_path: Path) -> None:
    """StarPO's objective at ratio 1: the mean over trajectories of the mean over tokens, each times its advantage."""
    trainer: Any = small_trainer(tmp_path, draws(), trainer=Returns, per_device_train_batch_size=24, **PLAIN)
    moved = step(trainer)
    weights = [t.episode_return / len(sampled(t)) / 24 for t in trainer.played]
    assert 0.0 in weights and len(set(weights)) > 2
    assert_same_step(gradient(trainer.played, weights), moved)


def test_advantages_may_be_given_token_by_token(tmp_path: Path) -> None:
    class Spread(Returns):
        def advantages(self, rollout: Any) -> torch.Tensor:
            local = super().advantages(rollout)[rollout.local_indices]
            return local[:, None].expand(-1, rollout.completion_length)

    whole = step(small_trainer(tmp_path / "whole", draws(), trainer=Returns, **PLAIN))
    options: dict[str, Any] = {**PLAIN, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    assert_same_step(whole, step(small_trainer(tmp_path / "tokens", draws(), trainer=Spread, **options)))


class PerToken(Spy):
    """A user's own loss: the mean log-likelihood of all sampled tokens, times the advantage."""

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        self.batches.append(inputs)
        logprobs, _ = self.score(model, inputs)
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        return -(logprobs * mask * inputs["advantages"][:, None]).sum() / inputs["step_tokens"]


@pytest.mark.parametrize(("size", "count"), [(16, 1), (2, 8)])
def test_your_own_loss_is_added_up_over_micro_batches(tmp_path: Path, size: int, count: int) -> None:
    """Two of four groups are kept: their 8 trajectories have different numbers of tokens in each micro-batch."""
    options: dict[str, Any] = {"filter_ratio": 0.5, "baseline": "leave_one_out", "scale_rewards": "none", **PLAIN}
    trainer: Any = small_trainer(
        tmp_path,
        lottery(),
        trainer=PerToken,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=count,
        **options,
    )
    moved = step(trainer)
    rows = {row for batch in trainer.batches for row in trained(batch)}
    kept = [group for group in trainer.groups() if sampled(group[0]) in rows]
    assert len(kept) == 2
    tokens = sum(len(sampled(t)) for group in kept for t in group)
    weights = []
    for group in kept:
        total = sum(t.episode_return for t in group)
        weights += [(t.episode_return - (total - t.episode_return) / 3) / tokens for t in group]
    assert_same_step(gradient([t for group in kept for t in group], weights), moved)


# Mistakes


class Wrong(StarPOTrainer):
    """A first try at a subclass."""

    wrong = ""

    def rollout(self, *args: Any) -> Any:
        played = super().rollout(*args)
        return played[::-1] if self.wrong == "rollout" else played

    def select_groups(self, rollout: Any) -> Any:
        return [0, 99] if self.wrong == "select_groups" else super().select_groups(rollout)

    def advantages(self, rollout: Any) -> Any:
        found = super().advantages(rollout)
        return {"advantages": found * float("nan"), "advantages of a shape": found[None]}.get(self.wrong, found)

    def policy_loss(self, model: Any, inputs: Any) -> Any:
        if self.wrong == "policy_loss of no model":
            return torch.ones((), requires_grad=True)
        loss = super().policy_loss(model, inputs)
        return loss[None] if self.wrong == "policy_loss" else loss


WRONG = ["rollout", "select_groups", "advantages", "advantages of a shape", "policy_loss", "policy_loss of no model"]


@pytest.mark.parametrize("hook", WRONG)
def test_a_trainer_names_the_hook_that_is_wrong_before_a_weight_moves(hook: str, tmp_path: Path) -> None:
    """Returns in another order than the starts mixed groups."""
    trainer: Any = small_trainer(tmp_path, lottery(), trainer=Wrong, max_steps=1)
    trainer.wrong = hook
    before = parameters(trainer)
    with pytest.raises(UserError, match=f"^{hook.partition(' of ')[0]} "):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
