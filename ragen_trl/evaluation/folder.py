"""The folder of an evaluation: it keeps every finished episode, so a stopped command plays none of them twice.

``evaluation.json`` has the settings, ``episodes/*.jsonl`` a line for each episode of a policy in an environment. More
episodes, samples, environments or models can be added later; other weights under a known name, or other options, are
refused. Each episode names the version that played it.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    """An episode as it is stored: the ``sample``-th of its start state, from 0.

    ``seconds`` is its share of the time that its block took, ``version`` the package's that played it, with its commit.
    """

    sample: int
    seconds: float
    record: EpisodeRecord
    version: str

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the episode: seed of the start state, and sample."""
        return self.record.seed, self.sample

    def as_line(self, policy: str, env: str) -> str:
        """A line of JSON."""
        record = asdict(self.record)
        row = {"policy": policy, "env": env, "seed": record.pop("seed"), "sample": self.sample}
        return json.dumps({**row, **record.pop("measures"), **record, "version": self.version, "seconds": self.seconds})

    @classmethod
    def from_line(cls, line: str) -> "StoredEpisode":
        """The reverse of `as_line`."""
        row = json.loads(line)
        del row["policy"], row["env"]
        seed, sample, seconds, version = (row.pop(name) for name in ("seed", "sample", "seconds", "version"))
        limit, error, faults, task_type = (row.pop(name) for name in ("limit", "error", "faults", "task_type"))
        return cls(sample, seconds, EpisodeRecord(seed, limit, row, error, tuple(faults), task_type), version)


def write_episodes(path: Path, policy: str, env: str, episodes: Iterable[StoredEpisode]) -> None:
    """Write a file of episodes, whole or not at all."""
    write_atomically(path, "\n".join(episode.as_line(policy, env) for episode in episodes) + "\n")


def read_episodes(path: Path) -> list[StoredEpisode]:
    """What `write_episodes` wrote, or nothing; ``ValueError``, ``KeyError`` or ``TypeError`` if it cannot be read."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [StoredEpisode.from_line(line) for line in lines]


@dataclass
class EvalFolder:
    """Finished episodes on disk.

    Args:
        path: The folder; created if it does not exist.
        settings: Under ``"environments"`` and ``"policies"``, by name: the settings that episodes depend on.
        overwrite: Delete an evaluation in it first; answers of an API stay.

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
        if self.overwrite:  # the settings last: they mark the folder as ours
            names = ("summary.json", "results.md", _SETTINGS)
            for path in [*(self.path / "episodes").glob("*.jsonl"), *(self.path / name for name in names)]:
                path.unlink(missing_ok=True)
        stored = self._stored_settings()
        new = json.loads(json.dumps(self.settings, default=str))
        changed = [
            f"{name}: {key} was {_short(old.get(key))}, now {_short(values.get(key))}"
            for kind, named in new.items()
            for name, values in named.items()
            if (old := stored.get(kind, {}).get(name)) is not None
            for key in {**old, **values}
            if old.get(key) != values.get(key)
        ]
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


def check_folder(path: Path) -> None:
    """Raise `EvaluationExistsError` for a folder with the results of something else, such as a training run."""
    foreign = any((path / name).exists() for name in ("summary.json", "stages.json"))
    if foreign and not (path / _SETTINGS).exists():
        raise EvaluationExistsError(f"{path} holds results of something else; choose another --output_dir")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
