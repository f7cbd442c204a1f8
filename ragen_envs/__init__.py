"""Text environments for language-model agents, as plain Gymnasium environments.

Importing this package registers the ``ragen/...`` ids (Gymnasium 1.x loads no plug-ins by itself;
``gymnasium.make("ragen_envs:ragen/FrozenLake-v0")`` imports it for you). Nothing here imports torch.
"""

import gymnasium

from ragen_envs.bandit import Bandit
from ragen_envs.baselines import wilson_interval
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.oracles import NoOracleError, best_action, plan, random_action
from ragen_envs.sokoban import Sokoban
from ragen_envs.text_env import TextEnv
from ragen_envs.turns import AgentTurns

__all__ = [
    "AgentTurns",
    "Bandit",
    "FrozenLake",
    "NoOracleError",
    "Sokoban",
    "TextEnv",
    "best_action",
    "plan",
    "random_action",
    "wilson_interval",
]

gymnasium.register(id="ragen/Bandit-v0", entry_point="ragen_envs.bandit:Bandit")
gymnasium.register(
    id="ragen/BanditRev-v0",
    entry_point="ragen_envs.bandit:Bandit",
    kwargs={"low_name": "Dragon", "high_name": "Phoenix"},
)
gymnasium.register(id="ragen/FrozenLake-v0", entry_point="ragen_envs.frozen_lake:FrozenLake", max_episode_steps=100)
gymnasium.register(id="ragen/Sokoban-v0", entry_point="ragen_envs.sokoban:Sokoban")
gymnasium.register(
    id="ragen/SokobanLarge-v0",
    entry_point="ragen_envs.sokoban:Sokoban",
    kwargs={"dim_room": (8, 8), "num_boxes": 2, "search_depth": 10},
)
