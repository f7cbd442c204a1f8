"""Files are written whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8. A reader sees the old file, the new one or none, and never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())  # before the rename, or a power cut leaves an empty file under the final name
    os.replace(partial, path)
