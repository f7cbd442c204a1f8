"""A critic on the disk: a folder that is there as a whole or not at all.

It holds the weights, the optimiser and ``critic.json``, which says what they fit. Left out: one folder for each
process; all of them hold the same critic, so one writes and all read.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragen_trl.critic_networks import CriticError

_RECORD = "critic.json"


def write_critic(folder: Path, record: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Write a critic's folder; the one that was there before is replaced.

    Args:
        folder: Gets its name when everything in it is on the disk.
        record: Kind and shapes of the critic.
        write: Puts the files into the folder it is given.

    Raises:
        CriticError: If the folder exists and holds something else.
    """
    if folder.exists() and not (folder / _RECORD).is_file() and any(folder.iterdir()):
        raise CriticError(f"{folder} holds something that is not a critic (no {_RECORD}); name another folder")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    (partial / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    for path in partial.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # before the rename, or a power cut leaves empty files under the final name
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def check_critic(folder: Path, record: dict[str, Any]) -> None:
    """Check that a folder holds a critic with this record.

    Raises:
        CriticError: If there is none, or it is of another kind or for another model.
    """
    if not (folder / _RECORD).is_file():
        raise CriticError(
            f"{folder} holds no critic (no {_RECORD}); resume from a checkpoint of a run with a critic, or start anew"
        )
    found = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    if found != record:
        raise CriticError(
            f"{folder} holds a critic of kind {found['kind']!r} with {len(found['shapes'])} tensors that does not fit "
            f"this one of kind {record['kind']!r} with {len(record['shapes'])}; resume with the model and the LoRA "
            "settings that the run was started with"
        )
