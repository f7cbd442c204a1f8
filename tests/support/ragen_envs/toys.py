"""Gymnasium's own toys with names for their actions, one more that has other features, and replies to play with."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ragen_envs.calling.tool import write_call
from ragen_envs.discrete_text import TextFromDiscrete

TAXI = ("south", "north", "east", "west", "pickup", "dropoff")
CLIFF = ("up", "right", "down", "left")
LAKE = ("left", "down", "right", "up")


def reached(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    """Success in Taxi and CliffWalking."""
    return terminated


def won(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    """Success in Blackjack and FrozenLake."""
    return reward > 0


def hand(observation: tuple[int, int, int]) -> str:
    """Blackjack in words."""
    total, dealer, ace = observation
    return f"You have {total}{' with an ace' if ace else ''}. The dealer shows {dealer}."


def toy(env: Any, actions: tuple[str, ...], **arguments: Any) -> TextFromDiscrete:
    """The toy with defaults for what a test does not care about."""
    return TextFromDiscrete(env, actions, **{"instruction": "Play.", "success": reached, **arguments})


def blackjack(**arguments: Any) -> TextFromDiscrete:
    """Blackjack, described by `hand`."""
    return toy("Blackjack-v1", ("stick", "hit"), describe=hand, success=won, **arguments)


def answer(*actions: str) -> str:
    """A well-formed reply."""
    return f"<think>hm</think><answer>{' || '.join(actions)}</answer>"


def calls(*made: tuple[str, Mapping[str, Any]]) -> str:
    """A reply with calls of tools."""
    return "\n".join(f"<tool_call>{write_call(*call)}</tool_call>" for call in made)


class Switch(gymnasium.Env[Any, Any]):
    """Adds up its actions, which are 5, 6 and 7; it changes its observation in place and shows it in colour."""

    metadata = {"render_modes": ["ansi"]}

    def __init__(self, render_mode: str | None = "ansi") -> None:
        self.action_space = Discrete(3, start=5)
        self.observation_space = Box(0, 1000, (1,), np.int64)
        self.render_mode = render_mode
        self.total = np.zeros(1, dtype=np.int64)
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.total[:] = 0
        return self.total, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert type(action) is int
        self.total += action - 5
        return self.total, float(action), False, False, {}

    def render(self) -> str:
        return f"\n\x1b[32m{self.total[0]}\x1b[0m\n"

    def close(self) -> None:
        self.closed = True
