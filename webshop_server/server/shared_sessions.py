"""Sessions in a SQLite file, so any of several processes can answer any request.

No request has to be routed, a process that is killed takes no session with it, and a change is written only if nobody
else wrote meanwhile, so a purchase is made once. The file lives as long as the server and is not synchronised to the
disk. Values are pickled; the file is private to the user who runs the server, and only the routes write to it.
"""

import os
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic

from webshop_server.server.sessions import (
    DEFAULT_MAX_SESSIONS,
    DEFAULT_TTL,
    BusySessionError,
    Result,
    UnknownSessionError,
    Value,
    check_bounds,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_use ON sessions (used);
"""
_BUSY_SECONDS = 10.0
_TRIES = 200
_PUTS_BETWEEN_CLEANINGS = 64


class SharedSessions(Generic[Value]):
    """The same as `Sessions`, shared by all processes that open the same file.

    At most `max_sessions` and 64 more for each process are kept, because counting takes longer than a step.
    """

    def __init__(
        self,
        path: str | Path,
        max_sessions: int = DEFAULT_MAX_SESSIONS,
        ttl: float = DEFAULT_TTL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Says where the sessions are. The file is opened, or made, at first use or by `open`.

        Args:
            path: The file. Its folder must be writable by this user only.
            max_sessions: About how many are kept, at least 1.
            ttl: Seconds without use after which one is forgotten.
            clock: Gives seconds, the same in all processes.

        Raises:
            ValueError: If one of the bounds is not positive.
        """
        check_bounds(max_sessions, ttl)
        self._max, self._ttl, self._clock = max_sessions, ttl, clock
        self._path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._puts = 0

    def open(self) -> None:
        """Opens the file in this process. SQLite does not allow to use a file after a fork that was opened before.

        Raises:
            sqlite3.Error: If the file cannot be used.
        """
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        os.chmod(self._path, 0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
        self._connection = connection

    def close(self) -> None:
        """Closes the file. Using the sessions again opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                self.open()
            assert self._connection is not None
            yield self._connection

    def __len__(self) -> int:
        """Number of sessions that are not too old."""
        with self._database() as database:
            oldest = self._clock() - self._ttl
            (count,) = database.execute("SELECT count(*) FROM sessions WHERE used >= ?", (oldest,)).fetchone()
        return int(count)

    def put(self, key: str, value: Value) -> None:
        """Makes a session, or replaces one. See `SessionStore`."""
        with self._database() as database:
            self._put(database, key, value)

    def begin(self, key: str, fresh: Value, is_over: Callable[[Value], bool]) -> tuple[Value, bool]:
        """Goes on or makes a session. See `SessionStore`."""
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")  # no other process writes between the look-up and the creation
            try:
                row = database.execute("SELECT value, used FROM sessions WHERE key = ?", (key,)).fetchone()
                now = self._clock()
                if row is not None and row[1] >= now - self._ttl:
                    value: Value = pickle.loads(row[0])
                    if not is_over(value):
                        database.execute("UPDATE sessions SET used = ? WHERE key = ?", (now, key))
                        return value, False
                self._put(database, key, fresh)
                return fresh, True
            finally:
                database.execute("COMMIT")

    def _put(self, database: sqlite3.Connection, key: str, value: Value) -> None:
        now = self._clock()
        database.execute(
            "INSERT INTO sessions VALUES (?, ?, 0, ?) ON CONFLICT (key) DO UPDATE "
            "SET value = excluded.value, version = version + 1, used = excluded.used",
            (key, pickle.dumps(value), now),
        )
        self._puts += 1
        if self._puts % _PUTS_BETWEEN_CLEANINGS == 0 or self._max < _PUTS_BETWEEN_CLEANINGS:
            self._forget_old(database, now)

    def _forget_old(self, database: sqlite3.Connection, now: float) -> None:
        database.execute("DELETE FROM sessions WHERE used < ?", (now - self._ttl,))
        database.execute(
            "DELETE FROM sessions WHERE key IN (SELECT key FROM sessions ORDER BY used "
            "LIMIT max(0, (SELECT count(*) FROM sessions) - ?))",
            (self._max,),
        )

    def get(self, key: str) -> Value:
        """The session. See `SessionStore`."""
        return self.update(key, lambda value: (value, value))

    def update(self, key: str, change: Callable[[Value], tuple[Value, Result]]) -> Result:
        """Changes a session. See `SessionStore`.

        Raises:
            UnknownSessionError: If there is none.
            BusySessionError: If others changed it each time before this change was written.
        """
        for _ in range(_TRIES):
            with self._database() as database:
                row = database.execute("SELECT value, version, used FROM sessions WHERE key = ?", (key,)).fetchone()
            now = self._clock()
            if row is None or row[2] < now - self._ttl:
                raise UnknownSessionError(key)
            old: Value = pickle.loads(row[0])
            new, result = change(old)
            with self._database() as database:
                if new is old:
                    database.execute("UPDATE sessions SET used = ? WHERE key = ?", (now, key))
                    return result
                done = database.execute(
                    "UPDATE sessions SET value = ?, version = version + 1, used = ? WHERE key = ? AND version = ?",
                    (pickle.dumps(new), now, key, row[1]),
                )
            if done.rowcount:
                return result
        raise BusySessionError(f"session {key!r} was changed by others {_TRIES} times in a row")

    def remove(self, key: str) -> bool:
        """Forgets a session. See `SessionStore`."""
        with self._database() as database:
            return database.execute("DELETE FROM sessions WHERE key = ?", (key,)).rowcount > 0
