"""Colour, where someone can see it: on a terminal only, and not where NO_COLOR is set (https://no-color.org)."""

import os
import sys
from typing import TextIO

_BOLD, _RED, _END = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"


def takes_colour(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that shows colours and whose user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def heading(text: str) -> str:
    """A line that others stand under, for standard output."""
    return f"{_BOLD}{text}{_END}" if takes_colour(sys.stdout) else text


def error_line(message: str) -> str:
    """``error: MESSAGE``, for standard error."""
    return f"{_RED}error:{_END} {message}" if takes_colour(sys.stderr) else f"error: {message}"
