"""Sessions in one SQLite file, so any process that serves the same store can answer any request.

A process that is killed takes no session with it, and a change is written only if nobody else wrote meanwhile, so a
purchase is made once. The file is bounded in sessions, and a session in time: by the machine's monotonic clock, which
all processes share and which no change of the date moves. Values are JSON; the file is not synchronised to the disk.
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

from webshop_server.goals.reward import RewardParts
from webshop_server.goals.tiers import Progress
from webshop_server.store.filters import Filter
from webshop_server.store.shop import Episode, Rules
from webshop_server.store.state import PageState

MAX_SESSIONS = 10_000
TTL = 3600.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    name TEXT PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL, used REAL NOT NULL
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
    """What is remembered of a session.

    Attributes:
        episode: Where it stands.
        carries: Whether its pages carry the store's answer, because it was begun with rules of its own.
    """

    episode: Episode
    carries: bool = False

    def as_json(self) -> str:
        """As JSON, for `read`."""
        return json.dumps(self, default=vars)

    @classmethod
    def read(cls, text: str) -> "Visit":
        """Reads what `as_json` wrote."""
        known = json.loads(text)
        told = known["episode"]
        state, parts = told["state"], told["parts"]
        for name in ("keywords", "seen"):
            state[name] = tuple(state[name])
        state["options"] = tuple((name, value) for name, value in state["options"])
        state["filters"] = tuple(Filter(**one) for one in state["filters"])
        if parts is not None:
            met = {name: tuple(parts[name]) for name in ("attributes_met", "options_met")}
            parts = RewardParts(**{**parts, **met})
        rules, progress = Rules(**told["rules"]), Progress(**told["progress"])
        made = {**told, "rules": rules, "state": PageState(**state), "parts": parts, "progress": progress}
        return cls(Episode(**made), known["carries"])


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

    The least recently used one is removed when there are too many, and each when it was not used for a while. At most
    `most` and 64 more for each process are kept, because counting takes longer than a step.
    """

    def __init__(
        self,
        path: str | Path,
        most: int = MAX_SESSIONS,
        ttl: float = TTL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Says where the sessions are. Each process opens the file, or makes it, at its first use.

        Args:
            path: The file. Its folder must be writable by this user only.
            most: About how many are kept, at least 1.
            ttl: Seconds without use after which one is forgotten.
            clock: Gives seconds, the same in all processes.

        Raises:
            ValueError: If one of the bounds is not positive.
        """
        if most < 1 or not ttl > 0:
            raise ValueError(f"max_sessions={most!r} and ttl={ttl!r} must be positive")
        self._path, self._most, self._ttl, self._clock = Path(path), most, ttl, clock
        self._process, self._lock = os.getpid(), threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._made = 0

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        if self._process != os.getpid():  # neither a lock nor a connection of SQLite survives a fork
            self._process, self._lock, self._connection = os.getpid(), threading.Lock(), None
        with self._lock:
            if self._connection is None:
                self._connection = self._open()
            yield self._connection

    def _open(self) -> sqlite3.Connection:
        for wait in (*[0.05] * 100, 0.0):  # processes that make the file at the same time may find it locked
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                os.chmod(self._path, 0o600)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = OFF")
                connection.executescript(_SCHEMA)
                return connection
            except sqlite3.OperationalError:
                connection.close()
                if not wait:
                    raise
                time.sleep(wait)
        raise AssertionError("the last wait is 0")

    def check(self) -> None:
        """Writes something, to see that sessions can be kept; `sqlite3.Error` if not."""
        self.put("", Visit(Episode(0)))  # no session has this name

    def _ages(self) -> tuple[float, float]:
        """The first and the last time of use that count. One after now was before the machine started again."""
        now = self._clock()
        return now - self._ttl, now

    def put(self, name: str, visit: Visit) -> None:
        """Makes a session, or replaces one."""
        with self._database() as database:
            self._write(database, name, visit, "")

    def begin(self, name: str, fresh: Visit) -> Visit:
        """The session that goes on under this name, or a fresh one where there is none or it has bought.

        Of many callers who begin at a time, one makes the session. It counts as used.
        """
        try:
            return self.update(name, lambda old: fresh if old.episode.done else old)
        except UnknownSessionError:
            with self._database() as database:
                self._write(database, name, fresh, "WHERE used NOT BETWEEN ? AND ?", *self._ages())
            return self.get(name)

    def _write(self, database: sqlite3.Connection, name: str, visit: Visit, where: str, *bounds: float) -> None:
        now = self._clock()
        database.execute(
            "INSERT INTO sessions VALUES (?, ?, 0, ?) ON CONFLICT (name) DO UPDATE "
            f"SET value = excluded.value, version = version + 1, used = excluded.used {where}",
            (name, visit.as_json(), now, *bounds),
        )
        self._made += 1
        if self._made % _NEW_BETWEEN_CLEANINGS == 0 or self._most < _NEW_BETWEEN_CLEANINGS:
            database.execute("DELETE FROM sessions WHERE used NOT BETWEEN ? AND ?", self._ages())
            database.execute(
                "DELETE FROM sessions WHERE name IN (SELECT name FROM sessions ORDER BY used "
                "LIMIT max(0, (SELECT count(*) FROM sessions) - ?))",
                (self._most,),
            )

    def get(self, name: str) -> Visit:
        """The session; `UnknownSessionError` if there is none. It counts as used."""
        return self.update(name, lambda visit: visit)

    def update(self, name: str, change: Callable[[Visit], Visit]) -> Visit:
        """Replaces a session by what `change` makes of it, and returns that.

        No two changes of one session overlap. `change` may be called again if it met another; it must be pure.

        Raises:
            UnknownSessionError: If there is none.
            BusySessionError: If others changed it each time before this change was written.
        """
        for _ in range(_TRIES):
            with self._database() as database:
                row = database.execute(
                    "SELECT value, version FROM sessions WHERE name = ? AND used BETWEEN ? AND ?", (name, *self._ages())
                ).fetchone()
            if row is None:
                raise UnknownSessionError(name)
            old = Visit.read(row[0])
            new = change(old)
            with self._database() as database:
                if new is old:
                    database.execute("UPDATE sessions SET used = ? WHERE name = ?", (self._clock(), name))
                    return old
                done = database.execute(
                    "UPDATE sessions SET value = ?, version = version + 1, used = ? WHERE name = ? AND version = ?",
                    (new.as_json(), self._clock(), name, row[1]),
                )
            if done.rowcount:
                return new
        raise BusySessionError(f"session {name!r} was changed by others {_TRIES} times in a row")
