"""Multi-turn agent training on top of TRL.

Names resolve on first use (PEP 562), so the torch-free modules (``trajectory``, ``rollout``) load neither torch nor
TRL. Data and imports pass from ``system`` through ``config``, ``algorithms``, ``rollout``, ``policies``, ``batching``,
``credit``, ``trainers``, ``astar_po``, ``imitation``, ``evaluation``, ``monitoring`` and ``reporting`` to ``cli``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_trl.astar_po.trainer import AStarPOTrainer
    from ragen_trl.batching.rewards import consistency_reward, format_reward, length_reward
    from ragen_trl.batching.rollout_batch import RolloutBatch
    from ragen_trl.config.options import WarmStartConfig
    from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig, StarPOSConfig
    from ragen_trl.evaluation.evaluator import EvaluationResult, evaluate
    from ragen_trl.imitation.demonstrations import demonstrations_from
    from ragen_trl.imitation.fine_tuning import warm_start
    from ragen_trl.monitoring.collapse_monitor import CollapseMonitor
    from ragen_trl.policies.api import ApiCache, ApiClient, ApiPolicy
    from ragen_trl.policies.sampling import Sampling
    from ragen_trl.rollout.environments import EnvSpec, make_chat, make_turns
    from ragen_trl.rollout.loop import play
    from ragen_trl.trainer import StarPOTrainer
    from ragen_trl.trajectory import Trajectory, Turn

_MODULES = {
    "AStarPOConfig": "config.starpo",
    "AStarPOTrainer": "astar_po.trainer",
    "ApiCache": "policies.api",
    "ApiClient": "policies.api",
    "ApiPolicy": "policies.api",
    "CollapseMonitor": "monitoring.collapse_monitor",
    "EnvSpec": "rollout.environments",
    "EvaluationResult": "evaluation.evaluator",
    "RolloutBatch": "batching.rollout_batch",
    "Sampling": "policies.sampling",
    "StarPOConfig": "config.starpo",
    "StarPOSConfig": "config.starpo",
    "StarPOTrainer": "trainer",
    "Trajectory": "trajectory",
    "Turn": "trajectory",
    "WarmStartConfig": "config.options",
    "consistency_reward": "batching.rewards",
    "demonstrations_from": "imitation.demonstrations",
    "evaluate": "evaluation.evaluator",
    "format_reward": "batching.rewards",
    "length_reward": "batching.rewards",
    "make_chat": "rollout.environments",
    "make_turns": "rollout.environments",
    "play": "rollout.loop",
    "warm_start": "imitation.fine_tuning",
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
    "RolloutBatch",
    "Sampling",
    "StarPOConfig",
    "StarPOSConfig",
    "StarPOTrainer",
    "Trajectory",
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
