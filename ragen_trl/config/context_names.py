"""The function that the option ``context`` names, found and checked before anything is loaded or played."""

import inspect
from collections.abc import Callable
from typing import Any

from ragen_trl.errors import OptionError
from ragen_trl.system.functions import FunctionNameError, function_named, name_of

_HOME = "ragen_trl.rollout.contexts"
WRITTEN_CONTEXTS = ("actions_so_far",)
"""Functions of this package that write a context, by names without a module."""


def context_name(function: Callable[..., Any]) -> str:
    """The name under which other processes and a saved model find a function; `FunctionNameError` if they would not."""
    try:
        return name_of(function)
    except FunctionNameError as error:
        raise FunctionNameError(f"context: {error}") from error


def context_function(name: Any) -> Callable[..., Any]:
    """The function behind ``"module:function"``, or behind one of `WRITTEN_CONTEXTS`.

    Raises:
        FunctionNameError: If there is none.
        OptionError: If it cannot be called with the turns and the opening.
    """
    if not isinstance(name, str) or (":" not in name and name not in WRITTEN_CONTEXTS):
        raise OptionError(f"context is {name!r}; give {', '.join(WRITTEN_CONTEXTS)} or a function, 'module:function'")
    try:
        function = function_named(name, _HOME)
    except FunctionNameError as error:
        raise FunctionNameError(f"context: {error}") from error
    if inspect.isclass(function):
        raise OptionError(f"context is {name!r}, a class; give a function of the turns so far and the opening")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a built-in function may have none
        return function
    try:
        signature.bind((), "")
    except TypeError as error:
        called = name.rpartition(":")[2]
        raise OptionError(
            f"context is {name!r}, but {called}{signature} cannot be called with the turns so far and the opening "
            f"({error}); define it as {called}(turns, opening)"
        ) from error
    return function
