"""Options, each declared once as a dataclass field with its help, and their checks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig, StarPOSConfig

__all__ = ["StarPOConfig", "StarPOSConfig"]


def __getattr__(name: str) -> Any:
    # On first use: ``--help`` reads `validation` without loading torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ragen_trl.config import starpo

    return getattr(starpo, name)
