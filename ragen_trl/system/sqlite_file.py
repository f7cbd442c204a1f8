"""A SQLite file of a known format: a missing file is created, one of another format or version is refused."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

from ragen_trl.errors import UserError


class SqliteFile:
    """An open SQLite file. A derived class says what it holds.

    Where threads share the connection, the derived class must lock it. Another process that writes is waited for
    ``timeout`` seconds.
    """

    error: ClassVar[type[UserError]]  # raised if the file is not of this format, or cannot be opened
    purpose: ClassVar[str]  # what the file is, in messages
    application: ClassVar[int]  # ``application_id`` of the format
    version: ClassVar[int]  # ``user_version``
    schema: ClassVar[tuple[str, ...]]  # statements that create the tables
    pragmas: ClassVar[tuple[str, ...]] = ()  # statements for every connection

    def __init__(self, path: str | Path, timeout: float = 30.0, threads: bool = False) -> None:
        self.path = Path(path)
        marks = {"application_id": self.application, "user_version": self.version}
        with self._named_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=timeout, isolation_level=None, check_same_thread=not threads
            )
            try:
                with self._transaction() as database:
                    if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
                        for statement in (*self.schema, *(f"PRAGMA {name} = {value}" for name, value in marks.items())):
                            database.execute(statement)
                    found = {name: database.execute(f"PRAGMA {name}").fetchone()[0] for name in marks}
                if found != marks:
                    raise sqlite3.DatabaseError(f"it has {found}, not {marks}: another program's, or another version")
                for statement in self.pragmas:
                    self._connection.execute(statement)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """No other process writes between reading and changing; undone as a whole by an error."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self.error(
                f"{self.path} cannot be used as {self.purpose} ({error}); if another program holds it, end that one; "
                "if it is damaged or something else, name another file or move this one away"
            ) from error
