"""Every registered environment, for the contract tests: a new one is tested by registering it."""

from typing import Any

import gymnasium
import pytest

from ragen_envs import TextEnv

IDS = sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))
EVERY_INFO = {"success", "action_is_valid", "action_is_effective"}
TURN_INFO = {
    *EVERY_INFO,
    *("turn", "actions", "invalid_actions", "surplus_actions", "num_actions", "actions_left", "format_is_valid"),
    *("env_reward", "format_penalty", "action_rewards", "action_names", "limit", "state"),
}

every_id = pytest.mark.parametrize("env_id", IDS)


def make(env_id: str, **kwargs: Any) -> TextEnv:
    """The bare environment."""
    env = gymnasium.make(env_id, **kwargs).unwrapped
    assert isinstance(env, TextEnv)
    return env
