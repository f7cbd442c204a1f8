"""Functions by name, so an option can hold one: on the command line, in a saved file, in another process."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ragen_trl.errors import UserError


class FunctionNameError(UserError, ValueError):
    """A name leads to no function, or a function has no name that leads to it."""


def function_named(name: str, home: str = "") -> Callable[..., Any]:
    """The function behind ``"module:function"``, or behind a name in ``home``; `FunctionNameError` if none is."""
    module, _, function = name.rpartition(":")
    try:
        found = getattr(import_module(module or home), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise FunctionNameError(
            f"{name!r} cannot be imported ({error}); give 'module:function', of a module in this folder or installed"
        ) from error
    if not callable(found):
        raise FunctionNameError(f"{name!r} is a {type(found).__name__} and no function")
    called: Callable[..., Any] = found
    return called


def name_of(function: Callable[..., Any]) -> str:
    """The name under which `function_named` finds a function.

    Raises:
        FunctionNameError: If it would not be found again: a lambda, or a function inside another one.

    Example:
        >>> name_of(name_of)
        'ragen_trl.system.functions:name_of'
    """
    name = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', None)}"
    try:
        found = function_named(name)
    except FunctionNameError:
        found = None
    if found is not function:
        raise FunctionNameError(
            f"{function!r} cannot be found again by other processes and for a saved model; define it at the top of a "
            "module"
        )
    return name
