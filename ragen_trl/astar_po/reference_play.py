"""Episodes of the reference policy by start seed and sample index: read from the cache if stored there, else played.

Every batch is stored before the next one begins, so a killed run never plays an episode twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from ragen_trl.astar_po.value_cache import Sample, StoredSample, ValueCache, ValueKey, check_finite
from ragen_trl.rollout.interfaces import Start

Request = tuple[int, int]  # start seed, index of the sample
PlayBatch = Callable[[list[Request]], Sequence[tuple[float, bool]]]

_REFERENCE_PLAY = 7  # makes these seeds differ from those of training and evaluation


@dataclass(frozen=True)
class Processes:
    """The processes among which episodes are divided.

    Attributes:
        index: Of this process; 0 is the main one.
        count: How many there are.
        gather: Joins the lists of all processes, in any order, on all of them (``accelerate.utils.gather_object``).
    """

    index: int = 0
    count: int = 1
    gather: Callable[[list[StoredSample]], list[StoredSample]] = list


def reference_start(seed: int, index: int) -> Start:
    """Outcome seed and sampling seed of the reference's ``index``-th episode from a start state.

    They do not depend on the seed of a run, so runs can share a cache.
    """
    return Start.drawn(seed, (seed, index, _REFERENCE_PLAY))


class ReferencePlayer:
    """Reads samples from the cache (the main process's), or plays them in batches and stores them.

    Args:
        play_batch: Plays one episode for each (start seed, sample index), in order, and returns (raw return, success)
            of each. It gets this process's share, which may be empty, and is called equally often on all processes.
        batch_size: Episodes that a process plays at the same time.
        cache: Where samples are read and stored.
        key: The key of the samples; needed with a cache.
        processes: The processes that share the work; all of them get all samples.

    Raises:
        ValueError: If there is a cache without a key, or no room in a batch.
    """

    def __init__(
        self,
        play_batch: PlayBatch,
        batch_size: int = 128,
        cache: ValueCache | None = None,
        key: ValueKey | None = None,
        processes: Processes | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; play at least 1 episode at a time")
        if cache is not None and key is None:
            raise ValueError("a cache needs a key: pass key=ValueKey(...)")
        self.processes = processes or Processes()
        self.num_played = 0
        self._play_batch, self._batch_size = play_batch, batch_size
        self._cache = cache if self.processes.index == 0 else None
        self._key = key
        stored: list[StoredSample] = []
        if self._cache is not None and key is not None:
            for seed, found in self._cache.read(key).items():
                stored += [StoredSample(seed, index, sample) for index, sample in enumerate(found)]
        # Every process takes part, with a cache or without: this sends all of them what the main one read.
        self._known = {(seed, index): sample for seed, index, sample in self.processes.gather(stored)}

    def play(self, counts: Mapping[int, int], bar: "tqdm[Any] | None" = None) -> dict[int, list[Sample]]:
        """The first ``counts[seed]`` samples of each start, and no more even if more are stored.

        Raises:
            NotFiniteError: If a return is NaN or infinite.
            ValueCacheError: If another run has meanwhile stored one of these samples with another value.
            ValueError: If ``play_batch`` returns another number of episodes.
        """
        requests = [(seed, index) for seed, count in counts.items() for index in range(count)]
        missing = [request for request in requests if request not in self._known]
        if bar is not None:
            bar.total = (bar.total or 0) + len(missing)
            bar.refresh()
        size = self._batch_size * self.processes.count
        for first in range(0, len(missing), size):
            batch = missing[first : first + size]
            self._play_batch_of_all(batch)
            if bar is not None:
                bar.update(len(batch))
        return {seed: [self._known[seed, index] for index in range(count)] for seed, count in counts.items()}

    def _play_batch_of_all(self, batch: list[Request]) -> None:
        share = batch[self.processes.index :: self.processes.count]
        outcomes = self._play_batch(share)
        if len(outcomes) != len(share):
            raise ValueError(f"play_batch returned {len(outcomes)} outcomes for {len(share)} requests; return one each")
        mine = [
            StoredSample(seed, index, Sample(float(episode_return), bool(success)))
            for (seed, index), (episode_return, success) in zip(share, outcomes, strict=True)
        ]
        found = {(seed, index): sample for seed, index, sample in self.processes.gather(mine)}
        for seed, index in batch:  # only after the exchange, so that all processes raise and none waits for another
            check_finite(seed, index, found[seed, index].episode_return)
        if self._cache is not None and self._key is not None:
            self._cache.add(self._key, [StoredSample(*request, found[request]) for request in batch])
        self._known.update(found)
        self.num_played += len(batch)
