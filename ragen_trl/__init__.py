"""Multi-turn agent training on top of TRL.

Names resolve on first use (PEP 562), so that ``import ragen_trl`` costs nothing and the torch-free modules
(``trajectory``, ``rollout``) can be used without loading torch, transformers or TRL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_trl.config import StarPOConfig, StarPOSConfig
    from ragen_trl.evaluation import EvaluationResult, evaluate
    from ragen_trl.rollout import play
    from ragen_trl.starpo_trainer import StarPOTrainer
    from ragen_trl.trajectory import Trajectory, Turn
    from ragen_trl.warm_start import WarmStartConfig, warm_start

_MODULES = {
    "EvaluationResult": "evaluation",
    "StarPOConfig": "config",
    "StarPOSConfig": "config",
    "StarPOTrainer": "starpo_trainer",
    "Trajectory": "trajectory",
    "Turn": "trajectory",
    "WarmStartConfig": "warm_start",
    "evaluate": "evaluation",
    "play": "rollout",
    "warm_start": "warm_start",
}

__all__ = [
    "EvaluationResult",
    "StarPOConfig",
    "StarPOSConfig",
    "StarPOTrainer",
    "Trajectory",
    "Turn",
    "WarmStartConfig",
    "evaluate",
    "play",
    "warm_start",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
