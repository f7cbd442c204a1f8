"""Text environments for language-model agents, as plain Gymnasium environments.

Importing this package registers the ``ragen/...`` ids; ``gymnasium.make("ragen_envs:ragen/FrozenLake-v0")`` imports it
for you. Nothing here imports torch, and `ragen_trl` uses only the names in ``__all__``.
"""

import signal
import sys
from typing import Any

if sys.argv[:1] == ["-m"] and "ragen_envs" in sys.orig_argv:  # the command: Ctrl-C while modules load ends it silently
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import gymnasium

from ragen_envs.bandit import Bandit
from ragen_envs.baselines import (
    best_action,
    demonstration,
    difficulty,
    episode_seeds,
    explain,
    make_named,
    plan,
    random_action,
    turn_limits,
    wilson_interval,
)
from ragen_envs.bridges.openenv import OpenEnvText, openenv_environment
from ragen_envs.bridges.tau2 import Tau2
from ragen_envs.bridges.trl_tools import TrlTask, trl_environment
from ragen_envs.calling import CALL_FORMATS, CallFormat, McpTools, Tool, ToolEnv, ToolTurns
from ragen_envs.checkout import commit_of
from ragen_envs.countdown import Countdown
from ragen_envs.errors import EnvError
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.reply_format import END_ANSWER, END_THINK, TAGS, THINK
from ragen_envs.sokoban import Sokoban
from ragen_envs.text_env import NoOracleError, TextEnv
from ragen_envs.textworld import TextWorld
from ragen_envs.tools import Tools
from ragen_envs.turns import AgentTurns
from ragen_envs.webshop import ToyShop, WebShop

__all__ = ["Bandit", "Countdown", "FrozenLake", "Sokoban", "TextWorld", "Tools", "ToyShop", "WebShop"]
__all__ += ["AgentTurns", "EnvError", "NoOracleError", "TextEnv", "commit_of", "make_named", "turn_limits"]
__all__ += ["CALL_FORMATS", "CallFormat", "McpTools", "Tool", "ToolEnv", "ToolTurns"]
__all__ += ["END_ANSWER", "END_THINK", "TAGS", "THINK"]
__all__ += ["OpenEnvText", "Tau2", "TrlTask", "openenv_environment", "trl_environment"]
__all__ += ["best_action", "demonstration", "difficulty", "explain", "plan", "random_action"]
__all__ += ["episode_seeds", "wilson_interval"]

_GAMES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ragen/Bandit-v0", "bandit:Bandit", {}),
    ("ragen/BanditRev-v0", "bandit:Bandit", {"kwargs": {"names": "dragon-phoenix"}}),
    ("ragen/Countdown-v0", "countdown:Countdown", {}),
    ("ragen/FrozenLake-v0", "frozen_lake:FrozenLake", {"max_episode_steps": 100}),
    (
        "ragen/FrozenLakeNotSlippery-v0",
        "frozen_lake:FrozenLake",
        {"max_episode_steps": 100, "kwargs": {"is_slippery": False}},
    ),
    ("ragen/Sokoban-v0", "sokoban:Sokoban", {}),
    ("ragen/SokobanLarge-v0", "sokoban:Sokoban", {"kwargs": {"dim_room": (8, 8), "num_boxes": 2, "search_depth": 10}}),
    ("ragen/TextWorld-v0", "textworld:TextWorld", {}),
    ("ragen/Tools-v0", "tools:Tools", {}),
    ("ragen/WebShop-v0", "webshop:WebShop", {}),
    ("ragen/ToyShop-v0", "webshop:ToyShop", {}),
)
for _id, _class, _options in _GAMES:
    gymnasium.register(id=_id, entry_point=f"ragen_envs.{_class}", **_options)
