"""Files and folders are whole or do not count, and nothing that is read from them is trusted.

A file is written as ``<name>.partial`` and gets its name when it is on the disk: without the ``fsync`` before the
rename, a power cut leaves empty files under the final name. A folder is whole if its ``manifest.json``, which is
written last, lists all its other files with their sizes and SHA-256.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ragen_trl.errors import REPEAT, DiskError, OptionError, UserError

MANIFEST = "manifest.json"
_LARGEST = 1 << 28  # bytes of JSON that are read
# How Python, safetensors and torch say EIO, EFBIG, ENOSPC and EDQUOT, which is 69 on a Mac.
_OF_DISKS = re.compile(r"(Errno|os error) (5|27|28|122|69)\b|PytorchStreamWriter failed|unexpected pos \d")
_Json = TypeVar("_Json", dict[str, Any], list[Any])


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """For what is made of a file that anybody may have written: each failure is an `OptionError` with its name."""
    try:
        yield
    except Exception as error:
        said = repr(error) if isinstance(error, LookupError) else error
        raise OptionError(f"{path} is damaged ({said}); {remedy}") from error


def read_json(path: Path, kind: type[_Json], remedy: str) -> _Json:
    """The object (``dict``) or list in a JSON file. No other function reads one.

    Raises:
        FileNotFoundError: If there is no such file.
        OptionError: With its name and the ``remedy``, if it is no file, too large, not UTF-8, not JSON or of another
            kind.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; {remedy}")
    with reading(path, remedy):
        if not path.is_file() or path.stat().st_size > _LARGEST:
            raise ValueError(f"it is no file, or has more than {_LARGEST} bytes")
        return parsed(path.read_text(encoding="utf-8"), kind)


def parsed(text: str, kind: type[_Json]) -> _Json:
    """The object or list in a text of JSON, as in `read_json`; `ValueError` or `RecursionError` for anything else."""
    found = json.loads(text)
    if not isinstance(found, kind):
        raise ValueError(f"it holds a {type(found).__name__}, not a {kind.__name__}")
    return found


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """For what writes a file or folder: where the disk is full or broken, a `DiskError` with its name."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not _OF_DISKS.search(str(error)):
            raise
        raise DiskError(f"{path} could not be written ({error}); free some space. {REPEAT}") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8. A reader sees the old file, the new one or none, and never half of one."""
    with replacing(path) as partial:
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file. After the block it replaces the one at ``path``; after an error it is removed."""
    partial = path.with_name(f"{path.name}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            _finish(partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _finish(path: Path) -> None:
    """Bring a file to the disk, for everybody to read whom the umask lets: safetensors writes for the owner alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    with suppress(OSError):  # file systems without modes
        path.chmod(path.stat().st_mode & 0o111 | 0o666 & ~mask)
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def clear(folder: Path, *kept: str) -> None:
    """Delete what is in a folder, but for the names that are ``kept``."""
    for one in folder.iterdir():
        if one.name not in kept:
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()


def unseal(folder: Path, facts: Mapping[str, Any]) -> None:
    """Make an empty folder that is to be written; until it is sealed it counts as damaged, and has ``facts``."""
    write_atomically(folder / MANIFEST, json.dumps(facts))
    clear(folder, MANIFEST)


def seal(folder: Path, facts: Mapping[str, Any], files: str = "**/*") -> None:
    """Write the ``manifest.json`` of a finished folder, ``facts`` in it, when all its ``files`` are on the disk."""
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.glob(files)) if path.is_file()]
    names = [name for name in names if name != MANIFEST]
    for name in names:
        _finish(folder / name)
    write_atomically(folder / MANIFEST, json.dumps({**facts, "files": _entries(folder, names)}, indent=2))


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `seal` wrote; errors are those of `read_json`."""
    return read_json(folder / MANIFEST, dict, "copy the folder again")


def damage(folder: Path, pattern: str = "*", contents: bool = False) -> str:
    """What is wrong with a sealed folder: "optimizer.pt has 0 bytes instead of 8"; empty if it is whole.

    Files that match the ``pattern`` are compared by their sizes and, to find changed ``contents``, hashes.
    """
    try:
        if (listed := read_manifest(folder).get("files")) is None:
            return "it was not written to its end"
        wanted = {name: known for name, known in listed.items() if Path(name).match(pattern)}
        for name, known in wanted.items():
            if not (folder / name).is_file():
                return f"{name} is missing"
            if (size := (folder / name).stat().st_size) != known["size"]:
                return f"{name} has {size} bytes instead of {known['size']}"
        found = _entries(folder, wanted) if contents else wanted
        changed = [name for name in wanted if found[name] != wanted[name]]
        return f"{changed[0]} has other contents than were written" if changed else ""
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except Exception as error:  # of what anybody may have written
        return f"{MANIFEST} is damaged: {error!r}"


def _entries(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    def entry(name: str) -> dict[str, Any]:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"size": file.tell(), "sha256": digest}

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(entry, names), strict=True))
