"""Playing episodes: environments and a policy go in, whole trajectories come out. No module here loads torch."""

from typing import Any

__all__ = ["play"]


def __getattr__(name: str) -> Any:
    # On first use: what only needs a light module of this package loads no other.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ragen_trl.rollout.loop import play

    return play
