"""Answers of a server on disk, so that a killed evaluation asks nothing twice that has been paid for.

One SQLite file with a write-ahead log; every answer is a transaction of its own, on disk before it is used, so that a
killed process leaves it whole or not at all. What was asked is stored beside it, without the key. Only answers are kept
and no failures: a repeated command asks for those again. Left out: deleting and evicting (delete the file). A server
that puts another model behind the same name and address is not noticed; a file per evaluation, as the command makes
it, keeps such answers apart.
"""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

from ragen_trl.errors import UserError
from ragen_trl.system.sqlite_file import SqliteFile


class ApiCacheError(UserError, ValueError):
    """The file cannot be used as a cache of answers."""


class ApiCache(SqliteFile):
    """Answers by request, in a SQLite file that threads and processes may share.

    Args:
        path: The file; it and its folder are made if they are missing.
        timeout: Seconds to wait for another process that writes.

    Raises:
        ApiCacheError: If the file is not SQLite, belongs to something else, has another version, or cannot be opened.
    """

    error = ApiCacheError
    purpose = "a cache of answers"
    application = 0x41504943  # "APIC"
    version = 1
    schema = (
        "CREATE TABLE answers (digest TEXT PRIMARY KEY, request TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID",
    )
    # The log stays as it was where the disk cannot have one; an answer is worth a flush.
    pragmas = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")

    def __init__(self, path: str | Path, timeout: float = 30.0) -> None:
        super().__init__(path, timeout, threads=True)
        self._lock = threading.Lock()  # one connection, one thread at a time

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


def _canonical(request: dict[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("ascii")).hexdigest()
