"""The former place of `ragen_envs.webshop.ToyShop`, kept for code that imports it from here."""

import warnings
from typing import Any

from ragen_envs.webshop import toy_shop


def __getattr__(name: str) -> Any:
    """Looks a name up in its new place, with a warning."""
    if not hasattr(toy_shop, name):
        raise AttributeError(f"ragen_envs.toy_shop has no {name}")
    message = f"ragen_envs.toy_shop has moved; import {name} from ragen_envs.webshop.toy_shop"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(toy_shop, name)
