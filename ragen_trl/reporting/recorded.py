"""Recorded rollouts on disk: ``RUN/trajectories/step-000011.json.gz``, one file a rollout, JSON compressed with gzip.

The report's page contains these files as they are, so the format is compact: each text and each token is in the file
once, and empty or usual values are left out. Version 1:

| key | what |
|---|---|
| `format`, `version` | ``"ragen_trl trajectories"``, 1 |
| `step` | the first update that learns from the rollout, numbered as in the log |
| `rollout` | 1; for further rollouts of the same update 2, 3, … |
| `group_size` | trajectories a group |
| `texts` | list of texts; observations and replies are indices into it |
| `vocabulary` | list of ``[token id, text]``; tokens are indices into it (see below) |
| `trajectories` | groups in order, and their members in order |

An id has several entries in the vocabulary if its text depends on the token before it. The text of a token that only
begins a character is "".

A trajectory: `group`, `member`, `env`, `seed`, `outcome_seed` (or null), `return` (raw, extra rewards included),
`success`, `kept` (trained on), `end` ("" at the task's end, else the limit or failure), `turns`.

A turn: `observation`, `reply` (as the environment read it, a forced prefix included), `reward`, `prompt` (tokens of the
environment, masked), `tokens` (sampled). Optional: `advantage` (one number, or a list with one for each sampled token;
missing if the group was dropped), `actions`, `invalid_actions`, `surplus_actions`, `format_is_valid`
and `action_is_valid` (only where the environment tells), `cut` (the reply ran into the token limit), `context` (number
of tokens of a context that was rebuilt before `prompt`).

Log-probabilities and the environment's whole ``info`` are not recorded.
"""

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_trl.errors import UserError
from ragen_trl.system.atomic import write_atomically

FOLDER = "trajectories"
FORMAT, VERSION = "ragen_trl trajectories", 1
_NAME = re.compile(r"step-(\d{6,})(?:-(\d+))?\.json\.gz")
_KEYS: dict[str, type] = {
    "step": int,
    "rollout": int,
    "group_size": int,
    "texts": list,
    "vocabulary": list,
    "trajectories": list,
}
_OF_TRAJECTORY: dict[str, type] = {
    "group": int,
    "member": int,
    "env": str,
    "seed": int,
    "success": bool,
    "kept": bool,
    "return": float,
    "end": str,
    "turns": list,
}
_OF_TURN: dict[str, type] = {"observation": int, "reply": int, "reward": float, "prompt": list, "tokens": list}


class RecordingError(UserError, ValueError):
    """A file of recorded trajectories is incomplete, or has another format."""


@dataclass(frozen=True)
class Recording:
    """One recorded rollout.

    Attributes:
        path: Its file.
        content: The content of the file; see the module's docstring.
        packed: The file's bytes.
    """

    path: Path
    content: dict[str, Any]
    packed: bytes

    @property
    def step(self) -> int:
        """The first update that learns from the rollout."""
        return int(self.content["step"])


def recording_path(folder: Path, step: int, rollout: int = 1) -> Path:
    """The file of a recorded rollout."""
    return folder / FOLDER / f"step-{step:06d}{f'-{rollout}' if rollout > 1 else ''}.json.gz"


def recordings(folder: Path) -> list[Path]:
    """The files of a run's recorded rollouts, in the order in which they were played; maybe none."""
    found = [(_NAME.fullmatch(path.name), path) for path in (folder / FOLDER).glob("step-*.json.gz")]
    ordered = [(int(match[1]), int(match[2] or 1), path) for match, path in found if match]
    return [path for *_, path in sorted(ordered)]


def write_recording(path: Path, content: Mapping[str, Any]) -> None:
    """Write a recording, whole or not at all, the same bytes for the same content; ``ValueError`` for a NaN."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    write_atomically(path, gzip.compress(text.encode("ascii"), mtime=0))


def read_recording(path: Path) -> Recording:
    """Read a recording and check that it can be shown.

    Raises:
        RecordingError: If it is incomplete, has another version, or refers to texts or tokens that it does not have.
    """
    try:
        packed = path.read_bytes()
        content = json.loads(gzip.decompress(packed))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _wrong(path, f"cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _wrong(path, f"is no file of the format {FORMAT!r}")
    if content.get("version") != VERSION:
        raise _wrong(path, f"has version {content.get('version')!r} of the format, and this package reads {VERSION}")
    _check(path, content, _KEYS, "the file")
    if not all(isinstance(text, str) for text in content["texts"]):
        raise _wrong(path, "has a text that is not a string")
    if not all(isinstance(pair, list) and list(map(type, pair)) == [int, str] for pair in content["vocabulary"]):
        raise _wrong(path, "has a token that is no pair of id and text")
    for place, trajectory in enumerate(content["trajectories"]):
        _check_trajectory(path, content, trajectory, f"trajectory {place}")
    return Recording(path, content, packed)


def _check_trajectory(path: Path, content: dict[str, Any], trajectory: Any, where: str) -> None:
    _check(path, trajectory, _OF_TRAJECTORY, where)
    if not trajectory["turns"]:
        raise _wrong(path, f"has no turn in {where}")
    texts, tokens = len(content["texts"]), len(content["vocabulary"])
    for number, turn in enumerate(trajectory["turns"], 1):
        place = f"turn {number} of {where}"
        _check(path, turn, _OF_TURN, place)
        if not all(0 <= turn[key] < texts for key in ("observation", "reply")):
            raise _wrong(path, f"{place} refers to a text that is not there")
        if not all(isinstance(token, int) and 0 <= token < tokens for token in turn["prompt"] + turn["tokens"]):
            raise _wrong(path, f"{place} refers to a token that is not there")
        advantage = turn.get("advantage", 0.0)
        if isinstance(advantage, list) and len(advantage) != len(turn["tokens"]):
            raise _wrong(path, f"{place} has {len(advantage)} advantages for {len(turn['tokens'])} tokens")


def _check(path: Path, value: Any, keys: Mapping[str, type], where: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, f"{where} is a {type(value).__name__}, not an object")
    for key, kind in keys.items():
        if not isinstance(value.get(key), kind):
            raise _wrong(path, f"{key!r} of {where} is {value.get(key)!r}, not of type {kind.__name__}")


def _wrong(path: Path, what: str) -> RecordingError:
    return RecordingError(f"{path} {what}; delete it to have a report without it, or record the run again")
