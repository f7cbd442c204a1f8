"""Writes what happened in sessions to JSON Lines, one file per session, for later study."""

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_log = logging.getLogger(__name__)


class SessionLog:
    """A folder of logs. The name of a file is a hash of the session's, which a client may have chosen."""

    def __init__(self, folder: str | Path, clock: Callable[[], float] = time.time) -> None:
        """Makes the folder.

        Args:
            folder: Where the files go.
            clock: Gives seconds since 1970.

        Raises:
            OSError: If the folder cannot be made or written.
        """
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise PermissionError(f"cannot write logs to {str(folder)!r}; choose another folder for --log")
        self._clock, self._lock = clock, threading.Lock()
        self._failed = False

    def path(self, session: str) -> Path:
        """The file of a session."""
        return self._folder / f"{hashlib.sha256(session.encode()).hexdigest()[:32]}.jsonl"

    def write(self, session: str, record: Mapping[str, object]) -> None:
        """Adds a line, whole even if several processes write. A log that cannot be written is told of once, no more.

        Args:
            session: Name of the session; it is not written.
            record: What happened, for JSON.
        """
        line = json.dumps({"time": round(self._clock(), 3), **record}, ensure_ascii=False) + "\n"
        try:
            with self._lock, self.path(session).open("ab", buffering=0) as file:
                file.write(line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            if not self._failed:
                _log.warning("lines of --log are lost: %s", error)
            self._failed = True
