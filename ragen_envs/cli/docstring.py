"""What the docstrings of an environment say: its sections, and its arguments with their defaults.

Sections are those of Gymnasium, ``## Description`` and so on, in the docstring of the class. Arguments are described in
Google's style, after ``Args:``, in the docstring of `__init__` or of the class.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ARGS = re.compile(r"^Args:\n((?: {4}.*\n?|\n)*)", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}\*{0,2}(\w+)(?: \([^)\n]*\))?: ", re.MULTILINE)


class Argument(NamedTuple):
    """One argument of an environment.

    Attributes:
        name: Its name.
        default: Its default as code; "" if it must be given.
        meaning: What the docstring says, in one line; "" if it says nothing.
    """

    name: str
    default: str
    meaning: str


def sections(kind: type) -> tuple[str, dict[str, str]]:
    """The docstring of a class: the text before its first section, and title and text of each section, in order.

    The docstring of a base class is not taken instead: it describes something else. The arguments are left out, because
    `arguments` has them.
    """
    first, *parts = _HEADING.split(_ARGS.sub("", inspect.cleandoc(kind.__doc__ or "")))
    return first.strip(), dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def arguments(creator: Callable[..., Any], given: Mapping[str, Any]) -> list[Argument]:
    """The arguments of a class or function that makes environments, in order.

    Args:
        creator: The class or function.
        given: Arguments that are set already, which replace the defaults.

    Returns:
        The arguments that can be given by name.
    """
    described = _described(creator.__init__) if isinstance(creator, type) else {}  # type: ignore[misc]
    described = _described(creator) | described
    found = []
    for parameter in inspect.signature(creator).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = given.get(parameter.name, parameter.default)
            code = "" if default is parameter.empty else repr(default)
            found.append(Argument(parameter.name, code, described.get(parameter.name, "")))
    return found


def _described(where: Any) -> dict[str, str]:
    """Name and meaning of each argument that a docstring describes."""
    block = _ARGS.search(inspect.cleandoc(where.__doc__ or ""))
    parts = _ARGUMENT.split(block[1])[1:] if block else []
    return {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
