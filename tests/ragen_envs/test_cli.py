"""``python -m ragen_envs``: playing by lines, and mistakes."""

from typing import Any

import pytest

from ragen_envs import AgentTurns, FrozenLake
from ragen_envs.__main__ import main
from ragen_envs.baselines import episode_seeds
from ragen_envs.play import Game, play


def corner_lake() -> FrozenLake:
    """Two by two tiles without holes and slips, from the top left to the bottom right."""
    return FrozenLake(size=2, frozen_prob=1.0, is_slippery=False, random_start=False)


def corner_turns(**limits: Any) -> AgentTurns:
    return AgentTurns(corner_lake(), think=False, **limits)


def by_lines(game: Game, *lines: str, seed: int = 0) -> list[str]:
    shown: list[str] = []
    left = iter(lines)
    play(game, lambda: next(left, None), shown.append, seed)
    return shown


def test_replies_show_the_messages_of_agent_turns_to_the_letter() -> None:
    turns = corner_turns()
    first, _ = turns.reset(seed=3, options={"outcome_seed": episode_seeds(3)[0]})
    second = turns.step("<answer>Right</answer>")[0]
    last = turns.step("<answer>Left || Right || Down</answer>")[0]
    shown = by_lines(Game(corner_turns(), "Corner"), "right", "Left||Right || down", seed=3)
    assert shown[0] == f"-- Corner, seed 3\n{first}"
    assert shown[1] == second
    assert shown[2] == f"{last}\n-- success, return 1, 4 actions in 2 turns"


LAKE = "ragen/FrozenLake-v0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play", "Frozenlake"], ["'Frozenlake'", "known: ragen/Bandit-v0"]),
        (["play", LAKE, "--env_kwargs", "{size: 8}"], ["'{size: 8}' is not JSON", '{"size": 8}']),
        (["play", LAKE, "--env_kwargs", '{"sise": 8}'], ["'sise'"]),
        (
            ["play", "ragen/Sokoban-v0", "--env_kwargs", '{"dim_room": [3, 6], "num_boxes": 2}', "--random"],
            ["no solvable room", "dim_room=(3, 6)"],
        ),
        (["baselines", "Blackjack-v1"], ["Blackjack-v1 has no time limit", "--max_actions"]),
    ],
)
def test_a_mistake_is_told_with_the_value(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    try:
        status = main(list(arguments))
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    error = capsys.readouterr().err
    assert status == 2
    assert "error: " in error and "Traceback" not in error
    assert all(word in error for word in words), error
