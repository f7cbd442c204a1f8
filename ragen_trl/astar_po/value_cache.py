"""The returns of the reference policy from each start state, on disk: A*-PO computes V* from them.

They are in one SQLite file, to which a batch is added whole or not at all. It holds returns and not V*, so β1 can
change and samples can be added. Without a write-ahead log it is a single file, which may be on a network disk.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ragen_trl.config.options import MannerOptions, TaskOptions, option_names
from ragen_trl.config.starpo import AStarPOConfig
from ragen_trl.errors import NotFiniteError, UserError
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.system.sqlite_file import SqliteFile


class ValueCacheError(UserError, ValueError):
    """The file cannot be used as a cache of values, or a sample or its key cannot be stored in it."""


class Sample(NamedTuple):
    """One episode of the reference policy: its raw return, format penalties included, and whether it succeeded."""

    episode_return: float
    success: bool


class StoredSample(NamedTuple):
    """A sample with its place: the ``sample_index``-th episode, counted from 0, from the start state of ``seed``."""

    seed: int
    sample_index: int
    sample: Sample


@dataclass(frozen=True, kw_only=True)
class ValueKey:
    """Everything that V* depends on, except the start seed. Two runs with equal keys share their samples.

    Attributes:
        env: Gymnasium id, or a name for an environment that a function makes.
        env_kwargs: Arguments of the environment.
        max_turns: Most turns of an episode.
        max_actions_per_turn: Most actions of one reply.
        max_actions: Most actions of an episode.
        max_reply_length: Most tokens of one reply.
        max_completion_length: Most tokens of a trajectory after its first prompt; ``None`` for no limit.
        reward: Its version: penalties, reward functions with weights, and a digest of the columns that they get.
        reference: ``Reference.fingerprint()``.
        temperature: As in sampling.
        top_p: As in sampling.
        top_k: As in sampling.
        system_prompt: ``None`` for the environment's own.
        think: Whether replies begin with a thought.
        reply_prefix: The given beginning of every reply.
        chat_template: The template, or a hash of it.
        stop_at_answer: Whether replies end with their answer.
        others: All other options of play.

    Raises:
        ValueCacheError: If a value has no JSON form.
    """

    env: str
    env_kwargs: Mapping[str, Any]
    max_turns: int
    max_actions_per_turn: int
    max_actions: int
    max_reply_length: int
    max_completion_length: int | None
    reward: str
    reference: str
    temperature: float
    top_p: float
    top_k: int
    system_prompt: str | None
    think: bool
    reply_prefix: str
    chat_template: str
    stop_at_answer: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.as_json()

    def as_json(self) -> str:
        """Canonical JSON: names sorted, no spaces, ASCII."""
        try:
            return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueCacheError(
                f"{self} has no JSON form ({error}); give env_kwargs of finite numbers, strings, booleans, lists and "
                "dictionaries with strings as keys, or name the environment by a function instead"
            ) from error

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
        return hashlib.sha256(self.as_json().encode("ascii")).hexdigest()


class ValueCache(SqliteFile):
    """Samples by key and start seed in a SQLite file, which several processes may read and write at the same time.

    Args:
        path: The file; it and its folder are made if missing.
        timeout: Seconds to wait while another process writes.

    Raises:
        ValueCacheError: If the file is not SQLite, belongs to something else, has another version, or cannot be opened.
    """

    error = ValueCacheError
    purpose = "a cache of values"
    application = 0x41537450  # "AStP"
    version = 1
    schema = (
        "CREATE TABLE keys (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, content TEXT NOT NULL)",
        "CREATE TABLE samples (key INTEGER NOT NULL REFERENCES keys, seed INTEGER NOT NULL, sample INTEGER NOT NULL, "
        "episode_return REAL NOT NULL, success INTEGER NOT NULL, PRIMARY KEY (key, seed, sample)) WITHOUT ROWID",
    )

    def add(self, key: ValueKey, samples: Sequence[StoredSample]) -> None:
        """Store samples, all of them or none. Those that are stored already stay as they are.

        Raises:
            NotFiniteError: If a return is NaN or infinite.
            ValueCacheError: If the file cannot be written, or a stored sample differs: sampling did not repeat itself.
            ValueError: If there is a gap between the stored samples of a start and the new ones.
        """
        for seed, index, sample in samples:
            check_finite(seed, index, sample.episode_return)
        with self._named_errors(), self._transaction() as database:
            digest = key.digest()
            row = (digest, key.as_json())
            database.execute("INSERT INTO keys (digest, content) VALUES (?, ?) ON CONFLICT DO NOTHING", row)
            (number,) = database.execute("SELECT id FROM keys WHERE digest = ?", (digest,)).fetchone()
            for seed in dict.fromkeys(sample.seed for sample in samples):
                stored = self._samples_of(number, seed)
                for new in sorted(sample for sample in samples if sample.seed == seed):
                    self._add_one(number, new, stored)

    def read(self, key: ValueKey) -> dict[int, list[Sample]]:
        """All samples of a key, by start seed and in order; `ValueCacheError` if the file cannot be read."""
        query = (
            "SELECT seed, episode_return, success FROM samples JOIN keys ON keys.id = samples.key WHERE digest = ? "
            "ORDER BY seed, sample"
        )
        found: dict[int, list[Sample]] = {}
        with self._named_errors():
            for seed, episode_return, success in self._connection.execute(query, (key.digest(),)).fetchall():
                found.setdefault(seed, []).append(Sample(episode_return, bool(success)))
        return found

    def _samples_of(self, number: int, seed: int) -> list[Sample]:
        rows = self._connection.execute(
            "SELECT episode_return, success FROM samples WHERE key = ? AND seed = ? ORDER BY sample",
            (number, int(seed)),
        )
        return [Sample(episode_return, bool(success)) for episode_return, success in rows.fetchall()]

    def _add_one(self, number: int, new: StoredSample, stored: list[Sample]) -> None:
        seed, index, (episode_return, success) = new
        sample = Sample(float(episode_return), bool(success))  # NumPy's numbers would be stored as bytes
        if index < len(stored):
            if stored[index] != sample:
                raise ValueCacheError(
                    f"{self.path} has {stored[index]} as sample {index} of start {seed}, but now the result is "
                    f"{sample}: sampling from the reference does not repeat itself. Two runs that fill one file at the "
                    "same time on an accelerator can cause this: start this run again, and it reads the stored samples"
                )
            return
        if index > len(stored):
            raise ValueError(f"sample {index} of start {seed} would leave a gap after {len(stored)} stored ones")
        self._connection.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", (number, int(seed), int(index), *sample))
        stored.append(sample)


def check_finite(seed: int, index: int, episode_return: float) -> None:
    """Raise `NotFiniteError` for a sample whose return is NaN or infinite."""
    if not math.isfinite(episode_return):
        raise NotFiniteError(
            f"sample {index} of start {seed} has return {episode_return}; rewards must be finite (NaN also stands for "
            "an environment that failed twice, whose traceback is in the log): repair it, or the reward function"
        )


# Options that are part of ``reward``, and one that ``reply_prefix`` contains.
_PENALTIES = ("format_penalty", "cut_penalty")
_ELSEWHERE = (*_PENALTIES, "force_reply_prefix")


def value_key(
    args: AStarPOConfig,
    spec: EnvSpec,
    place: int,
    rewards: Sequence[tuple[str, float]],
    reply_prefix: str,
    chat_template: str,
    reference: str,
    columns: str = "",
) -> ValueKey:
    """The key of the reference's returns in one environment.

    ``place`` is its index in the run, which distinguishes functions of one name. ``rewards`` are names and
    weights of the reward functions, ``columns`` a digest of what they get of the start states' own columns.
    """
    reward = {
        "version": args.reward_version,
        **{name: getattr(args, name) for name in _PENALTIES},
        "functions": list(rewards),
        "columns": columns,
    }
    played = {name: getattr(args, name) for name in (*option_names(TaskOptions), *option_names(MannerOptions))}
    own = {name: value for name, value in played.items() if name in ValueKey.__dataclass_fields__}
    others = {name: value for name, value in played.items() if name not in own and name not in _ELSEWHERE}
    return ValueKey(
        **{
            **own,
            "env": spec.label if isinstance(spec.env, str) else f"{spec.label} {place}",
            "env_kwargs": dict(spec.kwargs),
        },
        reward=json.dumps(reward),
        reference=reference,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        reply_prefix=reply_prefix,
        chat_template=chat_template,
        others=others,
    )
