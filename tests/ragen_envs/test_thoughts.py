"""What holds for the thoughts of every environment; what they say is checked in the folders of the families."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, NoOracleError, TextEnv, best_action, explain
from tests.support.ragen_envs.registered import every_id


class Silent(TextEnv):
    """An environment that nobody explains."""

    instruction = "Say a."
    actions = ("a", "b")

    def _start(self, options: Any) -> str:
        return "?"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return "!", 1.0, True, {"success": True, "action_is_effective": True}

    def _picture(self) -> Any:
        return np.zeros((1, 1, 3), np.uint8)


@every_id
def test_every_environment_explains_its_oracle(env_id: str) -> None:
    turns = AgentTurns(gymnasium.make(env_id))
    turns.reset(seed=3)
    best = best_action(turns, turns.actions_left)
    state = copy.deepcopy(turns.unwrapped.outcome_random.bit_generator.state)
    assert explain(turns) == explain(turns) == explain(turns.env, [best]) == explain(turns, [best, best])
    said = {explain(turns, [best], np.random.default_rng(seed)) for seed in range(40)}
    assert len(said) >= 5
    shown = json.loads(best)["name"] if env_id == "ragen/Tools-v0" else best  # a call is too long to be spoken
    assert all(text.endswith(f" {shown}.") or env_id == "ragen/WebShop-v0" for text in said)
    assert turns.unwrapped.outcome_random.bit_generator.state == state
    assert best_action(turns, turns.actions_left) == best
    turns.close()


def test_what_cannot_be_explained_is_an_error_that_says_what_to_do() -> None:
    silent = Silent()
    silent.reset(seed=0)
    with pytest.raises(NoOracleError, match=r"explain knows no Silent; write one and register it with @explain\.regis"):
        explain(AgentTurns(silent), ["a"])

    class Spoken(Silent):
        """One that somebody explains."""

    @explain.register
    def _(env: Spoken, actions: Sequence[str], rng: np.random.Generator) -> str:
        return f"I say {actions[0]}."

    spoken = Spoken()
    spoken.reset(seed=0)
    assert explain(spoken, ["a"]) == explain(AgentTurns(spoken), ["a"]) == "I say a."
    lake = gymnasium.make("ragen/FrozenLake-v0")
    lake.reset(seed=0)
    with pytest.raises(ValueError, match="does not know how many actions are left; give actions, or wrap it"):
        explain(lake)
    with pytest.raises(ValueError, match="does not know how many actions are left"):
        explain(lake.unwrapped)
    assert explain(lake.unwrapped, ["Down"]) == explain(lake, ["Down"])
    with pytest.raises(ValueError, match=r"actions=\[\] leave nothing to explain"):
        explain(lake, [])
    with pytest.raises(TypeError, match=r"actions='Left' is a text; give a list, such as \['Left'\]"):
        explain(lake, "Left")
