"""Episodes of the reference: divided among processes, stored batch by batch, never played twice."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.astar_po.reference_play import Processes, ReferencePlayer, Request, reference_start
from ragen_trl.astar_po.reference_values import ReferenceValues, estimate_values
from ragen_trl.astar_po.value_cache import StoredSample, ValueCache
from ragen_trl.errors import NotFiniteError
from ragen_trl.rollout.interfaces import Start
from tests.support.ragen_trl.references import KEY, SEEDS, ByChance, accuracy_of


def test_what_is_played_does_not_depend_on_the_size_of_batches() -> None:
    accuracy = accuracy_of(samples=4, std_error=0.08)
    results, asked = [], []
    for batch_size in (1, 7, 1000):
        reference = ByChance()
        results.append(estimate_values(SEEDS, ReferencePlayer(reference, batch_size), accuracy))
        asked.append(reference.asked)
        assert max(map(len, reference.batches)) <= batch_size
    assert asked[0] == asked[1] == asked[2]
    assert results[0] == results[1] == results[2]


def test_a_killed_run_asks_for_nothing_twice_and_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    accuracy = accuracy_of(samples=4, std_error=0.08)
    unbroken = ByChance()
    whole = estimate_values(SEEDS, ReferencePlayer(unbroken, 9), accuracy)
    assert len(unbroken.batches) > 12
    asked: list[Request] = []
    for stop_after in (1, 3, 0, 5, None):
        asked_before = len(asked)
        reference = ByChance(stop_after=stop_after)
        with ValueCache(tmp_path / "values.sqlite") as cache:
            player = ReferencePlayer(reference, 9, cache, KEY)
            if stop_after is None:
                resumed = estimate_values(SEEDS, player, accuracy)
            else:
                with pytest.raises(KeyboardInterrupt):
                    estimate_values(SEEDS, player, accuracy)
        asked += reference.asked
    assert sorted(asked) == sorted(unbroken.asked)
    assert resumed.played == len(reference.asked) == whole.played - asked_before
    assert resumed.starts == whole.starts
    assert resumed.episodes == whole.episodes


class Meeting:
    """Gathers between threads; both have to come equally often."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=20)
        self.lists: list[list[StoredSample]] = [[] for _ in range(count)]
        self.rounds = [0] * count

    def gather(self, index: int) -> Callable[[list[StoredSample]], list[StoredSample]]:
        """The function for one thread."""

        def join(items: list[StoredSample]) -> list[StoredSample]:
            self.lists[index] = items
            self.rounds[index] += 1
            self.barrier.wait()
            joined = [item for items in self.lists for item in items]
            self.barrier.wait()
            return joined

        return join


def on_processes(count: int, work: Callable[[Processes], Any]) -> tuple[list[Any], list[int]]:
    """What each of several processes returned or raised, and how often each came to a collective."""
    meeting, results = Meeting(count), [None] * count

    def run(index: int) -> None:
        try:
            results[index] = work(Processes(index, count, meeting.gather(index)))
        except Exception as error:
            results[index] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results, meeting.rounds


@pytest.mark.parametrize("filled", [False, True])
def test_processes_share_the_work_and_end_with_the_same_values(tmp_path: Path, filled: bool) -> None:
    """Only the main one has a cache; with 20 starts of 4 samples and batches of 11 the last shares are unequal."""
    accuracy = accuracy_of(samples=4, std_error=0.08)
    single = ByChance()
    expected = estimate_values(SEEDS, ReferencePlayer(single), accuracy)
    path = tmp_path / "values.sqlite"
    if filled:
        with ValueCache(path) as cache, pytest.raises(KeyboardInterrupt):
            estimate_values(SEEDS, ReferencePlayer(ByChance(stop_after=2), 13, cache, KEY), accuracy)
    references = [ByChance(), ByChance(), ByChance()]

    def work(processes: Processes) -> ReferenceValues:
        if processes.index > 0:
            return estimate_values(
                SEEDS, ReferencePlayer(references[processes.index], 11, processes=processes), accuracy
            )
        with ValueCache(path) as cache:
            player = ReferencePlayer(references[0], 11, cache, KEY, processes)
            return estimate_values(SEEDS, player, accuracy)

    results, rounds = on_processes(3, work)
    assert results[0] == results[1] == results[2]
    assert results[0].starts == expected.starts
    assert len(set(rounds)) == 1
    assert len({len(reference.batches) for reference in references}) == 1
    asked = [request for reference in references for request in reference.asked]
    assert len(asked) == len(set(asked)) == results[0].played == expected.played - 26 * filled
    assert set(asked) <= set(single.asked)
    with ValueCache(path) as cache:
        found = cache.read(KEY)
    assert {(seed, index) for seed, samples in found.items() for index in range(len(samples))} == set(single.asked)


def test_a_return_that_is_not_finite_stops_all_processes() -> None:
    def play(requests: list[Request]) -> list[tuple[float, bool]]:
        return [(float("nan") if request == (2, 3) else 1.0, True) for request in requests]

    results, _ = on_processes(
        2, lambda processes: estimate_values([1, 2], ReferencePlayer(play, processes=processes), accuracy_of())
    )
    assert [type(result) for result in results] == [NotFiniteError] * 2
    assert "sample 3 of start 2" in str(results[0])


def test_the_seeds_of_an_episode_depend_on_its_place_alone() -> None:
    def starts() -> Iterator[Start]:
        return (reference_start(seed, index) for seed in (10_000, 10_001) for index in range(50))

    assert list(starts()) == list(starts())
    assert len({(start.outcome_seed, start.sampling_seed) for start in starts()}) == 100
    assert reference_start(10_001, 4).seed == 10_001


def test_players_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache, pytest.raises(ValueError, match="needs a key"):
        ReferencePlayer(ByChance(), cache=cache)
    with pytest.raises(ValueError, match="batch_size is 0"):
        ReferencePlayer(ByChance(), batch_size=0)
    with pytest.raises(ValueError, match="0 outcomes for 8 requests"):
        estimate_values([1], ReferencePlayer(lambda requests: []), accuracy_of())
    with pytest.raises(ValueError, match="no seeds"):
        estimate_values([], ReferencePlayer(ByChance()), accuracy_of())
