"""Gymnasium's own toys with names for their actions, one more that has other features, and replies to play with."""

from collections.abc import Mapping
from typing import Any

from ragen_envs.calling.tool import write_call
from ragen_envs.discrete_text import TextFromDiscrete

CLIFF = ("up", "right", "down", "left")
LAKE = ("left", "down", "right", "up")


def reached(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    """Success in CliffWalking."""
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


def answer(*actions: str) -> str:
    """A well-formed reply."""
    return f"<think>hm</think><answer>{' || '.join(actions)}</answer>"


def calls(*made: tuple[str, Mapping[str, Any]]) -> str:
    """A reply with calls of tools."""
    return "\n".join(f"<tool_call>{write_call(*call)}</tool_call>" for call in made)
