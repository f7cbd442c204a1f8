"""Progress of long work on standard error: tqdm's bar, often on a terminal and twice a minute in a log file."""

import sys
from typing import Any

from tqdm.auto import tqdm

from ragen_trl.system.processes import is_main


def progress_bar(total: int, description: str, unit: str, hidden: bool = False, initial: int = 0) -> "tqdm[Any]":
    """A bar of ``total`` units, ``initial`` of them done before; in the first process only."""
    rarely = {} if sys.stderr.isatty() else {"mininterval": 30.0, "miniters": 1, "delay": 30.0}
    hidden = hidden or not is_main()
    return tqdm(total=total, desc=description, unit=unit, initial=initial, disable=hidden, leave=False, **rarely)
