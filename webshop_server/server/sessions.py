"""Sessions in one SQLite file, so any process that serves the same store can answer any request.

A process that is killed takes no session with it, and a change is written only if nobody else wrote meanwhile, so a
purchase is made once. The file is bounded: the least recently used sessions make room. Values are JSON; the file is not
synchronised to the disk.
"""

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from webshop_server.goals.reward import RewardParts
from webshop_server.goals.tiers import Progress
from webshop_server.store.filters import Filter
from webshop_server.store.shop import Episode, Rules
from webshop_server.store.state import PageState

MAX_SESSIONS = 10_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    name TEXT PRIMARY KEY, value TEXT NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_use ON sessions (used);
"""
_BUSY_SECONDS = 10.0
_TRIES = 200
_NEW_BETWEEN_CLEANINGS = 64


class UnknownSessionError(KeyError):
    """There is no session of this name: it never was, or it is over."""


class BusySessionError(RuntimeError):
    """Others keep changing this session."""


@dataclass(frozen=True)
class Visit:
    """What is remembered of a session."""

    episode: Episode  # where it stands
    carries: bool = False  # whether its pages carry the store's answer, because it was begun with rules of its own

    def as_json(self) -> str:
        """As JSON, for `read`."""
        return json.dumps(self, default=vars)

    @classmethod
    def read(cls, text: str) -> "Visit":
        """Reads what `as_json` wrote."""
        known = json.loads(text, object_hook=lambda fields: {name: _tuples(value) for name, value in fields.items()})
        told = known["episode"]
        state, parts = told["state"], told["parts"]
        made = {
            "rules": Rules(**told["rules"]),
            "state": PageState(**{**state, "filters": tuple(Filter(**one) for one in state["filters"])}),
            "parts": parts and RewardParts(**parts),
            "progress": Progress(**told["progress"]),
        }
        return cls(Episode(**{**told, **made}), known["carries"])


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


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
    """Visits by name. Safe to use from many threads and processes.

    The least recently used ones are removed when there are too many. At most `most` and 64 more for each process are
    kept, because counting takes longer than a step.
    """

    def __init__(self, path: str | Path, most: int = MAX_SESSIONS) -> None:
        """Says where the sessions are: in a folder that only this user can write.

        Each process opens the file, or makes it, at its first use.

        Raises:
            ValueError: If none may be kept.
        """
        if most < 1:
            raise ValueError(f"max_sessions={most!r} must be positive")
        self._path, self._most = Path(path), most
        self._process, self._lock = os.getpid(), threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._made = 0

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        if self._process != os.getpid():  # neither a lock nor a connection of SQLite survives a fork
            self._process, self._lock, self._connection = os.getpid(), threading.Lock(), None
        with self._lock:
            if self._connection is None:
                with FileLock(f"{self._path}.lock"):  # while it is made, others would find it locked
                    self._connection = self._open()
            yield self._connection

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        os.chmod(self._path, 0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
        return connection

    def check(self) -> None:
        """Writes something, to see that sessions can be kept; `sqlite3.Error` if not."""
        self.put("", Visit(Episode(0)))  # no session has this name

    def put(self, name: str, visit: Visit, otherwise: str = "REPLACE") -> None:
        """Makes a session; one that is there is replaced, or kept if `otherwise` is "IGNORE"."""
        with self._database() as database:
            row = (name, visit.as_json(), time.time())
            database.execute(f"INSERT OR {otherwise} INTO sessions VALUES (?, ?, ?)", row)
            self._made += 1
            if self._made % _NEW_BETWEEN_CLEANINGS == 0 or self._most < _NEW_BETWEEN_CLEANINGS:
                database.execute(
                    "DELETE FROM sessions WHERE name IN (SELECT name FROM sessions ORDER BY used "
                    "LIMIT max(0, (SELECT count(*) FROM sessions) - ?))",
                    (self._most,),
                )

    def begin(self, name: str, fresh: Visit) -> Visit:
        """The session that goes on under this name, or a fresh one where there is none or it has bought.

        Of many callers who begin at a time, one makes the session.
        """
        try:
            return self.update(name, lambda old: fresh if old.episode.done else old)
        except UnknownSessionError:
            self.put(name, fresh, "IGNORE")
            return self.update(name)

    def update(self, name: str, change: Callable[[Visit], Visit] = lambda visit: visit) -> Visit:
        """Replaces a session by what `change` makes of it, and returns that. It counts as used.

        No two changes of one session overlap. `change` may be called again if it met another; it must be pure.

        Raises:
            UnknownSessionError: If there is none.
            BusySessionError: If others changed it each time before this change was written.
        """
        for _ in range(_TRIES):
            with self._database() as database:
                row = database.execute("SELECT value FROM sessions WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise UnknownSessionError(name)
            old = Visit.read(row[0])
            new = change(old)
            text = row[0] if new is old else new.as_json()  # most requests only look
            with self._database() as database:
                done = database.execute(
                    "UPDATE sessions SET value = ?, used = ? WHERE name = ? AND value = ?",
                    (text, time.time(), name, row[0]),
                )
            if done.rowcount:
                return new
        raise BusySessionError(f"session {name!r} was changed by others {_TRIES} times in a row")
