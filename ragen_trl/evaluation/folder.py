"""The folder of an evaluation: it keeps every finished episode, so that a stopped command plays none of them twice.

``evaluation.json`` has the settings under which the episodes were played. ``episodes/*.jsonl`` is a file for each
policy and environment, with a line for each episode. A block of episodes is added by writing the whole file again and
renaming it, so that a killed command leaves whole blocks. More episodes, samples, environments or models can be added
later; another model under the same name, or other options, are refused. Another version of the package is not, since
few changes touch what is played; each episode names its own, and the summary counts them. Episodes that ended because
an API or an environment failed are played again by the next command. Left out: two commands that write to one folder at
the same time.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragen_trl.errors import UserError
from ragen_trl.evaluation.evaluator import EpisodeRecord
from ragen_trl.rollout.episode import FAILED
from ragen_trl.system.atomic import write_atomically

_SETTINGS = "evaluation.json"


class EvaluationExistsError(UserError, FileExistsError):
    """The output folder holds something else, or an evaluation with other settings."""


@dataclass(frozen=True)
class StoredEpisode:
    """An episode as it is stored.

    Attributes:
        sample: Its number among the episodes of its start state, from 0.
        seconds: Its share of the time that its block took.
        record: What came out of it.
        version: Of the package that played it, with its commit; empty in folders of before it was kept.
    """

    sample: int
    seconds: float
    record: EpisodeRecord
    version: str = ""

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the episode: seed of the start state, and sample."""
        return self.record.seed, self.sample

    def as_line(self, policy: str, env: str) -> str:
        """A line of JSON."""
        record = self.record
        row = {"policy": policy, "env": env, "seed": record.seed, "sample": self.sample, **record.measures}
        named = {"faults": record.faults, "task_type": record.task_type, "version": self.version}
        said = {name: value for name, value in named.items() if value}
        return json.dumps({**row, "limit": record.limit, "error": record.error, **said, "seconds": self.seconds})

    @classmethod
    def from_line(cls, line: str) -> "StoredEpisode":
        """The reverse of `as_line`."""
        row = json.loads(line)
        del row["policy"], row["env"]
        seed, sample, seconds = row.pop("seed"), row.pop("sample"), row.pop("seconds")
        named, version = (tuple(row.pop("faults", ())), row.pop("task_type", "")), row.pop("version", "")
        return cls(sample, seconds, EpisodeRecord(seed, row.pop("limit"), row, row.pop("error"), *named), version)


def write_episodes(path: Path, policy: str, env: str, episodes: Iterable[StoredEpisode]) -> None:
    """Write a file of episodes, whole or not at all."""
    write_atomically(path, "\n".join(episode.as_line(policy, env) for episode in episodes) + "\n")


def read_episodes(path: Path) -> list[StoredEpisode]:
    """What `write_episodes` wrote; nothing if there is no such file.

    Raises:
        ValueError: If it cannot be read; or ``KeyError`` or ``TypeError``.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [StoredEpisode.from_line(line) for line in lines]


@dataclass
class EvalFolder:
    """Finished episodes on disk.

    Args:
        path: The folder; created if it does not exist.
        settings: Under ``"environments"`` and ``"policies"``, by name: the settings that episodes depend on.
        overwrite: Delete an older evaluation in it first; answers of an API stay.

    Raises:
        EvaluationExistsError: If the folder holds something else, an evaluation with other settings, or files that
            cannot be read.
    """

    path: Path
    settings: Mapping[str, Mapping[str, Any]]
    overwrite: bool = False
    _episodes: dict[tuple[str, str], dict[tuple[int, int], StoredEpisode]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        check_folder(self.path)
        if self.overwrite:
            self._delete()
        stored = self._stored_settings()
        new = json.loads(json.dumps(self.settings, default=str))
        changed = []
        for kind, named in new.items():
            for name in named.keys() & stored.get(kind, {}).keys():
                changed += _differences(name, stored[kind][name], named[name])
        if changed:
            raise EvaluationExistsError(
                f"{self.path} holds an evaluation with other settings ({'; '.join(sorted(changed))}); pass --overwrite "
                "true to start again, or choose another --output_dir"
            )
        merged = {kind: {**stored.get(kind, {}), **named} for kind, named in new.items()}
        write_atomically(self.path / _SETTINGS, json.dumps(merged, indent=2))

    def finished(self, policy: str, env: str) -> dict[tuple[int, int], StoredEpisode]:
        """The episodes that need not be played again, by seed and sample."""
        return {key: row for key, row in self._rows(policy, env).items() if row.record.limit not in FAILED}

    def played(self, policy: str, env: str) -> dict[tuple[int, int], StoredEpisode]:
        """All episodes, also those that an API or an environment ended."""
        return dict(self._rows(policy, env))

    def add(self, policy: str, env: str, episodes: Sequence[StoredEpisode]) -> None:
        """Store a block of episodes, as a whole or not at all."""
        rows = self._rows(policy, env)
        rows.update({episode.key: episode for episode in episodes})
        write_episodes(self._file(policy, env), policy, env, [rows[key] for key in sorted(rows)])

    def _rows(self, policy: str, env: str) -> dict[tuple[int, int], StoredEpisode]:
        if (policy, env) not in self._episodes:
            path = self._file(policy, env)
            try:
                found = read_episodes(path)
            except (ValueError, KeyError, TypeError) as error:
                raise EvaluationExistsError(f"{path} cannot be read ({error!r}); delete it to play again") from None
            self._episodes[policy, env] = {episode.key: episode for episode in found}
        return self._episodes[policy, env]

    def _file(self, policy: str, env: str) -> Path:
        """A readable name, never hidden; the digest tells names apart that differ in characters left out of it."""
        digest = hashlib.sha256(json.dumps([policy, env]).encode()).hexdigest()[:8]
        words = (re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[-60:].lstrip(".-") for name in (policy, env))
        return self.path / "episodes" / f"{'-on-'.join(word or 'model' for word in words)}-{digest}.jsonl"

    def _stored_settings(self) -> dict[str, dict[str, Any]]:
        path = self.path / _SETTINGS
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
        except (ValueError, TypeError) as error:
            raise EvaluationExistsError(f"{path} cannot be read ({error}); pass --overwrite true") from None

    def _delete(self) -> None:
        for path in [*(self.path / "episodes").glob("*.jsonl"), *(self.path / name for name in _WRITTEN)]:
            path.unlink(missing_ok=True)


def check_folder(path: Path) -> None:
    """Raise `EvaluationExistsError` for a folder with the results of something else, such as a training run."""
    if (path / _SETTINGS).exists():
        return
    if any((path / name).exists() for name in ("summary.json", "stages.json")):
        raise EvaluationExistsError(f"{path} holds results of something else; choose another --output_dir")


_WRITTEN = ("summary.json", "results.md", _SETTINGS)  # the settings last: they mark the folder as ours


def _differences(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{name}: {key} was {_short(old.get(key))}, now {_short(new.get(key))}" for key in keys]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
