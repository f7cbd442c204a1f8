"""What commands say on a terminal. Colour is for terminals only; none where NO_COLOR is set (https://no-color.org)."""

import os
import sys
from typing import TextIO

RED, PLAIN = "\x1b[1;31m", "\x1b[0m"

REPEAT = "To go on, run the same command again."
"""What every command says that was stopped."""


def takes_colour(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal that shows colours and whose user wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def error_line(message: str) -> str:
    """``error: MESSAGE``, for standard error."""
    return f"{RED}error:{PLAIN} {message}" if takes_colour(sys.stderr) else f"error: {message}"
