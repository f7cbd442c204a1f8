"""What a judge returns: done with success, over without it, and what cannot be either."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, ToolEnv, ToolTurns, random_action
from ragen_envs.baselines import measure
from ragen_envs.calling.tool import write_answer, write_call


class Hunt(ToolEnv):
    """Guess a number from 1 to 4; a wrong guess ends the game."""

    idle_info: ClassVar[Mapping[str, Any]] = {**ToolEnv.idle_info, "guessed": 0}
    purpose = "Guess the number."

    @property
    def tools(self) -> Sequence[Callable[..., Any]]:
        return (self.guess, self.look)

    def guess(self, number: int) -> str:
        """Guess.

        Args:
            number: From 1 to 4.
        """
        self.guessed = number
        return "right" if number == self.number else "wrong"

    def look(self) -> str:
        """Look."""
        return "even" if self.number % 2 == 0 else "odd"

    def _start(self, options: Mapping[str, Any]) -> str:
        self.number, self.guessed = int(self.np_random.integers(1, 5)), 0
        return "Guess it in one."

    def _judge(self) -> Any:
        success = self.guessed == self.number
        return float(success), self.guessed > 0, {"success": success, "guessed": self.guessed}

    def _answered(self, text: str) -> Any:
        success = text == str(self.number)
        return float(success), False, {"success": success}


class Judged(Hunt):
    """The same with a judge that returns what it is given."""

    verdict: Any = (0.0, False)

    def _judge(self) -> Any:
        return self.verdict

    def _answered(self, text: str) -> Any:
        return self.verdict


@random_action.register
def _(env: Hunt, rng: np.random.Generator) -> str:
    return write_call("guess", {"number": int(rng.integers(1, 5))})


gymnasium.register("test/Hunt-v0", Hunt, max_episode_steps=4)


def step(env: Hunt, action: str) -> tuple[float, bool, bool, Any]:
    """Reward, terminated, success and the guess that the info tells."""
    _, reward, terminated, truncated, info = env.step(action)
    assert not truncated
    return reward, terminated, info["success"], info["guessed"]


def test_an_episode_ends_in_failure() -> None:
    """Regression: an end was always a success."""
    env = Hunt()
    env.reset(seed=0)
    assert step(env, write_call("look", {})) == (0.0, False, False, 0)
    assert step(env, write_call("guess", {"number": env.number % 4 + 1})) == (0.0, True, False, env.number % 4 + 1)
    assert step(env, write_call("guess", {"number": env.number})) == (0.0, True, False, 0)  # it is over
    env.reset(seed=0)
    assert step(env, write_call("guess", {"number": env.number})) == (1.0, True, True, env.number)


@pytest.mark.parametrize("turns", [AgentTurns, ToolTurns])
def test_turns_end_in_failure(turns: Any) -> None:
    env = turns(Hunt())
    env.reset(seed=0)
    wrong = write_call("guess", {"number": env.unwrapped.number % 4 + 1})
    text, reward, terminated, truncated, info = env.step(env.format_reply([wrong], "so"))
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False) and "wrong" in text


def test_an_answer_ends_the_episode_whatever_the_judge_says_of_it() -> None:
    env = ToolTurns(Hunt())
    for answer, success in (("0", False), (None, True)):
        env.reset(seed=0)
        _, reward, terminated, _, info = env.step(answer or str(env.game.number))
        assert (reward, terminated, info["success"]) == (float(success), True, success)


def test_baselines_count_lost_games_as_lost() -> None:
    row = measure("test/Hunt-v0", "random", episodes=64)
    assert row.success == row.mean_return and 8 <= row.successes <= 24 and row.mean_length == 1.0


@pytest.mark.parametrize("verdict", [(1.0, True), (np.float64(1.0), np.True_)])
def test_two_values_are_reward_and_done_which_is_success(verdict: Any) -> None:
    env = Judged()
    env.reset(seed=0)
    assert step(env, write_call("look", {})) == (0.0, False, False, 0)
    env.verdict = verdict
    assert step(env, write_call("look", {})) == (1.0, True, True, 0)


@pytest.mark.parametrize("action", [write_call("look", {}), write_answer("none")])
def test_done_without_a_reward_is_success_with_a_warning(action: str) -> None:
    env = Judged()
    env.reset(seed=0)
    env.verdict = (0.0, True)
    with pytest.warns(UserWarning, match=r"returned \(0.0, True\), which counts as success.*\{'success': False\}"):
        assert step(env, action) == (0.0, True, True, 0)
    env.reset(seed=0)
    env.verdict = (0.0, True, {"success": True})
    assert step(env, action) == (0.0, True, True, 0)


@pytest.mark.parametrize("verdict", [1.0, None, (1.0,), (1.0, True, {}), (1.0, True, True), ("much", True), "ab"])
@pytest.mark.parametrize(("judge", "action"), [("_judge", write_call("look", {})), ("_answered", write_answer("so"))])
def test_what_a_judge_should_return_is_said(verdict: Any, judge: str, action: str) -> None:
    env = Judged()
    env.reset(seed=0)
    env.verdict = verdict
    wanted = r"it returns \(reward, done\) or \(reward, terminated, info with 'success'\)"
    with pytest.raises(TypeError, match=rf"Judged\.{judge} returned .*; {wanted}"):
        env.step(action)
