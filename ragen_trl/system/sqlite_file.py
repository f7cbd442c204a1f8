"""A SQLite file of one table: a missing file is created, one with anything else in it is refused."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ragen_trl.errors import OptionError


@contextmanager
def opened(path: str | Path, table: str, purpose: str) -> Iterator[sqlite3.Connection]:
    """A transaction on the file, in which no other process or thread writes; undone as a whole by an error.

    ``table`` is the statement that creates the table, ``purpose`` says in messages what the file is. A writer in
    another process is waited for half a minute. `OptionError` if the file is not SQLite, or cannot be used.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as database, database:
            database.execute("BEGIN IMMEDIATE")
            found = [statement for (statement,) in database.execute("SELECT sql FROM sqlite_master")]
            if not found:
                database.execute(table)
            elif found != [table]:
                raise sqlite3.DatabaseError("it holds other tables: another program's, or another version's")
            yield database
    except (sqlite3.Error, OSError) as error:
        raise OptionError(
            f"{path} cannot be used as {purpose} ({error}); if another program holds it, end that one; if it is "
            "damaged or something else, name another file or move this one away"
        ) from error
