"""Packs recorded rollouts into the report's page, whose script unpacks the one that a reader opens.

Each file is put into the page as it is, in base64. A page holds at most `BUDGET` characters of recordings; if there are
more, rollouts are left out evenly and the page says so.
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
"""Characters of recordings in a page, so a page with its curves stays below 30 MB."""

_SCRIPTS = ("drawing.js", "viewer.js")


@dataclass(frozen=True)
class Block:
    """One recording in the page: the id of its element, and the file in base64."""

    name: str
    data: str


@dataclass(frozen=True)
class Recorded:
    """The recorded trajectories of a page.

    Attributes:
        index: The runs and their rollouts, for the script.
        blocks: The rollouts.
        trajectories: Number of trajectories in the page.
        found: Number of recorded rollouts, of which ``blocks`` are in the page.
        missing: Labels of the runs without recordings.
    """

    index: dict[str, Any]
    blocks: list[Block]
    trajectories: int
    found: int
    missing: list[str]


def pack(folders: Sequence[Path], labels: Sequence[str], budget: int = BUDGET) -> Recorded:
    """Gather the recorded rollouts of run folders in ``budget`` characters; every run keeps at least one rollout."""
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
    """The page's script, and the source expression that lets a content security policy allow it."""
    parts = [(files("ragen_trl.reporting") / "static" / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    text = "\n(() => {\n" + "\n".join(parts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return text, f"'sha256-{digest}'"


def style() -> str:
    """The style sheet of the page."""
    return (files("ragen_trl.reporting") / "static" / "report.css").read_text(encoding="utf-8")


def spread(count: int, kept: int) -> list[int]:
    """``kept`` of ``count`` indices, at least one: the last, the first, and others evenly spread between them.

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
    """As many rollouts as the budget allows, the same number for each run."""
    sizes = [[-(-path.stat().st_size // 3) * 4 for path in paths] for paths in found]
    kept = max(map(len, found), default=0)
    while kept > 1 and sum(row[place] for row in sizes for place in spread(len(row), kept) if row) > budget:
        kept -= 1
    return [[paths[place] for place in spread(len(paths), kept)] if paths else [] for paths in found]


def _name(recording: Recording) -> str:
    rollout = recording.content["rollout"]
    return f"{recording.step}" if rollout == 1 else f"{recording.step}, rollout {rollout}"
