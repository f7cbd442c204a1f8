"""Answers of a server on disk, so that a killed evaluation asks nothing twice that has been paid for.

One SQLite file with a write-ahead log; every answer is a transaction of its own, on disk before it is used, so that a
killed process leaves it whole or not at all. What was asked is stored beside it, without the key. Only answers are kept
and no failures: a repeated command asks for those again. Left out: deleting and evicting (delete the file). A server
that puts another model behind the same name and address is not noticed; a file per evaluation, as the command makes
it, keeps such answers apart.
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragen_trl.errors import UserError

_APPLICATION = 0x41504943  # "APIC"
_VERSION = 1
_SCHEMA = (
    "CREATE TABLE answers (digest TEXT PRIMARY KEY, request TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


class ApiCacheError(UserError, ValueError):
    """The file cannot be used as a cache of answers."""


class ApiCache:
    """Answers by request, in a SQLite file that threads and processes may share.

    Args:
        path: The file; it and its folder are made if they are missing.
        timeout: Seconds to wait for another process that writes.

    Raises:
        ApiCacheError: If the file is not SQLite, belongs to something else, has another version, or cannot be opened.
    """

    def __init__(self, path: str | Path, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()  # one connection, one thread at a time
        with self._named_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=timeout, isolation_level=None, check_same_thread=False
            )
        try:
            with self._named_errors():
                self._check_version()
                self._connection.execute("PRAGMA journal_mode = WAL")  # stays as it was where the disk cannot
                self._connection.execute("PRAGMA synchronous = FULL")  # an answer is worth a flush
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> "ApiCache":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the log is merged into it."""
        self._connection.close()

    def get(self, request: dict[str, Any]) -> str | None:
        """The server's JSON for a request, or ``None``.

        Args:
            request: What the answer depends on: endpoint, model, options, messages, seed.

        Raises:
            ApiCacheError: If the file cannot be read.
        """
        with self._named_errors(), self._lock:
            return self._body(_canonical(request))

    def put(self, request: dict[str, Any], body: str) -> str:
        """Store an answer; returns the stored one, which is another process's if that came first.

        Raises:
            ApiCacheError: If the file cannot be written.
        """
        content = _canonical(request)
        with self._named_errors(), self._lock:
            self._connection.execute(
                "INSERT INTO answers VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (_digest(content), content, body)
            )
            stored = self._body(content)
        assert stored is not None
        return stored

    def __len__(self) -> int:
        with self._named_errors(), self._lock:
            (count,) = self._connection.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def _body(self, content: str) -> str | None:
        row = self._connection.execute("SELECT body FROM answers WHERE digest = ?", (_digest(content),)).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ApiCacheError(
                f"{self.path} cannot be used as a cache of answers ({error}); if another program holds it, end that; "
                "if it is something else or damaged, name another file or move this one away"
            ) from error

    def _check_version(self) -> None:
        """Make the table in a new file; refuse any file that is neither new nor ours."""
        if self._is_new():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if self._is_new():  # still, now that nobody else can write
                    for statement in _SCHEMA:
                        self._connection.execute(statement)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        if self._mark("application_id") != _APPLICATION:
            raise ApiCacheError(f"{self.path} is a SQLite file of another program; name another file")
        version = self._mark("user_version")
        if version != _VERSION:
            raise ApiCacheError(
                f"{self.path} has version {version} of the format, this program reads version {_VERSION}; "
                "name another file, or use the program that wrote it"
            )

    def _is_new(self) -> bool:
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return tables == 0 and self._mark("application_id") == 0

    def _mark(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def _canonical(request: dict[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("ascii")).hexdigest()
