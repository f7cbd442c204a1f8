"""A tree of files: folders in a root folder, and files that may say where they belong."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.tool import ToolError
from ragen_envs.tools.domain import Domain, Task, Words, call, numbers, one, some

FOLDERS = ("photos", "music", "reports", "drafts", "archive", "games")
FILES = ("notes.txt", "plan.txt", "song.txt", "letter.txt", "list.txt", "recipe.txt", "poem.txt", "essay.txt")
NEW_NAMES = ("old.txt", "new.txt", "first.txt", "second.txt")


class Files(Domain):
    """Folders and files."""

    script: ClassVar[str] = "CREATE TABLE entries (id INTEGER, parent INTEGER, name TEXT, content TEXT);"
    purpose: ClassVar[str] = "Manage a tree of files."
    contents: ClassVar[tuple[str, ...]] = ("SELECT * FROM entries ORDER BY id",)
    lookups: ClassVar[tuple[str, ...]] = ("find_entry", "list_folder", "read_file")
    other_words: ClassVar[Words] = {
        "find_entry": ("locate", "Locate something by its name.", {"name": ("title", "What it is called.")}),
        "list_folder": ("look_into", "Look into a directory.", {"folder_id": ("directory", "Number of it.")}),
        "read_file": ("show_text", "Show the text of a document.", {"file_id": ("document", "Number of it.")}),
        "move_entry": (
            "put_into",
            "Put something into a directory.",
            {"entry_id": ("item", "Number of the thing."), "folder_id": ("directory", "Number of the directory.")},
        ),
        "rename_entry": (
            "call_it",
            "Give something another name.",
            {"entry_id": ("item", "Number of the thing."), "name": ("title", "The new name.")},
        ),
        "delete_entry": ("throw_away", "Throw something away.", {"entry_id": ("item", "Number of the thing.")}),
    }

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The tools in their first wording."""
        looking = (self.find_entry, self.list_folder, self.read_file)
        return (*looking, self.move_entry, self.rename_entry, self.delete_entry)

    def find_entry(self, name: str) -> str:
        """Find a file or a folder by name.

        Args:
            name: Its name.
        """
        query = "SELECT id, parent, content FROM entries WHERE name = ?"
        number, parent, content = self._only(query, name, what="entry")
        return f"{'folder' if content is None else 'file'} {number}: {name}, in folder {parent}"

    def list_folder(self, folder_id: int) -> str:
        """List what is in a folder.

        Args:
            folder_id: Number of the folder.
        """
        self._check_folder(folder_id)
        found = self.database.rows("SELECT id, name, content FROM entries WHERE parent = ? ORDER BY id", folder_id)
        lines = [f"{'folder' if content is None else 'file'} {number}: {name}" for number, name, content in found]
        return "\n".join(lines) or "nothing"

    def read_file(self, file_id: int) -> str:
        """Read what a file says.

        Args:
            file_id: Number of the file.
        """
        query = "SELECT content FROM entries WHERE id = ? AND content IS NOT NULL"
        return str(self._only(query, file_id, what="file")[0])

    def move_entry(self, entry_id: int, folder_id: int) -> str:
        """Move a file or a folder into a folder.

        Args:
            entry_id: Number of the file or folder.
            folder_id: Number of the folder to move it into.
        """
        self._check_entry(entry_id)
        self._check_folder(folder_id)
        above: int | None = folder_id
        while above is not None:
            if above == entry_id:
                raise ToolError("a folder cannot be in itself")
            (above,) = self._only("SELECT parent FROM entries WHERE id = ?", above, what="folder")
        self.database.change("UPDATE entries SET parent = ? WHERE id = ?", folder_id, entry_id)
        return f"{entry_id} moved"

    def rename_entry(self, entry_id: int, name: str) -> str:
        """Give a file or a folder another name.

        Args:
            entry_id: Number of the file or folder.
            name: The new name.
        """
        self._check_entry(entry_id)
        if self.database.row("SELECT id FROM entries WHERE name = ? AND id <> ?", name, entry_id):
            raise ToolError("the name is taken")
        self.database.change("UPDATE entries SET name = ? WHERE id = ?", name, entry_id)
        return f"{entry_id} renamed"

    def delete_entry(self, entry_id: int) -> str:
        """Delete a file or an empty folder.

        Args:
            entry_id: Number of the file or folder.
        """
        self._check_entry(entry_id)
        if self.database.row("SELECT id FROM entries WHERE parent = ?", entry_id):
            raise ToolError("the folder is not empty")
        self.database.change("DELETE FROM entries WHERE id = ?", entry_id)
        return f"{entry_id} deleted"

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument."""
        queries = {
            "name": "SELECT name FROM entries ORDER BY id",
            "entry_id": "SELECT id FROM entries ORDER BY id",
            "file_id": "SELECT id FROM entries WHERE content IS NOT NULL ORDER BY id",
            "folder_id": "SELECT id FROM entries WHERE content IS NULL ORDER BY id",
        }
        found = [value for (value,) in self.database.rows(queries[argument])]
        return [*found, *NEW_NAMES] if argument == "name" else found or [0]

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        files = self.database.rows("SELECT id, name, parent, content FROM entries WHERE content IS NOT NULL")
        (number, name, parent, content), (second, other, its_parent, _) = some(rng, files, 2)
        folders = self.database.rows("SELECT id, name FROM entries WHERE content IS NULL AND parent IS NOT NULL")
        folder, into = one(rng, [each for each in folders if each[0] not in (parent, its_parent)])
        find, look = call("find_entry", name=name), call("find_entry", name=into)
        move = call("move_entry", entry_id=number, folder_id=folder)
        also, move_also = call("find_entry", name=other), call("move_entry", entry_id=second, folder_id=folder)
        delete = call("delete_entry", entry_id=number)
        if length == 2:
            new = one(rng, NEW_NAMES)
            rename = call("rename_entry", entry_id=number, name=new)
            return one(rng, (Task(f"Delete {name}.", (find, delete)), Task(f"Rename {name} to {new}.", (find, rename))))
        if length == 3:
            return Task(f"Move {name} to the folder {into}.", (find, look, move))
        if length == 4:
            home = str(content).removeprefix("belongs in ")
            there = next(number for number, called in folders if called == home)
            calls = (find, call("read_file", file_id=number), call("find_entry", name=home))
            text = f"Move {name} to the folder that it names."
            return Task(text, (*calls, call("move_entry", entry_id=number, folder_id=there)))
        if length == 5:
            return Task(f"Move {name} and {other} to the folder {into}.", (find, look, move, also, move_also))
        new = one(rng, NEW_NAMES)
        rename = call("rename_entry", entry_id=number, name=new)
        text = f"Move {name} and {other} to the folder {into}, and rename the former to {new}."
        return Task(text, (find, look, move, rename, also, move_also))

    def _check_entry(self, number: int) -> None:
        self._only("SELECT id FROM entries WHERE id = ? AND parent IS NOT NULL", number, what="entry")

    def _check_folder(self, number: int) -> None:
        self._only("SELECT id FROM entries WHERE id = ? AND content IS NULL", number, what="folder")

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 20)
        root = free.pop()
        folders = [(free.pop(), root, name, None) for name in some(rng, FOLDERS, 4)]
        self.database.insert("entries", [(root, None, "home", None), *folders])
        for name in some(rng, FILES, 6):
            parent = one(rng, folders)
            home = one(rng, [each for each in folders if each != parent])
            self.database.insert("entries", [(free.pop(), parent[0], name, f"belongs in {home[2]}")])
