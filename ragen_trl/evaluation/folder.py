"""Episodes on disk, so a stopped evaluation plays none of them twice: ``episodes/*.jsonl``, a line for each episode."""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import Env, Row, episode_row, judged, play_in_batches
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.system.atomic import parsed, reading, write_atomically

Key = tuple[int, int]
"""Seed of the start state, and number of the sample."""
Starts = Mapping[Key, Start]


class EpisodeFile:
    """The episodes of one policy in one environment, in a file that the first episodes create.

    ``rows`` are the episodes by seed and sample, also those that an API or an environment ended. Raises
    `OptionError` if the file cannot be read.
    """

    def __init__(self, path: Path, policy: str, env: str) -> None:
        self.path = path
        self._names = {"policy": policy, "env": env}
        with reading(path, "delete it to play again"):
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            rows = [parsed(line, dict) for line in lines]
            self.rows: dict[Key, Row] = {(int(row["seed"]), int(row["sample"])): row for row in rows}
            if any(row["limit"] not in FAILED for row in rows):
                judged(rows)  # with all its numbers

    def missing(self, starts: Starts) -> list[Key]:
        """The episodes that are not there, or failed without the policy."""
        return [key for key in starts if key not in self.rows or self.rows[key]["limit"] in FAILED]

    def of(self, starts: Starts) -> list[Row]:
        """The episodes in order, without further seeds or samples that an earlier command has played."""
        return [self.rows[key] for key in starts if key in self.rows]

    def play(
        self,
        policy: Policy | str,
        env: Env,
        args: StarPOConfig,
        starts: Starts,
        bar: Any,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        """Play and store the missing episodes, on all processes together, a batch at a time; raises as `evaluate`."""
        missing = self.missing(starts)
        left, began = iter(missing[process::processes]), time.perf_counter()
        for played in play_in_batches(policy, env, args, [starts[key] for key in missing], process, processes):
            here = [episode_row(trajectory, next(left)[1]) for trajectory in played]
            rows = gather_object(here) if processes > 1 else here
            each = (time.perf_counter() - began) / len(rows)
            self.add([row | {"seconds": each} for row in rows], write=process == 0)
            bar.update(len(rows))
            began = time.perf_counter()

    def add(self, rows: list[Row], write: bool = True) -> None:
        """Store a block of episodes, as a whole or not at all."""
        self.rows |= {(row["seed"], row["sample"]): {**self._names, **row} for row in rows}
        if write:
            lines = [json.dumps(self.rows[key]) for key in sorted(self.rows)]
            write_atomically(self.path, "\n".join(lines) + "\n")


def episodes_path(folder: Path, policy: str, env: str, settings: Mapping[str, Any]) -> Path:
    """The file of a policy's episodes in an environment, named after both and after what the episodes depend on.

    So the same command goes on where it was stopped, with more episodes if asked, and other weights or options under
    the same names begin a file of their own. The name is readable and never hidden.
    """
    named = json.dumps([policy, env, settings], sort_keys=True, default=str)
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[-60:].lstrip(".-") for name in (policy, env))
    stem = "-on-".join(word or "model" for word in words)
    return folder / "episodes" / f"{stem}-{hashlib.sha256(named.encode()).hexdigest()[:8]}.jsonl"
