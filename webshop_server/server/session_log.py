"""Writes what happened in sessions to JSON Lines, one file per session, for later study."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path


class SessionLog:
    """A folder of logs. The name of a file is a hash of the session's, which a client may have chosen."""

    def __init__(self, folder: str | Path, clock: Callable[[], float] = time.time) -> None:
        """Makes the folder.

        Args:
            folder: Where the files go.
            clock: Gives seconds since 1970.

        Raises:
            OSError: If the folder cannot be made or written, with what to do about it.
        """
        self._folder = Path(folder)
        remedy = "choose a folder for --log that can be written"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"cannot write logs to {str(folder)!r}: {error.strerror or error}; {remedy}") from error
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise OSError(f"cannot write logs to {str(folder)!r}: Permission denied; {remedy}")
        self._clock = clock
        self._lock = threading.Lock()

    def path(self, session: str) -> Path:
        """The file of a session."""
        return self._folder / f"{hashlib.sha256(session.encode()).hexdigest()[:32]}.jsonl"

    def write(self, session: str, record: Mapping[str, object]) -> None:
        """Adds a line, whole even if several processes write: it is appended in one piece.

        Args:
            session: Name or token of the session; it is not written.
            record: What happened, for JSON.
        """
        line = json.dumps({"time": round(self._clock(), 3), **record}, ensure_ascii=False) + "\n"
        with self._lock, self.path(session).open("ab", buffering=0) as file:
            file.write(line.encode("utf-8", "backslashreplace"))
