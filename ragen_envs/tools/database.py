"""A small SQLite database in memory that can be copied, pickled, and compared with another one."""

import sqlite3
from collections.abc import Sequence
from typing import Any

Row = tuple[Any, ...]


class Database:
    """Tables in memory.

    A connection can be neither copied nor pickled, so a copy is made of the database's bytes. Any thread may use it,
    one at a time, as environments are used.

    Args:
        script: SQL that makes the tables.
    """

    def __init__(self, script: str) -> None:
        self._connection = _connect()
        self._connection.executescript(script)

    def rows(self, query: str, *values: object) -> list[Row]:
        """What a query finds."""
        return self._connection.execute(query, values).fetchall()

    def row(self, query: str, *values: object) -> Row | None:
        """The first row that a query finds, or None."""
        found: Row | None = self._connection.execute(query, values).fetchone()
        return found

    def change(self, statement: str, *values: object) -> None:
        """Carries out a statement that changes rows."""
        self._connection.execute(statement, values)

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Adds whole rows."""
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def next_number(self, table: str) -> int:
        """The number of a new row: one above all in the column ``id``, and at least 100."""
        (last,) = self.rows(f"SELECT coalesce(max(id), 99) FROM {table}")[0]
        return max(int(last), 99) + 1

    def __getstate__(self) -> bytes:
        """The bytes of the database, for copies and pickles."""
        return self._connection.serialize()

    def __setstate__(self, state: bytes) -> None:
        """Makes a database of these bytes."""
        self._connection = _connect()
        self._connection.deserialize(state)


def _connect() -> sqlite3.Connection:
    # Every statement is its own transaction, so that a copy has all of them.
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
