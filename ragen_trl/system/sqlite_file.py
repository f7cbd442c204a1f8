"""A SQLite file of a known format: a missing file is created, one of another format or version is refused."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

from ragen_trl.errors import UserError


class SqliteFile:
    """An open SQLite file. A derived class says what it holds, and raises its own ``error`` about the file.

    Where threads share the connection, the derived class must lock it. Another process that writes is waited for
    ``timeout`` seconds.

    Attributes:
        error: The class of error that is raised if the file is not of this format, or cannot be opened.
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
                self._create_or_check()
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

    def _create_or_check(self) -> None:
        with self._transaction() as database:
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables and not database.execute("PRAGMA application_id").fetchone()[0]:
                marks = (f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.version}")
                for statement in (*self.schema, *marks):
                    database.execute(statement)
            found = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if found != [self.application, self.version]:
            raise self.error(
                f"{self.path} belongs to another program, or has version {found[1]} of the format and not "
                f"{self.version}; name another file, or use the program that wrote it"
            )

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
