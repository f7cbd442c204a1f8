"""Success on fixed, held-out start states, with confidence intervals and pass@k."""

from typing import Any

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    # On first use: what only needs a light module of this package loads no other.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ragen_trl.evaluation.evaluator import evaluate

    return evaluate
