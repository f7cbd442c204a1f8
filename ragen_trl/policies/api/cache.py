"""Answers of a server on disk, so a killed evaluation does not pay for any answer twice.

One SQLite file with a write-ahead log. Every answer is its own transaction and on disk before it is used. The request
is stored with it, without the key. What failed is asked again. The cache does not notice if a server changes the model
of a name and address.
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
        path: The file. It and its folder are made if they do not exist.
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
    # If the disk cannot have a write-ahead log, the journal mode stays as it was. An answer is worth a flush.
    pragmas = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")

    def __init__(self, path: str | Path, timeout: float = 30.0) -> None:
        super().__init__(path, timeout, threads=True)
        self._lock = threading.Lock()  # one connection for one thread at a time

    def get(self, request: dict[str, Any]) -> str | None:
        """The stored JSON for a request, which is all that the answer depends on; ``None`` if there is none."""
        with self._named_errors(), self._lock:
            return self._body(_canonical(request))

    def put(self, request: dict[str, Any], body: str) -> str:
        """Store an answer. Returns the stored one, which is another process's answer if that came first."""
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
