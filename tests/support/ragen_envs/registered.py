"""Every registered environment, for the contract tests: a new one is tested by registering it.

One whose package is not installed is skipped by name; `make test-worlds` installs what they need.
"""

from importlib.util import find_spec
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import load_env_creator

from ragen_envs import AgentTurns, TextEnv, ToolEnv, ToolTurns

NEEDS = {"ragen/TextWorld-v0": "textworld"}
_ALL = sorted(env_id for env_id in gymnasium.registry if env_id.startswith("ragen/"))
IDS = [env_id for env_id in _ALL if env_id not in NEEDS or find_spec(NEEDS[env_id])]
"""Those that can be played here."""
EVERY_INFO = {"success", "action_is_valid", "action_is_effective"}
TURN_INFO = {
    *EVERY_INFO,
    *("turn", "actions", "invalid_actions", "surplus_actions", "num_actions", "actions_left", "format_is_valid"),
    *("env_reward", "format_penalty", "action_rewards", "action_names", "limit", "limit_is_told", "state"),
}


def _marks(env_id: str) -> Any:
    return pytest.mark.skipif(env_id not in IDS, reason=f"needs {NEEDS.get(env_id)}")


def _wrappers(env_id: str) -> list[type[AgentTurns]]:
    has_tools = issubclass(load_env_creator(gymnasium.spec(env_id).entry_point), ToolEnv)
    return [AgentTurns, ToolTurns] if has_tools else [AgentTurns]


every_id = pytest.mark.parametrize("env_id", [pytest.param(env_id, marks=_marks(env_id)) for env_id in _ALL])
every_turns = pytest.mark.parametrize(
    ("env_id", "wrapper"),
    [
        pytest.param(env_id, wrapper, marks=_marks(env_id), id=f"{env_id}-{wrapper.__name__}")
        for env_id in _ALL
        for wrapper in _wrappers(env_id)
    ],
)
"""Each with the wrappers that let a model play it."""


def turn_info(env_id: str, wrapper: type[AgentTurns]) -> set[str]:
    """The keys of the wrapper's info."""
    own = {"tool_results"} if wrapper is ToolTurns else set()
    return TURN_INFO | set(make(env_id).idle_info) | own


def around(env: AgentTurns, text: str) -> str:
    """The reply whose action is a text, whatever the text is."""
    if isinstance(env, ToolTurns):
        return f"<tool_call>{text}</tool_call>"
    return f"<think></think><answer>{text}</answer>"


def make(env_id: str, **kwargs: Any) -> TextEnv:
    """The bare environment."""
    env = gymnasium.make(env_id, **kwargs).unwrapped
    assert isinstance(env, TextEnv)
    return env
