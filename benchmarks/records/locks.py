"""A lock on a file that processes inherit: it is free once the last of those that write beside it has ended.

So a run stays locked where only the process that began it was killed, and its child goes on.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, waiting: str = "") -> Iterator[int]:
    """Hold a lock; yields its file descriptor, for a child's ``pass_fds``.

    Args:
        path: The lock's file, made with its folder if there is none.
        waiting: What to print before waiting for it; empty: do not wait.

    Raises:
        BlockingIOError: If another process holds it, and nobody waits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not waiting:
                raise
            print(waiting, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
