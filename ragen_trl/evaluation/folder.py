"""Episodes on disk, to be read, and so a stopped evaluation plays none of them twice: ``episodes/*.jsonl.gz``.

A line is an episode: its numbers (`episode_row`), and ``transcript``, a list of its turns (`describe_turn`). An episode
that the environment or an API has failed may come again, and its last line counts.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import Row, episode_row, judged, play_in_batches
from ragen_trl.evaluation.tables import table_order
from ragen_trl.rollout.environments import EnvLike
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.system.atomic import parsed, reading, write_atomically
from ragen_trl.training.recorder import describe_turn

Key = tuple[int, int]
"""Seed of the start state, and number of the sample."""
Starts = Mapping[Key, Start]


def read_episodes(path: Path) -> list[Row]:
    """The episodes of a file with their transcripts, in the order of seed and sample.

    Raises:
        OptionError: If the file cannot be read.
    """
    with reading(path, "delete it; an evaluation, or a run that is not finished, plays it again"):
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        rows = [parsed(line, dict) for line in lines]
        by_key: dict[Key, Row] = {(int(row["seed"]), int(row["sample"])): row for row in rows}
        if any(row["limit"] not in FAILED for row in rows):
            judged(rows)  # with all its numbers
        return [by_key[key] for key in sorted(by_key)]


def episodes_by_policy(folder: Path) -> dict[str, list[Row]]:
    """The episodes of a folder by the policy that played them, in the order of every table; errors are as above.

    Of several files of one policy (other weights or options under the same name) the older ones are called after their
    file's last word as well.
    """
    found: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("episodes/*.jsonl.gz"), key=lambda path: (-path.stat().st_mtime, path)):
        if rows := read_episodes(path):
            name = str(rows[0]["policy"])
            stamp = path.name.removesuffix(".jsonl.gz").rpartition("-")[2]
            found[f"{name} ({stamp})" if name in found else name] = rows
    return {name: found[name] for name in sorted(found, key=table_order)}


class EpisodeFile:
    """The episodes of one policy in one environment, in a file that the first episodes create.

    ``rows`` are the episodes by seed and sample, also those that an API or an environment ended, without transcripts.
    Raises `OptionError` if the file cannot be read.
    """

    def __init__(self, path: Path, policy: str, env: str) -> None:
        self.path = path
        self._names = {"policy": policy, "env": env}
        self.rows: dict[Key, Row] = {}
        for row in read_episodes(path) if path.exists() else []:
            self._keep(row)

    def missing(self, starts: Starts) -> list[Key]:
        """The episodes that are not there, or failed without the policy."""
        return [key for key in starts if key not in self.rows or self.rows[key]["limit"] in FAILED]

    def of(self, starts: Starts) -> list[Row]:
        """The episodes in order, without further seeds or samples that an earlier command has played."""
        return [self.rows[key] for key in starts if key in self.rows]

    def play(
        self,
        policy: Policy | str,
        env: EnvLike,
        args: StarPOConfig,
        starts: Starts,
        bar: Any,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        """Play and store the missing episodes, on all processes together, a batch at a time; raises as `evaluate`."""
        missing = self.missing(starts)
        left = iter(missing[process::processes])
        for played in play_in_batches(policy, env, args, [starts[key] for key in missing], process, processes):
            here = [
                {**episode_row(one, next(left)[1]), "transcript": [describe_turn(turn) for turn in one.turns]}
                for one in played
            ]
            rows = gather_object(here) if processes > 1 else here
            self.add(rows, write=process == 0)
            bar.update(len(rows))

    def add(self, rows: list[Row], write: bool = True) -> None:
        """Store a block of episodes, as a whole or not at all."""
        named = [{**self._names, **row} for row in rows]
        for row in named:
            self._keep(row)
        if write:
            lines = "".join(f"{json.dumps(row)}\n" for row in named)
            before = self.path.read_bytes() if self.path.exists() else b""
            write_atomically(self.path, before + gzip.compress(lines.encode("ascii"), mtime=0))

    def _keep(self, row: Row) -> None:
        """Transcripts are on the disk alone: those of a long evaluation would fill the memory."""
        self.rows[row["seed"], row["sample"]] = {name: value for name, value in row.items() if name != "transcript"}


def episodes_path(folder: Path, policy: str, env: str, settings: Mapping[str, Any]) -> Path:
    """The file of a policy's episodes in an environment, named after both and after what the episodes depend on.

    So the same command goes on where it was stopped, with more episodes if asked, and other weights or options under
    the same names begin a file of their own. The name is readable and never hidden.
    """
    named = json.dumps([policy, env, settings], sort_keys=True, default=str)
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[-60:].lstrip(".-") for name in (policy, env))
    stem = "-on-".join(word or "model" for word in words)
    return folder / "episodes" / f"{stem}-{hashlib.sha256(named.encode()).hexdigest()[:8]}.jsonl.gz"
