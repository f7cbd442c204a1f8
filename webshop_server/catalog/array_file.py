"""One file for many arrays, mapped into memory by all processes that read it: a search index, the goals.

Layout: 8 bytes of magic, length and CRC-32 of a header, the header in JSON (what the arrays are; type, place and length
of each array; size of the file), then the arrays at multiples of 64 bytes. A file is written under a temporary name and
gets its own only when it is complete and on the disk, so a reader sees a whole file or none.
"""

import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Shapes: TypeAlias = Mapping[str, tuple[str, int]]
"""Type (as NumPy writes it) and length of each array by name."""

_MAGIC = b"WSINDEX1"
_PREFIX = len(_MAGIC) + 8
_ALIGNMENT = 64
_MAX_HEADER = 1 << 20
_ABANDONED = 3600.0  # seconds without a change after which an unfinished file has no writer any more


class ArrayFileError(ValueError):
    """A file of arrays is damaged, or of another version."""


def empty_arrays(shapes: Shapes) -> dict[str, NDArray[Any]]:
    """Arrays in memory, to be filled."""
    return {name: np.zeros(length, dtype) for name, (dtype, length) in shapes.items()}


@contextmanager
def new_file(path: Path, facts: Mapping[str, Any], shapes: Shapes) -> Iterator[dict[str, NDArray[Any]]]:
    """Writes a file; it appears, or replaces an older one, when the block ends without an exception.

    Args:
        path: Where.
        facts: What else a reader wants to know, in JSON's types.
        shapes: The arrays.

    Yields:
        The arrays, mapped into memory, to be filled in the block and not used after it.

    Raises:
        OSError: If the file cannot be written.
    """
    header, places, size = _layout(facts, shapes)
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    # A separate name: two processes may build the same file at the same time, and the last one wins.
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".partial")
    try:
        with os.fdopen(descriptor, "r+b") as file:
            file.write(header)
            _reserve(file.fileno(), size)
            memory = np.memmap(file, np.uint8, "r+", shape=(size,))
            yield _views(memory, shapes, places)
            memory.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)  # mkstemp lets only its owner read it
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def open_file(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Maps a file into memory, read-only. Takes milliseconds whatever its size.

    Args:
        path: Where it is.

    Returns:
        Its facts and its arrays.

    Raises:
        FileNotFoundError: If there is none.
        ArrayFileError: If it is truncated, or no file of this version.
    """
    with path.open("rb") as file:
        start = file.read(_PREFIX)
        length, checksum = np.frombuffer(start[len(_MAGIC) :].ljust(8, b"\0"), "<u4").tolist()
        if start[: len(_MAGIC)] != _MAGIC or length > _MAX_HEADER:
            raise ArrayFileError(f"{path} is no file of arrays of this version; delete it")
        text = file.read(length)
        if len(text) < length or zlib.crc32(text) != checksum:
            raise ArrayFileError(f"the header of {path} is damaged; delete it")
        header = json.loads(text)
        size = os.fstat(file.fileno()).st_size
        if size != header["size"]:
            raise ArrayFileError(f"{path} has {size} bytes instead of {header['size']}; delete it")
        shapes = {name: (dtype, count) for name, (dtype, count, _) in header["arrays"].items()}
        places = {name: place for name, (_, _, place) in header["arrays"].items()}
        # As a plain array: numpy.memmap makes every slice an object of its slow class.
        memory = np.asarray(np.memmap(file, np.uint8, "r"))
    return header["facts"], _views(memory, shapes, places)


def _sweep(path: Path) -> None:
    """Deletes what processes that were killed while they wrote this file have left."""
    for partial in path.parent.glob(f"{path.name}.*.partial"):
        try:
            if time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink()
        except FileNotFoundError:
            continue  # another process has finished, or was quicker


def _layout(facts: Mapping[str, Any], shapes: Shapes) -> tuple[bytes, dict[str, int], int]:
    """The first bytes of a file, where each array begins, and its size in bytes."""
    # Numbers of fixed width, so that the header's length does not depend on what is in it.
    place = _aligned(_PREFIX + len(_header(facts, shapes, dict.fromkeys(shapes, 0), 0)))
    places = {}
    for name, (dtype, length) in shapes.items():
        places[name] = place
        place = _aligned(place + np.dtype(dtype).itemsize * length)
    text = _header(facts, shapes, places, place)
    numbers = np.array([len(text), zlib.crc32(text)], "<u4").tobytes()
    return _MAGIC + numbers + text, places, place


def _header(facts: Mapping[str, Any], shapes: Shapes, places: Mapping[str, int], size: int) -> bytes:
    arrays = {name: [dtype, length, places[name]] for name, (dtype, length) in shapes.items()}
    text = json.dumps({"facts": dict(facts), "arrays": arrays, "size": size})
    # Room for the places and the size, whatever their number of digits.
    return text.encode().ljust(len(json.dumps(dict(facts))) + 128 * (len(shapes) + 1))


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


def _reserve(descriptor: int, size: int) -> None:
    """Makes room on the disk now: a full disk then is an error here, and not a killed process on a write to memory."""
    if sys.platform == "linux":
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)


def _views(memory: NDArray[np.uint8], shapes: Shapes, places: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """The arrays inside the bytes of a file."""
    views = {}
    for name, (dtype, length) in shapes.items():
        end = places[name] + np.dtype(dtype).itemsize * length
        views[name] = memory[places[name] : end].view(dtype)
    return views
