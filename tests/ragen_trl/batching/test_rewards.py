"""Extra rewards: values by hand, from episodes whose replies and lengths are written down."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.batching.rewards import consistency_reward, length_reward
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import lottery, made_up, small_trainer


def turn(reply: str = "", actions: tuple[str, ...] = (), readable: bool = True, tokens: int = 1) -> Turn:
    info = {"actions": actions, "format_is_valid": readable}
    return Turn((1,), tuple(range(tokens)), (), observation="?", reply=reply, reward=0.0, info=info)


def episode(*turns: Turn) -> Trajectory:
    return Trajectory(turns, seed=0, terminated=True)


def said(thought: str, action: str) -> Turn:
    return turn(f"<think>{thought}</think><answer>{action}</answer>", (action,))


def test_consistency_is_a_mean_over_turns() -> None:
    buying = said("I will buy it now.", "click[Buy Now]")  # 0.2
    named = said("Red shoes it is.", "search[red shoes]")  # all words named, no word for searching: 0.75 · 0.2
    silent = said("Hm.", "search[red shoes]")  # 0
    rewards = consistency_reward(trajectory=[episode(buying, named), episode(named, silent, silent)])
    assert rewards == pytest.approx([0.175, 0.05], abs=1e-12)
    assert consistency_reward(trajectory=[episode(*[buying] * 9)]) == pytest.approx([0.2])  # length earns nothing


@pytest.mark.parametrize(
    ("tokens", "charge"), [(0, 0.0), (100, 0.0), (101, -0.02), (150, -1.0), (4000, -1.0)]
)
def test_length_is_free_up_to_the_target_then_charged_in_proportion(tokens: int, charge: float) -> None:
    assert length_reward(100, 50)(trajectory=[episode(turn(tokens=tokens))]) == pytest.approx([charge], abs=1e-12)


# Scoring outside TRL's loop gives what TRL's own loop gives

PLAYED = [made_up((2, 3, 0.5), (1, 1, 1.0), seed=3), made_up((1, 2, -0.1), seed=4)]


def tokens(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    return [float(len(ids)) for ids in completion_ids]


def only_long(trajectory: list[Trajectory], **_: Any) -> list[float | None]:
    return [1.0 if len(one.turns) > 1 else None for one in trajectory]


def test_returns_of_a_rollout_are_the_weighted_sum_of_all_functions(tmp_path: Path) -> None:
    """What a function does not give counts as nothing."""

    class Spy(StarPOTrainer):
        def advantages(self, rollout: Any) -> torch.Tensor:
            given = {"trajectory": rollout.trajectories}
            given["completion_ids"] = [one.token_ids[len(one.turns[0].prompt_ids) :] for one in rollout.trajectories]
            columns = [[one.episode_return for one in rollout.trajectories], tokens(**given), only_long(**given)]
            for scores, paid in zip(zip(*columns, strict=True), rollout.returns.tolist(), strict=True):
                expected = sum(weight * (score or 0.0) for weight, score in zip([1.0, 0.25, 2.0], scores, strict=True))
                assert paid == pytest.approx(expected)
            found.extend(rollout.returns.tolist())
            return super().advantages(rollout)

    found: list[float] = []
    options: dict[str, Any] = {"reward_funcs": [tokens, only_long], "reward_weights": [1.0, 0.25, 2.0], "max_steps": 1}
    small_trainer(tmp_path, lottery(draws=3), trainer=Spy, **options).train()
    assert len(set(found)) > 2
