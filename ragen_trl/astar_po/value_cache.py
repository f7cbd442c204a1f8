"""The returns of the reference policy from each start state, on disk: A*-PO computes V* from them.

They are in one SQLite file, to which a batch is added whole or not at all. It holds returns and not V*, so β1 can
change and samples can be added. Without a write-ahead log it is a single file, which may be on a network disk.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ragen_trl.config.options import MannerOptions, TaskOptions, option_names
from ragen_trl.config.starpo import AStarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.rollout.environments import EnvSpec
from ragen_trl.system.sqlite_file import SqliteFile

Request = tuple[int, int]
"""A start seed, and the index of a sample from it."""


class Sample(NamedTuple):
    """One episode of the reference policy: its raw return, format penalties included, and whether it succeeded."""

    episode_return: float
    success: bool


class ValueCacheError(UserError, ValueError):
    """The file cannot be used as a cache of values."""


class ValueCache(SqliteFile):
    """Samples by key in a SQLite file, which several processes may read and write at the same time.

    Raises:
        ValueCacheError: If the file is not SQLite, belongs to something else, has another version, or cannot be used.
    """

    error = ValueCacheError
    purpose = "a cache of values"
    application = 0x41537450  # "AStP"
    version = 2
    schema = (
        "CREATE TABLE samples (key TEXT NOT NULL, seed INTEGER NOT NULL, sample INTEGER NOT NULL, "
        "episode_return REAL NOT NULL, success INTEGER NOT NULL, PRIMARY KEY (key, seed, sample)) WITHOUT ROWID",
    )

    def read(self, key: str) -> dict[Request, Sample]:
        """All samples of a key."""
        query = "SELECT seed, sample, episode_return, success FROM samples WHERE key = ?"
        with self._named_errors():
            rows = self._connection.execute(query, (key,)).fetchall()
        return {(seed, index): Sample(paid, bool(success)) for seed, index, paid, success in rows}

    def add(self, key: str, samples: Mapping[Request, Sample]) -> None:
        """Store samples, all of them or none. Those that are stored already stay as they are."""
        rows = [(key, *request, float(paid), bool(success)) for request, (paid, success) in samples.items()]
        with self._named_errors(), self._transaction() as database:
            database.executemany("INSERT OR IGNORE INTO samples VALUES (?, ?, ?, ?, ?)", rows)


def value_settings(
    args: AStarPOConfig,
    spec: EnvSpec,
    place: int,
    rewards: Sequence[tuple[str, float]],
    reply_prefix: str,
    chat_template: str,
    columns: str = "",
) -> dict[str, Any]:
    """Everything that V* of an environment depends on, except the reference and the start seed.

    An environment that a function makes is known by its name and its ``place`` in the run alone. ``rewards`` are names
    and weights of reward functions, ``columns`` a digest of what these get of the start states' own columns.
    """
    played = {*option_names(TaskOptions), *option_names(MannerOptions), "temperature", "top_p", "top_k"}
    return {
        **{name: getattr(args, name) for name in (*played, "reward_version")},
        "env": spec.label if isinstance(spec.env, str) else f"{spec.label} {place}",
        "env_kwargs": dict(spec.kwargs),
        "rewards": [list(pair) for pair in rewards],
        "columns": columns,
        "force_reply_prefix": reply_prefix,
        "chat_template": chat_template,
    }


def value_key(settings: Mapping[str, Any], reference: str) -> str:
    """Under what samples are stored: SHA-256 of the settings and of the reference's fingerprint."""
    return hashlib.sha256(json.dumps({**settings, "reference": reference}, sort_keys=True).encode()).hexdigest()
