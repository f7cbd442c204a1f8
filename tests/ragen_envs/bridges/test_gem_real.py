"""GEM both ways, with its own text games, vectors and wrappers."""

import functools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns
from ragen_envs.bridges import GemEnvironment, GemText
from tests.support.ragen_envs.bridging import RULES, small_turns
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


def test_the_board_is_shown_and_the_task_is_not_an_old_board() -> None:
    env = GemText("game:TowerofHanoi-v0-easy")
    begun = env.reset(seed=0)[0]
    board = "Here is the current state of the tower of hanoi:\n"
    assert begun.count(board) == 1 and board not in env.task and env.task.startswith("You are playing Tower of Hanoi")
    moved = env.step(r"\boxed{A C}")[0]
    assert moved.count(board) == 1 and moved != begun


def test_a_mistake_that_ends_a_game_is_no_success_and_gem_judges_it() -> None:
    env = GemText("game:GuessTheNumber-v0-easy")
    env.reset(seed=3)
    observation, reward, terminated, truncated, info = env.step("four")
    assert observation.startswith("At turn 1, you did not provide a valid guess.\n") and terminated and not truncated
    assert reward == gem.make("game:GuessTheNumber-v0-easy").step("four")[1] and not info["success"]


def test_games_leave_the_programs_randomness_alone() -> None:
    def drawn() -> tuple[float, float]:
        return random.random(), float(np.random.random())

    random.seed(1)
    np.random.seed(1)
    expected = [drawn() for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    env, seen = GemText("game:Game2048-v0-easy"), []
    for _ in range(3):
        seen.append(drawn())
        env.reset(seed=0)
        env.step(r"\boxed{up}")
    assert seen == expected


def test_games_side_by_side_do_not_disturb_each_other() -> None:
    """Tiles of 2048 are drawn after the start, from the global generator."""
    moves = [rf"\boxed{{{way}}}" for way in ("left", "down", "right", "up") * 4]
    alone = [episode(GemText("game:Game2048-v0-easy"), seed, moves) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        together = threads.map(lambda seed: episode(GemText("game:Game2048-v0-easy"), seed, moves), range(4))
        assert list(together) == alone


def test_an_outcome_seed_keeps_the_start() -> None:
    env = GemText("game:Game2048-v0-easy")
    moves = [rf"\boxed{{{way}}}" for way in ("left", "down", "right", "up")]
    played = [episode(env, 5, moves, options={"outcome_seed": outcome}) for outcome in (0, 0, 1, 2)]
    assert len({each[0] for each in played}) == 1
    assert played[0] == played[1] and len({str(each) for each in played}) == 3


def test_gymnasiums_checker_passes() -> None:
    check_env(GemText("game:Game2048-v0-easy"), skip_render_check=True)


def test_wrappers_of_gem_and_functions_are_taken() -> None:
    from gem.wrappers.observation_wrapper import ObservationWrapper

    def wrapped() -> Any:
        made = gem.make("game:GuessTheNumber-v0-easy")
        return ObservationWrapper(made, include_action=True, include_chat_template=False)

    env = GemText(wrapped)
    env.reset(seed=3)
    seen = env.step(r"\boxed{7}")[0]
    assert "\n\\boxed{7}\nAt turn 1, you guessed 7" in seen and seen.count("Enter your next guess.") == 1


def test_what_cannot_be_played_is_named() -> None:
    with pytest.raises(ValueError, match="game:Nope not found"):
        GemText("game:Nope")
    with pytest.raises(ValueError, match="env is a function; set them inside the function"):
        GemText(lambda: gem.make("game:Game2048-v0-easy"), env_kwargs={"max_turns": 3})

    class Pictures(gem.Env):
        def reset(self, seed: int | None = None) -> Any:
            return np.zeros(3), {}

        def step(self, action: Any) -> Any:
            raise AssertionError

    with pytest.raises(TypeError, match=r"Pictures shows .*, a ndarray, and not text; only environments of text"):
        GemText(Pictures).reset(seed=0)


def test_a_real_gem_makes_vectors_and_wraps() -> None:
    from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
    from gem.wrappers.observation_wrapper import ObservationWrapper

    gem.register("ragen:SmallLake", GemEnvironment, env=small_turns)
    concatenate = functools.partial(ObservationWrapper, include_chat_template=False)
    for async_mode in (False, True):
        wrappers = [concatenate, EpisodeTrackingWrapper]
        envs = gem.make_vec(["ragen:SmallLake"] * 2, wrappers=wrappers, async_mode=async_mode)
        messages, _ = envs.reset(seed=0)
        assert all(message.startswith(RULES) for message in messages)
        _, rewards, terminated, truncated, infos = envs.step([answer("Right", "Down"), "nonsense"])
        assert rewards.tolist() == [1.0, -0.1]
        assert terminated.tolist() == [True, False] and truncated.tolist() == [False, True]
        assert [info["step_counter"] for info in infos] == [0, 0]  # GEM resets in the same step
