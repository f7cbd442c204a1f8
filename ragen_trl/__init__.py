"""Multi-turn agent training on top of TRL.

Names resolve on first use (PEP 562), so that ``import ragen_trl`` costs nothing and the torch-free modules
(``trajectory``, ``rollout``) can be used without loading torch, transformers or TRL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_trl.api_cache import ApiCache
    from ragen_trl.api_client import ApiClient
    from ragen_trl.api_policy import ApiPolicy
    from ragen_trl.astar_po_config import AStarPOConfig
    from ragen_trl.astar_po_trainer import AStarPOTrainer
    from ragen_trl.collected import demonstrations_from
    from ragen_trl.config import StarPOConfig, StarPOSConfig
    from ragen_trl.diagnostics import CollapseMonitor
    from ragen_trl.env_pool import EnvSpec
    from ragen_trl.environments import make_chat, make_turns
    from ragen_trl.evaluation import EvaluationResult, evaluate
    from ragen_trl.experience import Experience
    from ragen_trl.imitation import WarmStartConfig, warm_start
    from ragen_trl.rewards import consistency_reward, format_reward, length_reward
    from ragen_trl.rollout import play
    from ragen_trl.sampling import Sampling
    from ragen_trl.starpo_trainer import StarPOTrainer
    from ragen_trl.trajectory import Trajectory, Turn
    from ragen_trl.trajectory_trainer import TrajectoryTrainer

_MODULES = {
    "AStarPOConfig": "astar_po_config",
    "AStarPOTrainer": "astar_po_trainer",
    "ApiCache": "api_cache",
    "ApiClient": "api_client",
    "ApiPolicy": "api_policy",
    "CollapseMonitor": "diagnostics",
    "EnvSpec": "env_pool",
    "EvaluationResult": "evaluation",
    "Experience": "experience",
    "Sampling": "sampling",
    "StarPOConfig": "config",
    "StarPOSConfig": "config",
    "StarPOTrainer": "starpo_trainer",
    "Trajectory": "trajectory",
    "TrajectoryTrainer": "trajectory_trainer",
    "Turn": "trajectory",
    "WarmStartConfig": "imitation",
    "consistency_reward": "rewards",
    "demonstrations_from": "collected",
    "evaluate": "evaluation",
    "format_reward": "rewards",
    "length_reward": "rewards",
    "make_chat": "environments",
    "make_turns": "environments",
    "play": "rollout",
    "warm_start": "imitation",
}

__all__ = [
    "AStarPOConfig",
    "AStarPOTrainer",
    "ApiCache",
    "ApiClient",
    "ApiPolicy",
    "CollapseMonitor",
    "EnvSpec",
    "EvaluationResult",
    "Experience",
    "Sampling",
    "StarPOConfig",
    "StarPOSConfig",
    "StarPOTrainer",
    "Trajectory",
    "TrajectoryTrainer",
    "Turn",
    "WarmStartConfig",
    "consistency_reward",
    "demonstrations_from",
    "evaluate",
    "format_reward",
    "length_reward",
    "make_chat",
    "make_turns",
    "play",
    "warm_start",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
