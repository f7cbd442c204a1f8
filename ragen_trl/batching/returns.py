"""What reward functions are given, and returns of trajectories by them outside TRL's loop: of those not trained on."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ragen_trl.batching.batch import to_rollout_output
from ragen_trl.trajectory import Trajectory

# What TRL passes besides columns. Episodes that are not trained on log nothing.
_NO_LOG: dict[str, Any] = {"trainer_state": None, "log_extra": lambda *_: None, "log_metric": lambda *_: None}


def reward_columns(trajectories: Sequence[Trajectory], decode: Callable[[list[int]], str]) -> dict[str, list[Any]]:
    """What every reward function is given of trajectories: TRL's names for prompts and completions, and ours.

    ``prompts`` and ``completions`` are conversations of one message; a completion is all after the first prompt.
    """
    played = to_rollout_output(trajectories)
    return {
        **{name: played[name] for name in ("completion_ids", "trajectory", "episode_return")},
        "prompts": [[{"role": "user", "content": row.turns[0].observation}] for row in trajectories],
        "completions": [[{"role": "assistant", "content": decode(ids)}] for ids in played["completion_ids"]],
    }


def raw_returns(
    trajectories: Sequence[Trajectory],
    functions: Sequence[Callable[..., list[float | None]]],
    weights: Sequence[float],
    decode: Callable[[list[int]], str],
    columns: Mapping[str, list[Any]] | None = None,
) -> list[float]:
    """The raw return of each trajectory: the weighted sum of all reward functions, with None and NaN as 0.

    The functions get ``prompts``, ``completions`` (texts by ``decode``), ``completion_ids``, ``seed``, ``trajectory``,
    ``episode_return``, and ``columns``, one value per trajectory.

    Raises:
        ValueError: If a function is a model or a coroutine.
    """
    given: dict[str, list[Any]] = {
        **(columns or {}),
        **reward_columns(trajectories, decode),
        "seed": [row.seed for row in trajectories],
    }
    totals = [0.0] * len(trajectories)
    for function, weight in zip(functions, weights, strict=True):
        if isinstance(function, torch.nn.Module) or inspect.iscoroutinefunction(function):
            raise ValueError(
                f"reward function {function} is a model or a coroutine, which only TRL's own loop can call; wrap it "
                "in a function that returns a list of numbers"
            )
        for row, reward in enumerate(function(**given, **_NO_LOG)):
            totals[row] += 0.0 if reward is None or math.isnan(reward) else weight * float(reward)
    return totals
