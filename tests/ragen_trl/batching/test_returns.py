"""Scoring outside TRL's loop gives what TRL's own loop gives."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.batching.returns import raw_returns
from ragen_trl.trainers.rollout import environment_return
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import lottery, made_up, small_trainer

PLAYED = [made_up((2, 3, 0.5), (1, 1, 1.0), seed=3), made_up((1, 2, -0.1), seed=4)]


def tokens(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    return [float(len(ids)) for ids in completion_ids]


def only_long(trajectory: list[Trajectory], **_: Any) -> list[float | None]:
    return [1.0 if len(one.turns) > 1 else None for one in trajectory]


def test_the_weighted_sum_by_hand() -> None:
    """Completions begin after the first prompt: 5 and 2 tokens. What a function does not give counts as nothing."""
    scores = raw_returns(PLAYED, [environment_return, tokens, only_long], [2.0, 0.1, -1.0], str)
    assert scores == pytest.approx([2 * 1.5 + 0.5 - 1.0, 2 * -0.1 + 0.2])


def test_functions_see_what_trl_shows_them() -> None:
    seen: dict[str, Any] = {}

    def spy(**columns: Any) -> list[float | None]:
        seen.update(columns)
        return [0.0, 0.0]

    raw_returns(PLAYED, [spy], [1.0], str)
    assert seen["trajectory"] == PLAYED
    assert seen["episode_return"] == [1.5, -0.1]
    assert seen["seed"] == [3, 4]
    assert seen["prompts"] == [[{"role": "user", "content": "?"}]] * 2
    assert seen["completions"] == [[{"role": "assistant", "content": str(ids)}] for ids in seen["completion_ids"]]


def test_functions_get_the_same_columns_in_both_stages(tmp_path: Path) -> None:
    """Regression: stage 1 of A*-PO also passed prompt_ids, logprobs and env_mask."""
    seen: list[list[str]] = []

    def spy(**columns: Any) -> list[float | None]:
        seen.append(sorted(columns))
        return [0.0] * len(columns["completions"])

    astar(tmp_path, reward_funcs=[spy], max_steps=1).train()
    assert len(seen) > 1 and all(names == seen[-1] for names in seen)


async def later(**_: Any) -> list[float | None]:
    return [0.0, 0.0]


@pytest.mark.parametrize("function", [later, torch.nn.Linear(1, 1)])
def test_what_only_trl_can_call_is_refused(function: Any) -> None:
    with pytest.raises(ValueError, match="only TRL's own loop can call; wrap it"):
        raw_returns(PLAYED, [function], [1.0], str)


def test_one_weight_for_each_function() -> None:
    with pytest.raises(ValueError, match="shorter|longer"):
        raw_returns(PLAYED, [environment_return, tokens], [1.0], str)


def test_a_trainers_trajectories_get_the_scores_that_trl_gave_them(tmp_path: Path) -> None:
    class Spy(StarPOTrainer):
        def advantages(self, rollout: Any) -> torch.Tensor:
            functions = [environment_return, tokens, only_long]
            scores = raw_returns(rollout.trajectories, functions, rollout.weights.tolist(), str)
            found.append((scores, rollout.returns.tolist()))
            return super().advantages(rollout)

    found: list[tuple[list[float], list[float]]] = []
    small_trainer(
        tmp_path,
        lottery(draws=3),
        trainer=Spy,
        reward_funcs=[tokens, only_long],
        reward_weights=[1.0, 0.25, 2.0],
        max_steps=1,
    ).train()
    ((scores, returns),) = found
    assert scores == pytest.approx(returns)
    assert len(set(returns)) > 2
