"""Packs recorded rollouts into the report's page, where a script of the page unpacks the one that is looked at.

Each file goes in as it is, in base64: the browser reads over a long text fast, and decodes only what is opened. A page
holds at most `BUDGET` characters of it; of more, rollouts are left out evenly and the page says so. Left out: reading
the files from beside the page, which browsers do not allow to a page that was opened from a disk.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ragen_trl.reporting.recorded import Recording, read_recording, recordings

BUDGET = 24_000_000
"""Characters of recordings in a page. With its curves a page then stays below 30 MB."""

_SCRIPTS = ("drawing.js", "viewer.js")


@dataclass(frozen=True)
class Block:
    """One recording inside the page.

    Attributes:
        name: Id of the element that holds it.
        data: The file in base64.
    """

    name: str
    data: str


@dataclass(frozen=True)
class Recorded:
    """What the page knows of recorded trajectories.

    Attributes:
        index: For the script: the runs and their rollouts.
        blocks: The rollouts.
        trajectories: How many trajectories are in the page.
        found: How many rollouts were recorded; ``len(blocks)`` of them are in the page.
        missing: Labels of the runs that have none.
    """

    index: dict[str, Any]
    blocks: list[Block]
    trajectories: int
    found: int
    missing: list[str]


def pack(folders: Sequence[Path], labels: Sequence[str], budget: int = BUDGET) -> Recorded:
    """Gather the recorded rollouts of runs.

    Args:
        folders: Run folders.
        labels: What each is called.
        budget: Characters at most; every run keeps at least one rollout all the same.

    Raises:
        RecordingError: If a file is not whole.
    """
    found = [recordings(folder) for folder in folders]
    runs: list[dict[str, Any]] = []
    blocks: list[Block] = []
    trajectories = 0
    for label, paths in zip(labels, _within(found, budget), strict=True):
        steps = []
        for recording in map(read_recording, paths):
            name = f"recording-{len(blocks)}"
            blocks.append(Block(name, base64.b64encode(recording.packed).decode("ascii")))
            steps.append({"name": _name(recording), "block": name})
            trajectories += len(recording.content["trajectories"])
        if steps:
            runs.append({"label": label, "steps": steps})
    missing = [label for label, paths in zip(labels, found, strict=True) if not paths]
    return Recorded({"runs": runs}, blocks, trajectories, sum(map(len, found)), missing)


def script() -> tuple[str, str]:
    """The page's script, and the source that a content security policy allows it by."""
    parts = [(files("ragen_trl.reporting") / "static" / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    text = "\n(() => {\n" + "\n".join(parts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return text, f"'sha256-{digest}'"


def style() -> str:
    """The style sheet of the page."""
    return (files("ragen_trl.reporting") / "static" / "report.css").read_text(encoding="utf-8")


def spread(count: int, kept: int) -> list[int]:
    """``kept`` of ``count`` places, at least one: the last, the first, and others evenly in between.

    Example:
        >>> spread(10, 3), spread(10, 1), spread(2, 5)
        ([0, 4, 9], [9], [0, 1])
    """
    if kept >= count:
        return list(range(count))
    if kept <= 1:
        return [count - 1]
    return [place * (count - 1) // (kept - 1) for place in range(kept)]


def _within(found: Sequence[Sequence[Path]], budget: int) -> list[list[Path]]:
    """As many rollouts of each run as the budget allows, the same number of all."""
    sizes = [[-(-path.stat().st_size // 3) * 4 for path in paths] for paths in found]
    kept = max(map(len, found), default=0)
    while kept > 1 and sum(row[place] for row in sizes for place in spread(len(row), kept) if row) > budget:
        kept -= 1
    return [[paths[place] for place in spread(len(paths), kept)] if paths else [] for paths in found]


def _name(recording: Recording) -> str:
    rollout = recording.content["rollout"]
    return f"{recording.step}" if rollout == 1 else f"{recording.step}, rollout {rollout}"
