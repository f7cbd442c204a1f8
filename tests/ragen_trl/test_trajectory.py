"""Trajectory: masks, spans and returns derived from the stored structure; more masks are in the vectors."""

import dataclasses
from typing import Any

import pytest

from ragen_trl.monitoring.mutual_information import thought_pair
from ragen_trl.trajectory import Trajectory, Turn


def turn(prompt: int = 2, reply: int = 1, **fields: Any) -> Turn:
    """A turn of so many environment and sampled tokens."""
    defaults: dict[str, Any] = {"logprobs": (), "observation": "", "reply": "", "reward": 0.0}
    return Turn(tuple(range(prompt)), tuple(range(reply)), **{**defaults, **fields})


def test_turns_without_reward_stay_turns() -> None:
    """RAGEN infers the ends of turns from non-zero rewards, and merges or loses turns that earned nothing."""
    turns = tuple(turn(1, 2, reward=reward) for reward in (0.0, 1.0, -0.1))
    trajectory = Trajectory(turns, seed=0)
    assert trajectory.turn_ids == (-1, 0, 0, -1, 1, 1, -1, 2, 2)
    assert trajectory.episode_return == 0.9


def test_a_turn_may_have_no_reply_tokens() -> None:
    trajectory = Trajectory((turn(2, 0), turn(1, 1)), seed=0)
    assert trajectory.action_mask == (0, 0, 0, 1)
    assert trajectory.turn_ids == (-1, -1, -1, 1)


@pytest.mark.parametrize(
    ("infos", "success"),
    [
        ([{"success": True}], True),
        ([{"success": True}, {"success": False}], False),
        ([{}], False),
        ([{}, {"success": 1}], True),
    ],
)
def test_success_is_what_the_last_turn_says(infos: list[dict[str, Any]], success: bool) -> None:
    assert Trajectory(tuple(turn(info=info) for info in infos), seed=0).success is success


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ("<think>up</think><answer>Up</answer>", "up"),
        ("<think>not </think> yet</think> <answer>Up</answer>", "not </think> yet"),  # as environments read it
        ("<think>call it</think> <tool_call>{}</tool_call>", "call it"),
        ("the prompt opened it</think><answer>Up</answer>", "the prompt opened it"),
        ('x</think>\n<tool_call>{"a": "</think><answer>"}</tool_call>', "x"),
        ("<think>cut", "cut"),
        ("<answer>Up</answer>", ""),
    ],
)
def test_a_thought_ends_where_the_first_answer_follows(reply: str, thought: str) -> None:
    """Regression: a reward and a measure of the same thought ended at different places."""
    assert dataclasses.replace(turn(), reply=reply).thought == thought
    measured = thought_pair((), tuple(map(ord, reply)), chr).thought  # a token a character
    assert (thought or reply) == "".join(map(chr, measured))  # without a thought, the whole reply is measured
