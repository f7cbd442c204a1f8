"""Whether options hold a number of the kind that they are declared with. A wrong one would fail late, or never."""

import inspect
import math
from numbers import Integral, Real
from typing import Any, get_args

from ragen_trl.errors import OptionError


def check_numbers(args: Any) -> None:
    """Raise `OptionError` for an option of this package that should be a number and is none, or is NaN.

    ``None`` is taken where the type or the default is ``None``.
    """
    declared: dict[str, Any] = {}
    for owner in reversed(type(args).__mro__):
        if owner.__module__.startswith("ragen_trl."):
            declared |= inspect.get_annotations(owner)  # not fields(): a parser of Transformers changes types there
    for name, kind in declared.items():
        value, kinds = getattr(args, name), get_args(kind) or (kind,)
        if value is None and (type(None) in kinds or getattr(type(args), name, None) is None):
            continue
        is_bool = isinstance(value, bool)
        if int in kinds and (is_bool or not isinstance(value, Integral)):
            raise OptionError(f"{name} is {value!r}; give a whole number")
        if float in kinds and (is_bool or not isinstance(value, Real) or math.isnan(value)):
            raise OptionError(f"{name} is {value!r}; give a number")
