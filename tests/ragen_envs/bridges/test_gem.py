"""GEM both ways, with its own text games, vectors and wrappers."""

from typing import Any

import pytest

from ragen_envs import AgentTurns
from ragen_envs.bridges import GemText
from tests.support.ragen_envs.toys import answer

gem = pytest.importorskip("gem", reason="make test-bridges runs this one")
GAMES = ("GuessTheNumber-v0-easy", "Mastermind-v0-easy", "Minesweeper-v0-easy", "Game2048-v0-easy", "Sokoban-v0-easy")


def with_suffix(text: str, info: dict[str, Any]) -> str:
    """What GEM's `ObservationWrapper` makes of its last observation; not all games have a suffix."""
    return text.rstrip("\n") + "\n" + info["suffix"] if "suffix" in info else text


def episode(env: Any, seed: int, actions: list[str], **options: Any) -> list[tuple[Any, ...]]:
    """What is seen of an episode: the first observation, then observation, reward and ends until it is over."""
    seen: list[tuple[Any, ...]] = [(env.reset(seed=seed, **options)[0],)]
    for action in actions:
        seen.append(tuple(env.step(action)[:4]))
        if seen[-1][2] or seen[-1][3]:
            break
    return seen


@pytest.mark.parametrize("game", GAMES)
def test_gems_own_games_are_the_same_here(game: str) -> None:
    """Same seed, same actions: the same texts, rewards and ends as in GEM itself."""
    theirs, ours = gem.make(f"game:{game}"), GemText(f"game:{game}")
    for seed in range(3):
        theirs.reset(seed=seed)
        actions = [theirs.sample_random_action() for _ in range(12)]
        begun, info = theirs.reset(seed=seed)
        assert ours.reset(seed=seed)[0] == with_suffix(begun, info)
        expected = []
        for action in actions:
            seen, *rest, info = theirs.step(action)
            expected.append((with_suffix(seen, info), *rest))
            if rest[1] or rest[2]:
                break
        assert episode(ours, seed, actions)[1:] == expected


def test_a_game_in_turns() -> None:
    env = GemText("game:GuessTheNumber-v0-easy")
    turns = AgentTurns(env, max_turns=3, max_actions_per_turn=1)
    message, _ = turns.reset(seed=3)  # the number is 4
    assert "guess the number between 1 and 10 (inclusive) within 4 turns" in message
    message, reward, *_, info = turns.step(answer(r"\boxed{7}"))
    assert (
        "State:\nAt turn 1, you guessed 7, and the target number is lower than 7.\nEnter your next guess.\n" in message
    )
    assert (reward, info["success"], info["env_info"]) == (0.0, False, {"suffix": "Enter your next guess."})
    assert "within 4 turns" in turns.opening  # a context that begins here is told the game
    message, reward, terminated, truncated, info = turns.step(answer(r"\boxed{4}"))
    assert "Congratulations! You guessed the correct number 4 in 2 turns." in message
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert turns.step(answer(r"\boxed{4}"))[1:4] == (0.0, True, False)
