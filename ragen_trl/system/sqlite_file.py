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

    Raises:
        UserError: An `error`, if the file is not SQLite, belongs to another program, has another version, or cannot be
            opened.

    Attributes:
        error: The class of error that is raised about the file.
        purpose: What the file is, in messages.
        application: ``application_id`` of the format.
        version: ``user_version`` of the format.
        schema: Statements that create the tables.
        pragmas: Statements for every connection.
    """

    error: ClassVar[type[UserError]]
    purpose: ClassVar[str]
    application: ClassVar[int]
    version: ClassVar[int]
    schema: ClassVar[tuple[str, ...]]
    pragmas: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: str | Path, timeout: float = 30.0, threads: bool = False) -> None:
        self.path = Path(path)
        with self._named_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=timeout, isolation_level=None, check_same_thread=not threads
            )
        try:
            with self._named_errors():
                self._check_version()
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
        self._connection.execute("BEGIN IMMEDIATE")  # no other process writes between reading and changing
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # after some errors SQLite has rolled back already
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self.error(
                f"{self.path} cannot be used as {self.purpose} ({error}); if another program holds it, end that one; "
                "if it is damaged or something else, name another file or move this one away"
            ) from error

    def _check_version(self) -> None:
        """Create the tables in a new file; refuse a file that is neither new nor of this format."""
        if self._is_new():
            with self._transaction():
                if self._is_new():  # check again, now that no other process can write
                    marks = (f"application_id = {self.application}", f"user_version = {self.version}")
                    for statement in (*self.schema, *(f"PRAGMA {mark}" for mark in marks)):
                        self._connection.execute(statement)
        if self._mark("application_id") != self.application:
            raise self.error(f"{self.path} is a SQLite file of another program; name another file")
        version = self._mark("user_version")
        if version != self.version:
            raise self.error(
                f"{self.path} has version {version} of the format, this program reads version {self.version}; "
                "name another file, or use the program that wrote it"
            )

    def _is_new(self) -> bool:
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return tables == 0 and self._mark("application_id") == 0

    def _mark(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
