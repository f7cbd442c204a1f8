"""Reads single keys from a terminal, without Enter, and always restores the terminal's mode.

It needs termios, which only POSIX has. Elsewhere `is_available` is False, and a caller reads lines instead.
"""

import os
import select
import signal
import sys
from types import FrameType, TracebackType

_ESCAPE_PATIENCE = 0.05  # seconds; the sequence of an arrow key arrives all at once
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_END_OF_INPUT = "\x04"  # Ctrl-D


def is_available() -> bool:
    """Whether input and output are a terminal whose keys can be read one by one."""
    try:
        import termios  # noqa: F401
    except ImportError:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


class Keyboard:
    """The keys of a terminal; a context manager.

    Inside it, keys arrive immediately and are not echoed. Ctrl-C still interrupts. At the end, also after an exception
    or a termination signal, the terminal gets its former mode back.

    Args:
        terminal: File descriptor of the terminal.
    """

    def __init__(self, terminal: int) -> None:
        """Takes the terminal; `__enter__` changes its mode."""
        self._terminal = terminal

    def __enter__(self) -> "Keyboard":
        """Turns line editing and echo off."""
        import termios
        import tty

        self._mode = termios.tcgetattr(self._terminal)
        self._handler = signal.signal(signal.SIGTERM, _leave)
        tty.setcbreak(self._terminal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restores the terminal's mode. Unread keys are dropped, so that no shell executes them."""
        import termios

        termios.tcsetattr(self._terminal, termios.TCSAFLUSH, self._mode)
        signal.signal(signal.SIGTERM, self._handler)

    def read(self) -> str:
        """Waits for a key.

        Returns:
            "up", "down", "left" or "right" for an arrow; the character, letters in lower case; "escape" for any
            other special key; "" for Ctrl-D or a closed terminal.
        """
        character = self._next()
        if character == _END_OF_INPUT:
            return ""
        if character != "\x1b":
            return character.lower()
        if not self._is_waiting() or self._next() not in ("[", "O"):
            return "escape"
        final = self._next()
        while final and not "@" <= final <= "~":  # digits and semicolons: which modifier, which function key
            final = self._next()
        return _ARROWS.get(final, "escape")

    def _next(self) -> str:
        """One byte as a character; "" at the end. A multi-byte character becomes several, which have no meaning."""
        try:
            return os.read(self._terminal, 1).decode("latin-1")
        except OSError:  # the window was closed
            return ""

    def _is_waiting(self) -> bool:
        return bool(select.select([self._terminal], [], [], _ESCAPE_PATIENCE)[0])


def _leave(signum: int, frame: FrameType | None) -> None:
    """Turns a termination signal into an exception, so that the terminal's mode is restored."""
    raise SystemExit(128 + signum)
