"""A tree of files: folders in a root folder, and files that may say where they belong."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.tool import ToolError
from ragen_envs.tools.domain import Domain, Task, call, find, numbers, one, some

FOLDERS = ("photos", "music", "reports", "drafts", "archive", "games")
FILES = ("notes.txt", "plan.txt", "song.txt", "letter.txt", "list.txt", "recipe.txt", "poem.txt", "essay.txt")
NEW_NAMES = ("old.txt", "new.txt", "first.txt", "second.txt")


@dataclass
class Entry:
    """A file or, without content, a folder; the root has no parent."""

    id: int
    parent: int | None
    name: str
    content: str | None

    @property
    def kind(self) -> str:
        """Which of the two it is."""
        return "folder" if self.content is None else "file"


class Files(Domain):
    """Folders and files."""

    entries: list[Entry]
    purpose: ClassVar[str] = "Manage a tree of files."
    lookups: ClassVar[tuple[str, ...]] = ("find_entry", "list_folder", "read_file")
    changes: ClassVar[tuple[str, ...]] = ("move_entry", "rename_entry", "delete_entry")

    def find_entry(self, name: str) -> str:
        """Find a file or a folder by name.

        Args:
            name: Its name.
        """
        found = find("entry", self.entries, name=name)
        return f"{found.kind} {found.id}: {name}, in folder {found.parent}"

    def list_folder(self, folder_id: int) -> str:
        """List what is in a folder.

        Args:
            folder_id: Number of the folder.
        """
        find("folder", self.entries, id=folder_id, content=None)
        inside = sorted((each for each in self.entries if each.parent == folder_id), key=lambda each: each.id)
        return "\n".join(f"{each.kind} {each.id}: {each.name}" for each in inside) or "nothing"

    def read_file(self, file_id: int) -> str:
        """Read what a file says.

        Args:
            file_id: Number of the file.
        """
        return str(find("file", self._of_kind("file"), id=file_id).content)

    def move_entry(self, entry_id: int, folder_id: int) -> str:
        """Move a file or a folder into a folder.

        Args:
            entry_id: Number of the file or folder.
            folder_id: Number of the folder to move it into.
        """
        entry = self._movable(entry_id)
        above: int | None = find("folder", self.entries, id=folder_id, content=None).id
        while above is not None:
            if above == entry_id:
                raise ToolError("a folder cannot be in itself")
            above = find("folder", self.entries, id=above).parent
        entry.parent = folder_id
        return f"{entry_id} moved"

    def rename_entry(self, entry_id: int, name: str) -> str:
        """Give a file or a folder another name.

        Args:
            entry_id: Number of the file or folder.
            name: The new name.
        """
        entry = self._movable(entry_id)
        if any(each.name == name for each in self.entries if each is not entry):
            raise ToolError("the name is taken")
        entry.name = name
        return f"{entry_id} renamed"

    def delete_entry(self, entry_id: int) -> str:
        """Delete a file or an empty folder.

        Args:
            entry_id: Number of the file or folder.
        """
        entry = self._movable(entry_id)
        if any(each.parent == entry_id for each in self.entries):
            raise ToolError("the folder is not empty")
        self.entries.remove(entry)
        return f"{entry_id} deleted"

    def state(self) -> Any:
        """All entries."""
        return sorted((astuple(entry) for entry in self.entries), key=lambda entry: entry[0])

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument."""
        entries = sorted(self.entries, key=lambda entry: entry.id)
        if argument == "name":
            return [*(entry.name for entry in entries), *NEW_NAMES]
        kind = argument.removesuffix("_id")
        return [entry.id for entry in entries if kind in ("entry", entry.kind)] or [0]

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        file, second = some(rng, self._of_kind("file"), 2)
        number, name, other = file.id, file.name, second.name
        folders = [each for each in self._of_kind("folder") if each.parent is not None]
        target = one(rng, [each for each in folders if each.id not in (file.parent, second.parent)])
        folder, into = target.id, target.name
        finding, look = call("find_entry", name=name), call("find_entry", name=into)
        move = call("move_entry", entry_id=number, folder_id=folder)
        also, move_also = call("find_entry", name=other), call("move_entry", entry_id=second.id, folder_id=folder)
        delete = call("delete_entry", entry_id=number)
        new = one(rng, NEW_NAMES) if length in (2, 6) else ""
        rename = call("rename_entry", entry_id=number, name=new)
        if length == 2:
            tasks = (Task(f"Delete {name}.", (finding, delete)), Task(f"Rename {name} to {new}.", (finding, rename)))
            return one(rng, tasks)
        if length == 3:
            return Task(f"Move {name} to the folder {into}.", (finding, look, move))
        if length == 4:
            home = str(file.content).removeprefix("belongs in ")
            there = next(each.id for each in folders if each.name == home)
            calls = (finding, call("read_file", file_id=number), call("find_entry", name=home))
            text = f"Move {name} to the folder that it names."
            return Task(text, (*calls, call("move_entry", entry_id=number, folder_id=there)))
        if length == 5:
            return Task(f"Move {name} and {other} to the folder {into}.", (finding, look, move, also, move_also))
        text = f"Move {name} and {other} to the folder {into}, and rename the former to {new}."
        return Task(text, (finding, look, move, rename, also, move_also))

    def _of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    def _movable(self, number: int) -> Entry:
        return find("entry", [entry for entry in self.entries if entry.parent is not None], id=number)

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 20)
        root = free.pop()
        folders = [Entry(free.pop(), root, name, None) for name in some(rng, FOLDERS, 4)]
        self.entries = [Entry(root, None, "home", None), *folders]
        for name in some(rng, FILES, 6):
            parent = one(rng, folders)
            home = one(rng, [each for each in folders if each is not parent])
            self.entries.append(Entry(free.pop(), parent.id, name, f"belongs in {home.name}"))
