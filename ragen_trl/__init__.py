"""Multi-turn agent training on top of TRL.

Names resolve on first use (PEP 562), so ``trajectory`` and ``rollout`` load neither torch nor TRL.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_trl.astar_po.trainer import AStarPOTrainer
    from ragen_trl.batching.rollout_batch import RolloutBatch
    from ragen_trl.config.options import WarmStartConfig
    from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig, StarPOSConfig
    from ragen_trl.evaluation.evaluator import EvaluationResult, evaluate
    from ragen_trl.imitation.demonstrations import demonstrations_from
    from ragen_trl.imitation.fine_tuning import warm_start
    from ragen_trl.monitoring.collapse_monitor import CollapseMonitor
    from ragen_trl.policies.api import ApiPolicy
    from ragen_trl.policies.sampling import Sampling
    from ragen_trl.rollout.environments import EnvSpec, make_chat, make_turns
    from ragen_trl.rollout.loop import play
    from ragen_trl.trainer import StarPOTrainer
    from ragen_trl.trajectory import Trajectory, Turn

if find_spec("torch") is None or find_spec("trl") is None:
    raise ImportError("ragen_trl needs torch and TRL, which are not installed: pip install 'ragen-trl[train]'")

_NAMES = {
    "astar_po.trainer": ["AStarPOTrainer"],
    "batching.rollout_batch": ["RolloutBatch"],
    "config.options": ["WarmStartConfig"],
    "config.starpo": ["AStarPOConfig", "StarPOConfig", "StarPOSConfig"],
    "evaluation.evaluator": ["EvaluationResult", "evaluate"],
    "imitation.demonstrations": ["demonstrations_from"],
    "imitation.fine_tuning": ["warm_start"],
    "monitoring.collapse_monitor": ["CollapseMonitor"],
    "policies.api": ["ApiPolicy"],
    "policies.sampling": ["Sampling"],
    "rollout.environments": ["EnvSpec", "make_chat", "make_turns"],
    "rollout.loop": ["play"],
    "trainer": ["StarPOTrainer"],
    "trajectory": ["Trajectory", "Turn"],
}

__all__ = ["AStarPOConfig", "AStarPOTrainer", "StarPOConfig", "StarPOSConfig", "StarPOTrainer", "RolloutBatch"]
__all__ += ["EnvSpec", "Trajectory", "Turn", "make_chat", "make_turns", "play"]
__all__ += ["ApiPolicy", "Sampling", "EvaluationResult", "evaluate"]
__all__ += ["CollapseMonitor", "WarmStartConfig", "demonstrations_from", "warm_start"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to load

        return version("ragen-trl")
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__dir__())}")


def __dir__() -> list[str]:
    return sorted(__all__)
