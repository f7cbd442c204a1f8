"""Arrays that belong to a catalogue, a search index say, in a folder that all processes map into memory together."""

import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

T = TypeVar("T")
Arrays: TypeAlias = dict[str, NDArray[Any]]
Make: TypeAlias = Callable[[Callable[[str, str, int], NDArray[Any]]], None]
"""Makes arrays: takes a function that gives a new array of zeros by name, type (as NumPy writes it) and length."""

PATIENCE = 3600.0  # seconds to wait for another process that is building the same file
_log = logging.getLogger(__name__)


def counted(things: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Passes things on; if it takes longer than two seconds, a bar on standard error shows how many have come."""
    from tqdm import tqdm  # here, as most processes have nothing to show

    every = 0.1 if sys.stderr.isatty() else 30.0  # seconds; a log is no place for a moving bar
    return tqdm(things, what, total, leave=False, delay=2, mininterval=every, unit=" products", unit_scale=True)


def build_once(path: Path, build: Callable[[Path], None]) -> None:
    """Has `build` make a file or folder, unless it is there; it gets its name when all of it is written.

    Of several processes that find nothing one builds and the others wait.

    Raises:
        OSError: If nothing can be written there.
        filelock.Timeout: If another process has been building for an hour.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with FileLock(path.with_name(f"{path.name}.lock"), timeout=PATIENCE):
        if not path.exists():  # another process may have made it meanwhile
            collects = gc.isenabled()
            gc.disable()  # a million products hold no cycle, and looking for one takes a tenth of the time
            try:
                remove(partial)
                build(partial)
                partial.rename(path)
            finally:
                remove(partial)
                if collects:
                    gc.enable()


def remove(path: Path) -> None:
    """Deletes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def open_arrays(folder: Path | None, make: Make) -> Arrays:
    """Opens arrays, or makes them first: in memory, with a warning in the log, where they cannot be written.

    Raises:
        ValueError: If one is damaged.
    """
    if folder is not None:
        try:
            build_once(folder, lambda partial: _write(partial, make))
        except OSError as error:
            _log.warning("%s cannot be written (%s); it is kept in memory", folder, error)
            folder = None
    if folder is None:
        arrays: Arrays = {}
        make(lambda name, dtype, length: arrays.setdefault(name, np.zeros(length, dtype)))
        return arrays
    try:
        # As plain arrays: numpy.memmap makes every slice an object of its slow class.
        return {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in folder.glob("*.npy")}
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} cannot be read ({error}); delete it and start again, it is made again") from error


def _write(folder: Path, make: Make) -> None:
    folder.mkdir()
    made: list[np.memmap[Any, Any]] = []

    def new(name: str, dtype: str, length: int) -> NDArray[Any]:
        file = folder / f"{name}.npy"
        made.append(np.lib.format.open_memmap(file, "w+", np.dtype(dtype), (length,)))
        if hasattr(os, "posix_fallocate"):  # or a full disk would kill the process at a write to memory
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        return np.asarray(made[-1])

    make(new)
    for array in made:
        array.flush()
