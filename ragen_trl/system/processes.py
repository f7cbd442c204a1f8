"""Which of several processes this is, and what only the main one does.

``accelerate launch`` and ``torchrun`` set the variables of a launch (``WORLD_SIZE``, ``RANK``). The main process alone
writes files and prints.
"""

import os
from collections.abc import Callable
from typing import Any


def is_main() -> bool:
    """Whether this is the process that writes and speaks; also before Accelerate knows of the others."""
    return os.environ.get("RANK", "0") == "0"


def launched() -> int:
    """How many processes this command was launched as."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def on_main(make: Callable[[], Any]) -> Any:
    """What ``make`` returns in the main process, in all processes. If it fails, the others end without a word."""
    if launched() == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    found: list[Any] = [None, "it was interrupted"]  # result, error
    try:
        if is_main():
            found = [make(), None]
    finally:
        broadcast_object_list(found)
    if found[1] is not None:
        raise SystemExit(2)
    return found[0]
