"""Every registered environment, for the contract tests: a new one is tested by registering it.

One whose package is not installed is skipped by name; `make test-worlds` installs what they need.
"""

from importlib.util import find_spec
from typing import Any

import gymnasium
import pytest

from ragen_envs import TextEnv

NEEDS = {"ragen/TextWorld-v0": "textworld"}
_ALL = sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))
IDS = [env_id for env_id in _ALL if env_id not in NEEDS or find_spec(NEEDS[env_id])]
"""Those that can be played here."""
EVERY_INFO = {"success", "action_is_valid", "action_is_effective"}
TURN_INFO = {
    *EVERY_INFO,
    *("turn", "actions", "invalid_actions", "surplus_actions", "num_actions", "actions_left", "format_is_valid"),
    *("env_reward", "format_penalty", "action_rewards", "action_names", "limit", "state"),
}

every_id = pytest.mark.parametrize(
    "env_id",
    [
        pytest.param(env_id, marks=pytest.mark.skipif(env_id not in IDS, reason=f"needs {NEEDS.get(env_id)}"))
        for env_id in _ALL
    ],
)


def make(env_id: str, **kwargs: Any) -> TextEnv:
    """The bare environment."""
    env = gymnasium.make(env_id, **kwargs).unwrapped
    assert isinstance(env, TextEnv)
    return env
