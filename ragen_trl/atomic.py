"""Files that are never half there."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one, the new one, or none: never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # before the rename, or a power cut leaves an empty file under the final name
    os.replace(partial, path)
