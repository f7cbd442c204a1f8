r"""Stage 1 of A\*-PO: play the reference policy from every start state until V* is known well enough.

Which episodes are used depends only on their outcomes, never on the batch size, the number of processes, interruptions
or the contents of a cache.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm.auto import tqdm

from ragen_trl.algorithms.filtering import ZERO_STD
from ragen_trl.algorithms.intervals import rate_interval
from ragen_trl.algorithms.soft_values import return_range, soft_value, soft_value_std_error
from ragen_trl.config.options import AStarPOOptions
from ragen_trl.errors import NotFiniteError, UserError
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.sqlite_file import opened

Request = tuple[int, int]
"""A start seed, and the index of a sample from it."""


class Sample(NamedTuple):
    """One episode of the reference policy: its raw return, format penalties included, and whether it succeeded."""

    episode_return: float
    success: bool


class NothingToLearnError(UserError, ValueError):
    """No episode of the reference policy succeeded, or from every start state all earned the same."""


@dataclass(frozen=True)
class ReferenceValues:
    """V* of all start states, and how well the reference policy plays.

    Attributes:
        starts: Start seed → V*, between its mean and its largest return, in the order of the given seeds.
        trainable: The starts from which returns differ by more than rounding; the others teach nothing.
        episodes: Number of episodes that these values are estimated from, of which ``played`` were not in the cache.
        success: Success rate over the first samples of every start, with ``success_low`` and ``success_high``, its 95 %
            interval (`rate_interval`).
        return_range: The unit of β₁ and β₂.
        beta1: β₁ in units of the return: the option times ``return_range``.
    """

    starts: Mapping[int, float]
    trainable: list[int]
    episodes: int
    played: int
    success: float
    success_low: float
    success_high: float
    return_range: float
    beta1: float

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "ReferenceValues":
        """From what ``dataclasses.asdict`` gives, also if it has gone through JSON, where seeds are strings."""
        return cls(**{**fields, "starts": {int(seed): float(value) for seed, value in fields["starts"].items()}})

    def in_words(self) -> str:
        """One line: success of the reference, episodes (and how many were played now), trainable start states."""
        return (
            f"success {self.success:.3f} [{self.success_low:.3f}, {self.success_high:.3f}], {self.episodes:,} episodes "
            f"({self.played:,} played now), {len(self.trainable)} of {len(self.starts)} start states have returns that "
            "differ"
        )

    def summary(self) -> dict[str, float]:
        """Figures of all start states together, for logs and JSON."""
        return {**asdict(self), "starts": len(self.starts), "trainable": len(self.trainable)}


class ValueCache:
    """The reference's returns by key in a SQLite file, which several processes may read and write at the same time.

    A batch is added whole or not at all. There are returns and not V*, so β₁ can change and samples can be added.
    `OptionError` if the file is not SQLite, holds something else, or cannot be used.
    """

    _table = (
        "CREATE TABLE samples (key TEXT NOT NULL, seed INTEGER NOT NULL, sample INTEGER NOT NULL, "
        "episode_return REAL NOT NULL, success INTEGER NOT NULL, PRIMARY KEY (key, seed, sample)) WITHOUT ROWID"
    )

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self.read("")  # what cannot be used is said now

    def read(self, key: str) -> dict[Request, Sample]:
        """All samples of a key."""
        with opened(self._path, self._table, "a cache of values") as database:
            query = "SELECT seed, sample, episode_return, success FROM samples WHERE key = ?"
            rows = database.execute(query, (key,)).fetchall()
        return {(seed, index): Sample(paid, bool(success)) for seed, index, paid, success in rows}

    def add(self, key: str, samples: Mapping[Request, Sample]) -> None:
        """Store samples, all of them or none. Those that are stored already stay as they are."""
        rows = [(key, *request, float(paid), bool(success)) for request, (paid, success) in samples.items()]
        with opened(self._path, self._table, "a cache of values") as database:
            database.executemany("INSERT OR IGNORE INTO samples VALUES (?, ?, ?, ?, ?)", rows)


def value_key(settings: Mapping[str, Any], reference: str) -> str:
    """Under what samples are stored: SHA-256 of the settings and of the reference's fingerprint."""
    return hashlib.sha256(json.dumps({**settings, "reference": reference}, sort_keys=True).encode()).hexdigest()


@dataclass
class ReferenceSamples:
    """Outcomes of the reference by start seed and sample index: those that are known, and played ones for the others.

    ``play`` plays one episode for each request, on all processes together; the return of one whose environment failed
    is NaN. ``known`` is the same on all processes. Each batch of ``batch_size`` episodes is given to ``store`` before
    the next one begins, so a killed run never plays an episode twice.
    """

    play: Callable[[list[Request]], Sequence[Sample]]
    known: dict[Request, Sample] = field(default_factory=dict)
    batch_size: int = 128
    store: Callable[[Mapping[Request, Sample]], None] = lambda samples: None
    num_played: int = 0

    def first(self, counts: Mapping[int, int], bar: "tqdm[Any]") -> dict[int, list[Sample]]:
        """The first ``counts[seed]`` samples of each start, and no more even if more are known.

        An episode in which the environment failed twice is no sample.

        Raises:
            NotFiniteError: If a return is infinite, or all episodes of a start failed.
        """
        requests = [(seed, index) for seed, count in counts.items() for index in range(count)]
        missing = [request for request in requests if request not in self.known]
        bar.total = (bar.total or 0) + len(missing)
        bar.refresh()
        for begin in range(0, len(missing), self.batch_size):
            batch = missing[begin : begin + self.batch_size]
            found = dict(zip(batch, self.play(batch), strict=True))
            failed = [request for request, sample in found.items() if math.isnan(sample.episode_return)]
            if failed:  # once more with the same seeds: the environment may work again
                found |= zip(failed, self.play(failed), strict=True)
            for (seed, index), sample in found.items():
                if math.isinf(sample.episode_return):
                    raise NotFiniteError(f"sample {index} of start {seed} has return {sample.episode_return}")
            self.store({request: sample for request, sample in found.items() if not math.isnan(sample.episode_return)})
            self.known.update(found)
            self.num_played += len(batch)
            bar.update(len(batch))
        kept = {
            seed: [one for index in range(count) if not math.isnan((one := self.known[seed, index]).episode_return)]
            for seed, count in counts.items()
        }
        if lost := [seed for seed, samples in kept.items() if not samples]:
            raise NotFiniteError(
                f"from starts {lost[:5]} every episode failed in its environment, twice; the log has the traceback"
            )
        return kept


def estimate_values(
    seeds: Sequence[int],
    samples: ReferenceSamples,
    args: AStarPOOptions,
    unit: float | None = None,
    progress: bool = False,
) -> ReferenceValues:
    """Play the reference policy and estimate V* of every start state; all processes get the same values.

    After ``args.reference_samples`` of each start, samples are doubled, round by round, up to
    ``args.max_reference_samples``, where all returns are equal and where the standard error is above
    ``args.value_std_error``.

    Args:
        seeds: Start states, at least one.
        samples: Where episodes come from.
        args: β₁, how many samples are played, and how well V* must be known.
        unit: The return range; unset: the largest minus the smallest return of all samples.
        progress: Whether to show a bar.

    Raises:
        NothingToLearnError: If no episode succeeded, or no start has returns that differ.
    """
    counts, played_before = dict.fromkeys(map(int, seeds), args.reference_samples), samples.num_played
    with progress_bar(0, "reference", "episode", hidden=not progress) as bar:
        while True:
            found = samples.first(counts, bar)
            returns = {
                seed: torch.tensor([sample.episode_return for sample in of_start], dtype=torch.float64)
                for seed, of_start in found.items()
            }
            pool = torch.cat(list(returns.values()))
            scale = unit or return_range(pool)
            beta1 = args.beta1 * scale
            errors = dict.fromkeys(returns, math.inf)  # if all returns are equal, which gives no scale
            if _has_spread(pool):
                errors = {seed: soft_value_std_error(each, beta1, pool).item() for seed, each in returns.items()}
            more = {
                seed: min(2 * count, args.max_reference_samples)
                for seed, count in counts.items()
                if errors[seed] > args.value_std_error * scale or not _has_spread(returns[seed])
            }
            if all(count == counts[seed] for seed, count in more.items()):
                break
            counts.update(more)
    won = sum(sample.success for of_start in found.values() for sample in of_start)
    first = [[sample.success for sample in of_start[: args.reference_samples]] for of_start in found.values()]
    successes, sizes = list(map(sum, first)), list(map(len, first))
    low, high = rate_interval(successes, sizes)
    if not won or not any(map(_has_spread, returns.values())):
        raise NothingToLearnError(
            f"{pool.numel()} episodes from {len(found)} start states earned {pool.min():.3g} to {pool.max():.3g}, and "
            f"{won} succeeded (at most {high:.2%} with 95 % confidence); A*-PO cannot learn what its reference never "
            "does, nor where all episodes of a start state earn the same: warm-start the model on the oracle's play, "
            "make the environment easier, take other start states, or raise the temperature or max_reference_samples"
        )
    starts = {seed: soft_value(of_start, beta1).item() for seed, of_start in returns.items()}
    trainable = [seed for seed, of_start in returns.items() if _has_spread(of_start)]
    played, success = samples.num_played - played_before, sum(successes) / sum(sizes)
    return ReferenceValues(starts, trainable, pool.numel(), played, success, low, high, scale, beta1)


def _has_spread(returns: torch.Tensor) -> bool:
    return return_range(returns) > ZERO_STD * max(1.0, returns.abs().max().item())
