"""Progress of long work: tqdm's bar on a terminal, and whole lines in a log file, one every half a minute."""

import os
import sys
from typing import Any

from tqdm.auto import tqdm

LINE_EVERY = 30.0  # seconds between two lines in a log file
_LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s ({percentage:.0f} %) in {elapsed}, {remaining} to go{postfix}"


class _Lines(tqdm):  # type: ignore[misc, type-arg]
    """A progress bar that writes lines.

    Relies on tqdm, which calls ``display`` at most every ``mininterval``, and with ``msg=""`` to clear a bar.
    """

    disable: bool

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write one line; there is nothing to clear."""
        if msg != "" and self.n > self.initial:
            self.fp.write(f"{self}\n")
            self.fp.flush()
        return True

    def clear(self, nolock: bool = False) -> None:
        """There is nothing to draw over."""

    def close(self) -> None:
        """Close without the carriage return that clears a bar."""
        if not self.disable:
            self.disable = True
            self._decr_instances(self)


def progress_bar(total: int, description: str, unit: str, hidden: bool = False, initial: int = 0) -> "tqdm[Any]":
    """A bar of ``total`` units, ``initial`` of them done before; without a terminal lines. First process only."""
    hidden = hidden or os.environ.get("RANK", "0") != "0"
    shown: dict[str, Any] = {"total": total, "desc": description, "unit": unit, "initial": initial, "leave": False}
    if sys.stderr.isatty() and sys.stdout.isatty():
        return tqdm(disable=hidden, **shown)
    rarely = {"mininterval": LINE_EVERY, "miniters": 1, "delay": LINE_EVERY, "bar_format": _LINE}
    return _Lines(disable=hidden, file=sys.stdout, **rarely, **shown)
