"""TextEnv itself, with a very small free-form environment, and pictures of text."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from ragen_envs import TextEnv, best_action, demonstration, difficulty, explain, random_action
from ragen_envs.baselines import default_horizon, default_turns, measure, turn_limits
from ragen_envs.render import HEIGHT, MARGIN, PAPER, WIDTH, draw_text


class Echo(TextEnv):
    """Adds numbers: `add 3` adds 3 and a random 0 or 1; terminated from 10 on."""

    instruction: Any = "Reach 10 with lines such as: add 3"

    def _start(self, options: Mapping[str, Any]) -> str:
        self.total = int(self.np_random.integers(3))
        return str(self.total)

    def _parse_action(self, text: str) -> str | None:
        words = text.split()
        return words[1] if len(words) == 2 and words[0] == "add" and words[1] in set("123456789") else None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.total += int(action) + int(self.outcome_random.integers(2))
        success = self.total >= 10
        return str(self.total), float(success), success, {"success": success, "action_is_effective": True}


class Known(Echo):
    """One that knows its game: what an author writes, and what the functions of the package make of it."""

    turn_limits: ClassVar[Mapping[str, int] | None] = {"max_turns": 4, "max_actions_per_turn": 1, "max_actions": 4}
    horizon = 6

    def best_action(self, actions_left: int) -> str:
        return f"add {min(9, 10 - self.total)}"

    def random_action(self, rng: np.random.Generator) -> str:
        return f"add {rng.integers(1, 10)}"

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        return f"{10 - self.total} to go, so I {actions[0]}."

    def difficulty(self) -> float:
        return 10 - self.total


def test_what_a_game_knows_are_its_methods() -> None:
    gymnasium.register("test/Known-v0", Known, max_episode_steps=30)
    try:
        env = gymnasium.make("test/Known-v0")
        with pytest.raises(ResetNeeded, match="best_action was called before Known.reset"):
            best_action(env, 1)
        start, _ = env.reset(seed=0)
        total = int(start)
        assert best_action(env, 9) == f"add {min(9, 10 - total)}"
        assert difficulty(env) == 10 - total
        assert explain(env, ["add 2"]) == f"{10 - total} to go, so I add 2."
        drawn = np.random.default_rng(3).integers(1, 10)
        assert random_action(env, np.random.default_rng(3)) == f"add {drawn}"
        assert set(demonstration(env, 1, 1, np.random.default_rng(0), 0.0)) == {best_action(env, 1)}
        assert default_horizon(env) == 6
        assert default_turns(env) == turn_limits("test/Known-v0") == Known.turn_limits
        assert measure("test/Known-v0", "oracle", episodes=8)["success"] == 1.0
    finally:
        del gymnasium.registry["test/Known-v0"]


LONG = "A machine-washable shirt below forty dollars, with long sleeves, in navy or in black. " * 12


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Numbers: 3, 4\nTarget: 7", LONG, LONG * 20, "x" * 100_000, "\ud800 √ \t日本"]
)
def test_every_picture_has_one_size(text: str) -> None:
    picture = draw_text(text)
    assert (picture.shape, picture.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert picture.flags.writeable and (picture[:MARGIN] == PAPER).all()
