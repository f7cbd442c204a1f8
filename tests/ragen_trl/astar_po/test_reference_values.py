"""Stage 1 of A*-PO: V* by hand, adaptive samples, interruptions, several processes, and what it refuses to do."""

import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragen_trl.algorithms.intervals import rate_interval
from ragen_trl.algorithms.soft_values import soft_value, soft_value_std_error
from ragen_trl.astar_po.reference_values import (
    NothingToLearnError,
    ReferenceSamples,
    Request,
    Sample,
    ValueCache,
    estimate_values,
)
from ragen_trl.config.options import AStarPOOptions


def accuracy_of(**changes: Any) -> AStarPOOptions:
    """How well V* must be known, with some values changed."""
    return AStarPOOptions(**{"max_reference_samples": 32, "value_std_error": 0.05, **changes})


SEEDS = range(10_000, 10_020)
CHANCES = [0.0, 0.05, 0.3, 0.5, 0.9, 1.0]


class ByChance:
    """A reference that succeeds by chance, another one from every start; keeps account of what it was asked for."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.batches: list[list[Request]] = []

    @property
    def asked(self) -> list[Request]:
        """All requests so far."""
        return [request for batch in self.batches for request in batch]

    def __call__(self, requests: list[Request]) -> list[Sample]:
        if len(self.batches) == self.stop_after:
            raise KeyboardInterrupt
        self.batches.append(requests)
        return [Sample(*self.outcome(*request)) for request in requests]

    def outcome(self, seed: int, index: int) -> tuple[float, bool]:
        """A function of its arguments alone."""
        success = bool(np.random.default_rng((seed, index)).random() < CHANCES[seed % len(CHANCES)])
        return float(success), success


def kept_in(cache: ValueCache, play: ByChance, batch_size: int = 128) -> ReferenceSamples:
    """Samples that a cache keeps under one key."""
    return ReferenceSamples(play, cache.read("key"), batch_size, partial(cache.add, "key"))


def obvious(seed: int, count: int, beta: float) -> float:
    """V* by its definition."""
    returns = [ByChance().outcome(seed, index)[0] for index in range(count)]
    return float(beta * np.log(np.mean(np.exp(np.array(returns) / beta))))


def test_a_start_by_hand() -> None:
    """One success in 4 at β = 0.5: V* = 0.5 log((3 + e²) / 4). The fifth episode fails in its environment, twice."""
    outcomes = {(1, 0): (1.0, True), (1, 4): (math.nan, False)}
    player = ReferenceSamples(lambda requests: [Sample(*outcomes.get(request, (0.0, False))) for request in requests])
    values = estimate_values([1, 1], player, accuracy_of(reference_samples=5, max_reference_samples=5))
    assert values.starts == {1: pytest.approx(0.47722930, abs=1e-8)}
    assert (values.trainable, values.episodes, values.success) == ([1], 4, 0.25)
    assert (values.success_low, values.success_high) == rate_interval([1], [4])  # one start state says little


def test_uncertain_starts_get_more_samples_until_they_are_certain_or_full() -> None:
    accuracy = accuracy_of(reference_samples=4, max_reference_samples=100, value_std_error=0.08)
    reference = ByChance()
    values = estimate_values(SEEDS, ReferenceSamples(reference), accuracy)
    pool = torch.tensor([reference.outcome(*request)[0] for request in reference.asked], dtype=torch.float64)
    counts = Counter(seed for seed, _ in reference.asked)
    assert len(reference.asked) == len(set(reference.asked)) == values.episodes
    assert set(counts.values()) <= {4, 8, 16, 32, 64, 100}
    assert len(set(counts.values())) >= 3
    for seed, value in values.starts.items():
        returns = torch.tensor([reference.outcome(seed, index)[0] for index in range(counts[seed])])
        assert value == pytest.approx(soft_value(returns, 0.5).item(), abs=1e-12)
        assert soft_value_std_error(returns, 0.5, pool).item() <= 0.08 or counts[seed] == 100
    assert values.success == np.mean([reference.outcome(seed, index)[1] for seed in SEEDS for index in range(4)])


def test_a_start_that_always_failed_is_tried_again() -> None:
    """A success in 8 elsewhere says that 0 of 8 is no proof; at the 9th try it succeeds and can be learnt from."""

    def play(requests: list[Request]) -> list[Sample]:
        won = [(seed == 1 and index % 2 == 0) or (seed, index) == (2, 8) for seed, index in requests]
        return [Sample(float(value), value) for value in won]

    samples = ReferenceSamples(play)
    values = estimate_values([1, 2], samples, accuracy_of(max_reference_samples=16))
    assert (2, 15) in samples.known and (2, 16) not in samples.known
    assert values.trainable == [1, 2]


def test_a_full_cache_answers_without_playing_and_other_betas_too(tmp_path: Path) -> None:
    cache = ValueCache(tmp_path / "values.sqlite")
    estimate_values(SEEDS, kept_in(cache, ByChance()), accuracy_of(max_reference_samples=64))
    samples = kept_in(cache, ByChance(stop_after=0))
    fewer = estimate_values(SEEDS, samples, accuracy_of(beta1=2.0, max_reference_samples=8))
    assert fewer == estimate_values(SEEDS, samples, accuracy_of(beta1=2.0, max_reference_samples=8))
    assert fewer.played == 0
    assert fewer.starts[10_002] == pytest.approx(obvious(10_002, 8, 2.0), abs=1e-12)


@pytest.mark.parametrize("returns", [{1: 1.0, 2: 1.0}, {1: 0.0, 2: 1.0}])
def test_starts_that_differ_only_from_each_other_teach_nothing(returns: dict[int, float]) -> None:
    samples = ReferenceSamples(lambda requests: [Sample(returns[seed], True) for seed, _ in requests])
    with pytest.raises(NothingToLearnError, match=f"from 2 start states earned {returns[1]:g} to 1"):
        estimate_values([1, 2], samples, accuracy_of())


# Episodes of the reference: divided among processes, stored batch by batch, never played twice


def test_a_killed_run_asks_for_nothing_twice_and_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    accuracy = accuracy_of(reference_samples=4, value_std_error=0.08)
    unbroken = ByChance()
    whole = estimate_values(SEEDS, ReferenceSamples(unbroken, batch_size=9), accuracy)
    assert len(unbroken.batches) > 12
    asked: list[Request] = []
    for stop_after in (1, 3, 0, 5, None):
        asked_before = len(asked)
        reference = ByChance(stop_after=stop_after)
        samples = kept_in(ValueCache(tmp_path / "values.sqlite"), reference, 9)
        if stop_after is None:
            resumed = estimate_values(SEEDS, samples, accuracy)
        else:
            with pytest.raises(KeyboardInterrupt):
                estimate_values(SEEDS, samples, accuracy)
        asked += reference.asked
    assert sorted(asked) == sorted(unbroken.asked)
    assert resumed.played == len(reference.asked) == whole.played - asked_before
    assert resumed.starts == whole.starts
    assert resumed.episodes == whole.episodes
