"""Sessions in one SQLite file, so any process that serves the same store can answer any request.

A process that is killed takes no session with it, and a change is written only if nobody else wrote meanwhile, so a
purchase is made once. The file is bounded: the least recently used sessions make room. Values are JSON; the file is not
synchronised to the disk.
"""

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from pydantic import TypeAdapter

from webshop_server.store.shop import Episode

MAX_SESSIONS = 10_000
_TRIES = 200
_NEXT = "(SELECT coalesce(max(used), 0) + 1 FROM sessions)"  # uses are numbered: a clock may be set back
_EPISODE = TypeAdapter(Episode)


class UnknownSessionError(LookupError):
    """There is no session of this name: it never was, or it is over."""


def private_folder() -> Path:
    """A folder for this user's sessions among the temporary files (`TMPDIR`), which nobody else can write.

    Raises:
        OSError: If it is somebody else's.
    """
    owner = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(tempfile.gettempdir(), f"webshop-server-{owner}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if owner != "" and (found.st_uid != owner or found.st_mode & 0o022):
        raise OSError(f"the folder {folder} is not this user's alone; set TMPDIR, or name a file for the sessions")
    return folder


class Sessions:
    """Episodes by name. Safe to use from many threads and processes."""

    def __init__(self, path: str | Path, most: int = MAX_SESSIONS) -> None:
        """Says where the sessions are: in a folder that only this user can write; the file is made at its first use.

        Raises:
            ValueError: If none may be kept.
        """
        if most < 1:
            raise ValueError(f"max_sessions={most!r} must be positive")
        self._path, self._most, self._local = Path(path), most, threading.local()

    def _run(self, query: str, *values: str | float) -> sqlite3.Cursor:
        """Runs a query on this thread's connection; one from before a fork is left alone."""
        owner, database = getattr(self._local, "opened", (None, None))
        if owner != os.getpid() or database is None:
            with FileLock(f"{self._path}.lock"):  # while it is made, others would find it locked
                database = sqlite3.connect(self._path, timeout=10.0, isolation_level=None, check_same_thread=False)
                os.chmod(self._path, 0o600)
                database.executescript(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
                    "CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, value TEXT, used INT) WITHOUT ROWID;"
                    "CREATE INDEX IF NOT EXISTS sessions_by_use ON sessions (used);"
                )
            self._local.opened = os.getpid(), database
        return database.execute(query, values)

    def put(self, name: str, episode: Episode, otherwise: str = "REPLACE") -> None:
        """Makes a session; one that is there is replaced, or kept if `otherwise` is "IGNORE"."""
        value = _EPISODE.dump_json(episode).decode()
        self._run(f"INSERT OR {otherwise} INTO sessions VALUES (?, ?, {_NEXT})", name, value)
        oldest = "SELECT used FROM sessions ORDER BY used DESC LIMIT 1 OFFSET ?"
        self._run(f"DELETE FROM sessions WHERE used <= ({oldest})", self._most)

    def update(
        self, name: str, change: Callable[[Episode], Episode] = lambda old: old, fresh: Episode | None = None
    ) -> Episode:
        """Replaces a session by what `change` makes of it, and returns that. It counts as used.

        Where there is none, it begins as `fresh`, of which `change` is made, too. No two changes of one session
        overlap. `change` may be called again if it met another; it must be pure.

        Raises:
            UnknownSessionError: If there is none.
            sqlite3.Error: If sessions cannot be kept, or others change this one all the time.
        """
        for _ in range(_TRIES):
            row = self._run("SELECT value FROM sessions WHERE name = ?", name).fetchone()
            if row is None:
                if fresh is None:
                    raise UnknownSessionError(f"there is no session {name}, or newer ones took its place; open /{name}")
                self.put(name, fresh, "IGNORE")
                continue
            old = _EPISODE.validate_json(row[0])
            new = change(old)
            value = row[0] if new is old else _EPISODE.dump_json(new).decode()  # most requests only look
            written = f"UPDATE sessions SET value = ?, used = {_NEXT} WHERE name = ? AND value = ?"
            if self._run(written, value, name, row[0]).rowcount:
                return new
        raise sqlite3.OperationalError(f"session {name!r} was changed by others {_TRIES} times in a row")
