"""Which of several processes this is, and what only the main one does.

``accelerate launch`` and ``torchrun`` set the variables of a launch (``WORLD_SIZE``, ``RANK``). The main process alone
writes files and prints.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ragen_trl.errors import UserError


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


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Let no other command or script write to a run folder. The lock dies with its process, and may be taken twice.

    Raises:
        UserError: In the main process, if another holds it.
    """

    def lock() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(FileLock(folder / ".lock", is_singleton=True).acquire(timeout=0))
        except Timeout:
            wait = "wait for it, end it, or choose another output_dir"
            raise UserError(f"another process writes to {folder}; {wait}") from None

    with ExitStack() as held:
        on_main(lock)
        yield
