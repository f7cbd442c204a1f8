"""Episodes on disk, so a stopped evaluation plays none of them twice: ``episodes/*.jsonl``, a line for each episode."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.evaluator import EpisodeRecord
from ragen_trl.system.atomic import write_atomically

_FIELDS = ("seed", "sample", "limit", "seconds", "error", "task_type", "version")


class EpisodeFile:
    """The episodes of one policy in one environment.

    The file is named after both, readable and never hidden, and after the settings that its episodes depend on. So the
    same command goes on where it was stopped, with more episodes if asked, and other weights or options under the same
    names begin a file of their own.

    Args:
        folder: The folder of the evaluation; created with the first episodes.
        policy: Its name.
        env: The name of the environment.
        settings: Of both, as JSON can write them.

    Attributes:
        rows: The episodes by seed and sample, also those that an API or an environment ended.

    Raises:
        UserError: If the file cannot be read.
    """

    def __init__(self, folder: Path, policy: str, env: str, settings: Mapping[str, Any]) -> None:
        self._names = (policy, env)
        named = json.dumps([policy, env, settings], sort_keys=True, default=str)
        words = (re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[-60:].lstrip(".-") for name in self._names)
        stem = "-on-".join(word or "model" for word in words)
        self.path = folder / "episodes" / f"{stem}-{hashlib.sha256(named.encode()).hexdigest()[:8]}.jsonl"
        try:
            self.rows = {(episode.seed, episode.sample): episode for episode in read_episodes(self.path)}
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.path} cannot be read ({error!r}); delete it to play again") from None

    def add(self, episodes: Sequence[EpisodeRecord]) -> None:
        """Store a block of episodes, as a whole or not at all."""
        self.rows |= {(episode.seed, episode.sample): episode for episode in episodes}
        write_episodes(self.path, *self._names, [self.rows[key] for key in sorted(self.rows)])


def write_episodes(path: Path, policy: str, env: str, episodes: Iterable[EpisodeRecord]) -> None:
    """Write a line of JSON for each episode, all or none; its measures stand beside the other fields."""
    rows = [asdict(episode) for episode in episodes]
    lines = [json.dumps({"policy": policy, "env": env, **row.pop("measures"), **row}) for row in rows]
    write_atomically(path, "\n".join(lines) + "\n")


def read_episodes(path: Path) -> list[EpisodeRecord]:
    """What `write_episodes` wrote, or nothing; ``ValueError``, ``KeyError`` or ``TypeError`` if it cannot be read."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        del row["policy"], row["env"]
        fields = {name: row.pop(name) for name in _FIELDS}
        found.append(EpisodeRecord(**fields, faults=tuple(row.pop("faults")), measures=row))
    return found


def prepare(folder: Path, overwrite: bool) -> None:
    """Delete an older evaluation if asked; `OptionError` for the results of something else, such as a training run."""
    foreign = any((folder / name).exists() for name in ("summary.json", "stages.json"))
    if foreign and not (folder / "results.md").exists():
        raise OptionError(f"{folder} holds results of something else; choose another --output_dir")
    if overwrite:  # the tables last: they mark the folder as an evaluation's
        for path in [*folder.glob("episodes/*.jsonl"), folder / "summary.json", folder / "results.md"]:
            path.unlink(missing_ok=True)
