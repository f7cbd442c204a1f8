"""Extra reward functions in a run: what they see, how they are added up, and what they leave alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import lottery, small_trainer


class Spy(StarPOTrainer):
    """Keeps what is learnt from, its advantages, and the micro-batches they end in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.learnt: list[RolloutBatch] = []
        self.credited: list[torch.Tensor] = []
        self.batches: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        self.learnt.append(rollout)
        self.credited.append(super().advantages(rollout))
        return self.credited[-1]

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.batches.append(inputs)
        return super().policy_loss(model, inputs)


def run(folder: Path, env: Any = None, **options: Any) -> Any:
    trainer = small_trainer(folder, env or lottery(), trainer=Spy, **{"max_steps": 1, **options})
    trainer.train()
    return trainer


def by_seed(trajectory: list[Trajectory], **_: Any) -> list[float | None]:
    """Something for outcomes of odd seeds, nothing at all for the others."""
    return [0.25 * (one.outcome_seed % 7) if one.outcome_seed % 2 else None for one in trajectory]  # type: ignore[operator]


def constant(trajectory: list[Trajectory], **_: Any) -> list[float]:
    return [100.0] * len(trajectory)


def environment_and_extra(trajectories: list[Trajectory]) -> tuple[torch.Tensor, torch.Tensor]:
    extra = [given or 0.0 for given in by_seed(trajectories)]
    return torch.tensor([one.episode_return for one in trajectories]), torch.tensor(extra)


def test_rewards_are_added_up_and_then_normalised(tmp_path: Path) -> None:
    """2 · return + 3 · extra, normalised within groups; a None adds nothing."""
    trainer = run(tmp_path, reward_funcs=[by_seed], reward_weights=[2.0, 3.0])
    (rollout,) = trainer.learnt
    environment, extra = environment_and_extra(rollout.trajectories)
    assert extra.count_nonzero() > 0
    assert None in by_seed(rollout.trajectories)
    torch.testing.assert_close(rollout.returns, 2 * environment + 3 * extra)
    torch.testing.assert_close(trainer.credited[0], group_advantages(2 * environment + 3 * extra, 4))
    (batch,) = trainer.batches
    torch.testing.assert_close(batch["advantages"].sort().values, trainer.credited[0].sort().values)


def test_each_function_may_be_normalised_before_they_are_added_up(tmp_path: Path) -> None:
    """A function that gives all the same adds nothing then, and the scale of another does not matter."""
    options: dict[str, Any] = {"multi_objective_aggregation": "normalize_then_sum"}
    trainer = run(tmp_path, reward_funcs=[constant], reward_weights=[2.0, 3.0], **options)
    (rollout,) = trainer.learnt
    normalised = group_advantages(torch.tensor([one.episode_return for one in rollout.trajectories]), 4)
    expected = (normalised - normalised.mean()) / normalised.std()
    assert expected.abs().max() > 0.5
    torch.testing.assert_close(trainer.credited[0], expected, rtol=1e-3, atol=1e-3)
    dear = run(tmp_path, lottery(win=1000.0), reward_funcs=[constant], reward_weights=[2.0, 3.0], **options)
    torch.testing.assert_close(dear.credited[0], trainer.credited[0], rtol=1e-3, atol=1e-3)


def test_success_and_the_return_are_the_environments(tmp_path: Path) -> None:
    plain = run(tmp_path).state.log_history[0]
    rewarded = run(tmp_path, reward_funcs=[constant]).state.log_history[0]
    for key in ("success", "return", "rewards/environment_return/mean", "turns"):
        assert rewarded[key] == plain[key], key
    assert rewarded["reward"] == pytest.approx(plain["reward"] + 100)
    assert rewarded["rewards/constant/mean"] == 100


def test_a_constant_reward_changes_nothing(tmp_path: Path) -> None:
    plain, rewarded = run(tmp_path), run(tmp_path, reward_funcs=[constant])
    torch.testing.assert_close(rewarded.credited[0], plain.credited[0], rtol=1e-4, atol=1e-4)


def test_the_filter_looks_at_all_rewards(tmp_path: Path) -> None:
    """The lottery pays nothing, so only the extra reward tells groups apart."""
    options: dict[str, Any] = {"per_device_train_batch_size": 16, "filter_ratio": 0.25}

    def one_group(trajectory: list[Trajectory], **_: Any) -> list[float]:
        seed = sorted({one.seed for one in trajectory})[2]
        return [float(place % 2) if one.seed == seed else 0.0 for place, one in enumerate(trajectory)]

    trainer = run(tmp_path, lottery(win=0.0), reward_funcs=[one_group], **options)
    (rollout,) = trainer.learnt
    assert len({one.seed for one in rollout.trajectories}) == 1
    assert rollout.returns.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert trainer.state.log_history[0]["filter/kept_groups"] == 1


def test_functions_see_whole_trajectories_and_the_columns_of_trl(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def spy(**columns: Any) -> list[float]:
        seen.append(columns)
        return [0.0] * len(columns["trajectory"])

    trainer = run(tmp_path, lottery(draws=3), reward_funcs=[spy])
    (columns,) = seen
    played = trainer.learnt[0].trajectories
    assert columns["trajectory"] == played
    assert columns["episode_return"] == [one.episode_return for one in played]
    assert columns["seed"] == [one.seed for one in played]
    assert columns["prompts"][0] == [{"role": "user", "content": played[0].turns[0].observation}]
    assert {"completions", "completion_ids", "trainer_state", "log_metric", "log_extra"} <= columns.keys()


@pytest.mark.parametrize("advantage", ["gae", "turn_gae", "gigpo", "mt_grpo"])
def test_turns_are_credited_with_extra_rewards_too(tmp_path: Path, advantage: str) -> None:
    """The lottery pays nothing: without the extra reward there would be nothing to credit."""
    trainer = run(tmp_path, lottery(win=0.0, draws=3), reward_funcs=[by_seed], advantage=advantage)
    (rollout,) = trainer.learnt
    rewards, mask = rollout.turn_rewards()
    for row, one in enumerate(rollout.trajectories):
        extra = by_seed([one])[0] or 0.0
        assert rewards[row, : len(one.turns)].tolist() == pytest.approx([0.0] * (len(one.turns) - 1) + [extra])
        assert mask[row].sum() == len(one.turns)
    assert trainer.credited[0].abs().max() > 0.1


def test_rewards_of_one_function_can_be_the_only_ones(tmp_path: Path) -> None:
    trainer = run(tmp_path, reward_funcs=[by_seed], reward_weights=[0.0, 1.0])
    (rollout,) = trainer.learnt
    _, extra = environment_and_extra(rollout.trajectories)
    torch.testing.assert_close(rollout.returns, extra)
    assert trainer.state.log_history[0]["success"] == sum(one.success for one in rollout.trajectories) / 8
