"""The four hooks of a trainer, each overridden alone as a user would: what they are given, and that it counts."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import AStarPOTrainer, StarPOTrainer, TrajectoryTrainer
from ragen_trl.system import old_names
from tests.support.ragen_trl.astar_runs import STEP, astar, draws, gradient
from tests.support.ragen_trl.equivalence import assert_same_step, step
from tests.support.ragen_trl.trainers import logged, lottery, small_trainer

# No bonus, so that a step is the gradient of what a test names.
PLAIN: dict[str, Any] = {**STEP, "entropy_coef": 0.0}


class Recorder(StarPOTrainer):
    """Keeps the rollouts and the micro-batches that are learnt from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollouts: list[Any] = []
        self.batches: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def select_groups(self, rollout: Any) -> list[int]:
        self.rollouts.append(rollout)
        return super().select_groups(rollout)

    def policy_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        self.batches.append(inputs)
        return super().policy_loss(model, inputs)


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

    class BestOfTwo(Recorder):
        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            again = [type(start)(start.seed, start.outcome_seed + 1, start.sampling_seed + 1) for start in starts]
            played = list(zip(super().rollout(starts, envs, policy), super().rollout(again, envs, policy), strict=True))
            pairs.extend(played)
            return [max(pair, key=lambda trajectory: trajectory.episode_return) for pair in played]

    trainer = small_trainer(tmp_path, lottery(), trainer=BestOfTwo, per_device_train_batch_size=16, **PLAIN)
    trainer.train()
    kept = [max(pair, key=lambda trajectory: trajectory.episode_return) for pair in pairs]
    assert any(kept[i] is pairs[i][1] for i in range(16)) and any(kept[i] is pairs[i][0] for i in range(16))
    (batch,) = trainer.batches
    assert trained(batch) == sorted(map(sampled, kept))
    assert logged(trainer, "return") == [sum(trajectory.episode_return for trajectory in kept) / 16]


def test_groups_of_your_own_choice_are_trained(tmp_path: Path) -> None:
    class Longest(Recorder):
        def select_groups(self, rollout: Any) -> list[int]:
            super().select_groups(rollout)
            turns = [len(summary.turn_rewards) for summary in rollout.summaries]
            totals = [sum(turns[i : i + 4]) for i in range(0, len(turns), 4)]
            return [totals.index(max(totals))]

    trainer = small_trainer(tmp_path, draws(), trainer=Longest, per_device_train_batch_size=32, **PLAIN)
    trainer.train()
    (rollout,) = trainer.rollouts
    groups = [rollout.trajectories[i : i + 4] for i in range(0, 32, 4)]
    longest = max(groups, key=lambda group: sum(len(trajectory.turns) for trajectory in group))
    (batch,) = trainer.batches
    assert trained(batch) == sorted(map(sampled, longest))
    assert logged(trainer, "filter/kept_groups") == [1]
    assert logged(trainer, "filter/trajectories_used") == [4]


def test_no_group_chosen_means_no_update(tmp_path: Path) -> None:
    class Nothing(StarPOTrainer):
        def select_groups(self, rollout: Any) -> list[int]:
            return []

    trainer = small_trainer(tmp_path, lottery(), trainer=Nothing, weight_decay=0.5, **PLAIN)
    assert all(not value.any() for value in step(trainer).values())
    assert logged(trainer, "filter/skipped") == [1.0]


class Returns(Recorder):
    """Plain REINFORCE: the advantage is the return."""

    def advantages(self, rollout: Any) -> torch.Tensor:
        return rollout.returns


def test_your_own_advantages_weigh_the_trajectories(tmp_path: Path) -> None:
    """StarPO's objective at ratio 1: the mean over trajectories of the mean over tokens, each times its advantage."""
    trainer = small_trainer(tmp_path, draws(), trainer=Returns, per_device_train_batch_size=24, **PLAIN)
    moved = step(trainer)
    (rollout,) = trainer.rollouts
    weights = [t.episode_return / len(sampled(t)) / 24 for t in rollout.trajectories]
    assert 0.0 in weights and len(set(weights)) > 2
    assert_same_step(gradient(rollout.trajectories, weights), moved)


def test_advantages_may_be_given_token_by_token(tmp_path: Path) -> None:
    class Spread(Returns):
        def advantages(self, rollout: Any) -> torch.Tensor:
            local = super().advantages(rollout)[rollout.local_indices]
            return local[:, None].expand(-1, rollout.completion_length)

    whole = step(small_trainer(tmp_path / "whole", draws(), trainer=Returns, **PLAIN))
    options: dict[str, Any] = {**PLAIN, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    assert_same_step(whole, step(small_trainer(tmp_path / "tokens", draws(), trainer=Spread, **options)))


@pytest.mark.parametrize("shape", [(9,), (8, 1), (1, 8), (4,), ()])
def test_advantages_of_a_wrong_shape_are_an_error(tmp_path: Path, shape: tuple[int, ...]) -> None:
    class Wrong(StarPOTrainer):
        def advantages(self, rollout: Any) -> torch.Tensor:
            return torch.zeros(shape)

    trainer = small_trainer(tmp_path, lottery(), trainer=Wrong, **PLAIN)
    told = f"advantages has shape {shape}; give one for each of the 8 trajectories, or (8, "
    with pytest.raises(ValueError) as error:
        trainer.train()
    assert str(error.value).startswith(told)


class PerToken(Recorder):
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
    trainer = small_trainer(
        tmp_path,
        lottery(),
        trainer=PerToken,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=count,
        **options,
    )
    moved = step(trainer)
    (rollout,) = trainer.rollouts
    rows = {row for batch in trainer.batches for row in trained(batch)}
    groups = [rollout.trajectories[i : i + 4] for i in range(0, 16, 4)]
    kept = [group for group in groups if sampled(group[0]) in rows]
    assert len(kept) == 2
    tokens = sum(len(sampled(t)) for group in kept for t in group)
    weights = []
    for group in kept:
        total = sum(t.episode_return for t in group)
        weights += [(t.episode_return - (total - t.episode_return) / 3) / tokens for t in group]
    assert_same_step(gradient([t for group in kept for t in group], weights), moved)


def test_the_entropy_is_logged_whatever_the_loss_is(tmp_path: Path) -> None:
    """Regression: with your own loss it was missing in the log, the report and the alerts."""
    options: dict[str, Any] = {**PLAIN, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    trls, own = (
        small_trainer(tmp_path / kind.__name__, lottery(), trainer=kind, **options) for kind in (Recorder, PerToken)
    )
    for trainer in (trls, own):
        trainer.train()
    (entropy,) = logged(own, "entropy")
    assert entropy == pytest.approx(logged(trls, "entropy")[0], rel=1e-5) and entropy > 0.5


def test_an_algorithm_needs_no_more_than_its_advantages(tmp_path: Path) -> None:
    class Reinforce(TrajectoryTrainer):
        _name = "REINFORCE"

        def advantages(self, rollout: Any) -> torch.Tensor:
            return rollout.returns

    own = step(small_trainer(tmp_path / "own", draws(), trainer=Reinforce, **PLAIN))
    assert_same_step(own, step(small_trainer(tmp_path / "starpo", draws(), trainer=Returns, **PLAIN)))


def test_an_algorithm_without_advantages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="advantages"):
        small_trainer(tmp_path, lottery(), trainer=TrajectoryTrainer, **PLAIN)


def test_the_rollout_hook_plays_the_reference_of_astar_po_too(tmp_path: Path) -> None:
    """V* of one way of playing is no baseline for another: both stages go through the hook."""

    class Doubled(AStarPOTrainer):
        calls: list[int] = []

        def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
            self.calls = [*self.calls, len(starts)]
            return super().rollout(starts, envs, policy)

    trainer = astar(tmp_path, trainer=Doubled, max_steps=1)
    trainer.train()
    assert trainer.calls == [8, 8, 8, 8, 8]


def test_hooks_of_astar_po_may_be_overridden_one_by_one(tmp_path: Path) -> None:
    """Its advantages halved and its loss as it was: half the step of an A*-PO whose policy is still its reference."""

    class Halved(AStarPOTrainer):
        def advantages(self, rollout: Any) -> torch.Tensor:
            return super().advantages(rollout) / 2

    whole = step(astar(tmp_path / "whole", draws(), **STEP))
    half = step(astar(tmp_path / "half", draws(), trainer=Halved, **STEP))
    assert_same_step(whole, {name: 2 * value for name, value in half.items()})


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)

    class Former(StarPOTrainer):
        """A trainer written for version 0.1, whose hooks of a checkpoint had other names."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.told: list[tuple[str, str]] = []
            super().__init__(*args, **kwargs)

        def _before_training(self) -> None:
            super()._before_training()
            self.told.append(("before", ""))

        def _save_beside(self, checkpoint: Path) -> None:
            super()._save_beside(checkpoint)
            self.told.append(("save", checkpoint.name))

        def _load_beside(self, checkpoint: Path) -> None:
            super()._load_beside(checkpoint)
            self.told.append(("load", checkpoint.name))


def test_hooks_under_their_former_names_are_called_and_reach_the_present_ones(tmp_path: Path) -> None:
    """They were documented; a subclass that overrides them must not lose its state without a word."""
    options: dict[str, Any] = {"advantage": "gae", "save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    first = small_trainer(tmp_path, lottery(), trainer=Former, **options)
    first.train()
    assert first.told == [("before", ""), ("save", "checkpoint-1")]  # type: ignore[attr-defined]
    assert (tmp_path / "checkpoint-1" / "critic").is_dir()
    second = small_trainer(tmp_path, lottery(), trainer=Former, **{**options, "max_steps": 2})
    second.train(resume_from_checkpoint=True)
    told = [("load", "checkpoint-1"), ("before", ""), ("save", "checkpoint-2")]
    assert second.told == told  # type: ignore[attr-defined]


def test_a_hook_under_its_former_name_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from ragen_trl import StarPOTrainer\n"
        "class A(StarPOTrainer):\n    def _save_beside(self, checkpoint): pass\n"
        "class B(StarPOTrainer):\n    def _save_beside(self, checkpoint): pass\n"
        "class C(StarPOTrainer):\n    def save_algorithm_state(self, folder): pass\n"
    )
    monkeypatch.setattr(old_names, "_warned", set())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(compile(code, "<script>", "exec"), {"__name__": "script"})
    (one,) = [each for each in told if "is now" in str(each.message)]
    assert str(one.message) == "_save_beside is now save_algorithm_state"
    assert (one.filename, one.lineno) == ("<script>", 2)  # the class that has the old name
