"""Stage 1 of A*-PO: V* by hand, adaptive samples, interruptions, several processes, and what it refuses to do."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ragen_trl.algorithms.soft_values import soft_value, soft_value_std_error
from ragen_trl.astar_po.reference_play import ReferencePlayer, Request
from ragen_trl.astar_po.reference_values import (
    NothingToLearnError,
    ReferenceNeverSucceedsError,
    StartValue,
    estimate_values,
)
from ragen_trl.astar_po.value_cache import ValueCache
from tests.support.ragen_trl.references import KEY, SEEDS, ByChance, accuracy_of


def obvious(seed: int, count: int, beta: float) -> float:
    """V* by its definition."""
    returns = [ByChance().outcome(seed, index)[0] for index in range(count)]
    return float(beta * np.log(np.mean(np.exp(np.array(returns) / beta))))


def test_values_are_those_of_the_definition() -> None:
    player = ReferencePlayer(ByChance(), batch_size=7)
    values = estimate_values(SEEDS, player, accuracy_of(max_samples=8))
    assert list(values.starts) == list(SEEDS)
    for seed in SEEDS:
        assert values.of(seed).value == pytest.approx(obvious(seed, 8, 0.5), abs=1e-12)
        assert values.starts[seed].samples == 8
    assert (values.episodes, values.played, values.return_range, values.beta1) == (160, 160, 1.0, 0.5)
    successes = [sum(ByChance().outcome(seed, index)[1] for index in range(8)) for seed in SEEDS]
    assert [start.successes for start in values.starts.values()] == successes
    assert values.success == sum(successes) / 160
    assert values.trainable == [seed for seed, n in zip(SEEDS, successes, strict=True) if 0 < n < 8]


def test_a_start_by_hand() -> None:
    """One success in 4 at β = 0.5: V* = 0.5 log((3 + e²) / 4)."""
    outcomes = {(1, 0): (1.0, True)}
    player = ReferencePlayer(lambda requests: [outcomes.get(request, (0.0, False)) for request in requests])
    values = estimate_values([1, 1], player, accuracy_of(samples=4, max_samples=4))
    start = values.starts[1]
    assert start == StartValue(4, 1, 0.25, start.value, start.std_error, zero_variance=False)
    assert start.value == values.of(1).value == pytest.approx(0.47722930, abs=1e-8)
    assert values.success == 0.25
    assert (values.success_low, values.success_high) == (
        pytest.approx(0.0456, abs=1e-4),
        pytest.approx(0.6994, abs=1e-4),
    )
    # The pool is the sample itself, so nothing is shrunk: β c √(p(1-p)) / ((1 + pc) √N) with c = e² - 1.
    c = np.e**2 - 1
    assert start.std_error == pytest.approx(0.5 * c * np.sqrt(3 / 16) / ((1 + c / 4) * 2), abs=1e-12)


def test_scaled_returns_scale_the_values_and_play_the_same_episodes() -> None:
    plain, scaled = ByChance(), ByChance(win=10.9, loss=-1.1)
    one = estimate_values(SEEDS, ReferencePlayer(plain), accuracy_of())
    other = estimate_values(SEEDS, ReferencePlayer(scaled), accuracy_of())
    assert plain.asked == scaled.asked
    assert other.return_range == pytest.approx(12.0)
    assert other.beta1 == pytest.approx(6.0)
    for seed in SEEDS:
        assert other.of(seed).value == pytest.approx(12.0 * one.of(seed).value - 1.1, abs=1e-9)


def test_a_given_return_range_is_the_unit() -> None:
    values = estimate_values(SEEDS, ReferencePlayer(ByChance()), accuracy_of(return_range=4.0, max_samples=8))
    assert (values.return_range, values.beta1) == (4.0, 2.0)
    assert values.of(10_002).value == pytest.approx(obvious(10_002, 8, 2.0), abs=1e-12)


def test_uncertain_starts_get_more_samples_until_they_are_certain_or_full() -> None:
    accuracy = accuracy_of(samples=4, max_samples=100, std_error=0.08)
    reference = ByChance()
    values = estimate_values(SEEDS, ReferencePlayer(reference), accuracy)
    pool = torch.tensor([reference.outcome(*request)[0] for request in reference.asked], dtype=torch.float64)
    counts = {seed: start.samples for seed, start in values.starts.items()}
    assert len(reference.asked) == len(set(reference.asked)) == sum(counts.values()) == values.episodes
    assert set(counts.values()) <= {4, 8, 16, 32, 64, 100}
    assert len(set(counts.values())) >= 3
    for seed, start in values.starts.items():
        returns = torch.tensor([reference.outcome(seed, index)[0] for index in range(start.samples)])
        assert start.value == pytest.approx(soft_value(returns, 0.5).item(), abs=1e-12)
        assert start.std_error == pytest.approx(soft_value_std_error(returns, 0.5, pool).item(), abs=1e-12)
        assert start.std_error <= 0.08 or start.samples == 100
    assert values.success == np.mean([reference.outcome(seed, index)[1] for seed in SEEDS for index in range(4)])


def test_a_start_that_always_failed_is_tried_again() -> None:
    """A success in 8 elsewhere says that 0 of 8 is no proof; at the 9th try it succeeds and can be learnt from."""

    def play(requests: list[Request]) -> list[tuple[float, bool]]:
        won = [(seed == 1 and index % 2 == 0) or (seed, index) == (2, 8) for seed, index in requests]
        return [(float(value), value) for value in won]

    values = estimate_values([1, 2], ReferencePlayer(play), accuracy_of(std_error=0.05, max_samples=16))
    assert values.starts[2].samples == 16
    assert values.trainable == [1, 2]


def test_a_full_cache_answers_without_playing_and_other_betas_too(tmp_path: Path) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache:
        estimate_values(SEEDS, ReferencePlayer(ByChance(), cache=cache, key=KEY), accuracy_of(max_samples=64))
        player = ReferencePlayer(ByChance(stop_after=0), cache=cache, key=KEY)
        fewer = estimate_values(SEEDS, player, accuracy_of(beta1=2.0, max_samples=8))
        assert fewer == estimate_values(SEEDS, player, accuracy_of(beta1=2.0, max_samples=8))
        assert fewer.played == 0
        assert fewer.of(10_002).value == pytest.approx(obvious(10_002, 8, 2.0), abs=1e-12)


def test_a_reference_that_never_succeeds_is_an_error_that_says_how_sure_that_is() -> None:
    player = ReferencePlayer(lambda requests: [(-0.1 if index % 2 else 0.0, False) for _, index in requests])
    with pytest.raises(ReferenceNeverSucceedsError) as caught:
        estimate_values(range(4), player, accuracy_of(std_error=10.0))
    message = str(caught.value)
    assert "none of 32 episodes from 4 start states" in message
    assert "at most 10.72%" in message  # z² / (n + z²) with n = 32
    assert "return -0.05 on average, 0 at most" in message
    assert all(remedy in message for remedy in ("oracle", "easier", "max_reference_samples"))


def test_before_it_gives_up_every_start_is_played_to_the_limit() -> None:
    reference = ByChance(win=0.0)
    with pytest.raises(ReferenceNeverSucceedsError, match="none of 64 episodes"):
        estimate_values([0, 6], ReferencePlayer(reference), accuracy_of())  # both with chance 0
    assert len(reference.asked) == 64


@pytest.mark.parametrize("returns", [{1: 1.0, 2: 1.0}, {1: 0.0, 2: 1.0}])
def test_starts_that_differ_only_from_each_other_teach_nothing(returns: dict[int, float]) -> None:
    player = ReferencePlayer(lambda requests: [(returns[seed], True) for seed, _ in requests])
    with pytest.raises(NothingToLearnError, match=f"each of 2 start states .* {returns[1]:g} to 1"):
        estimate_values([1, 2], player, accuracy_of())


def test_rounding_is_no_variance() -> None:
    player = ReferencePlayer(
        lambda requests: [(seed + 1e-9 * index + (seed == 2) * (index % 2), True) for seed, index in requests]
    )
    values = estimate_values([1, 2], player, accuracy_of())
    assert values.trainable == [2]
    assert values.starts[1].zero_variance


def test_an_unknown_start_has_no_value() -> None:
    values = estimate_values(SEEDS, ReferencePlayer(ByChance()), accuracy_of())
    with pytest.raises(ValueError, match="start seed 5,"):
        values.of(5)


def test_the_summary_is_json_and_says_what_there_is() -> None:
    values = estimate_values(SEEDS, ReferencePlayer(ByChance()), accuracy_of())
    summary = values.summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["starts"] == 20
    assert summary["trainable"] == len(values.trainable)
    assert summary["episodes"] == sum(start.samples for start in values.starts.values())
    assert summary["mean_value"] == pytest.approx(np.mean([values.of(seed).value for seed in SEEDS]))
    assert summary["mean_return"] == pytest.approx(np.mean([start.mean for start in values.starts.values()]))
    assert summary["max_std_error"] == max(start.std_error for start in values.starts.values())


def test_the_progress_bar_counts_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    values = estimate_values(SEEDS, ReferencePlayer(ByChance(), 16), accuracy_of(), progress=True)
    shown = capsys.readouterr().out  # no terminal: whole lines on standard output
    assert "reference: 160 of " in shown
    assert f" of {values.played} episodes " in shown  # grown by the later rounds
    estimate_values(SEEDS, ReferencePlayer(ByChance()), accuracy_of())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("failing", [True, False])
@pytest.mark.parametrize("chance", [0.05, 0.1, 0.2])
def test_a_start_is_given_up_only_if_it_shows_no_spread_at_the_maximum(chance: float, failing: bool) -> None:
    """600 starts with one success rate: lost are (1-p)³² + p³², as with 32 samples of each, for fewer samples."""
    rng = np.random.default_rng(0)
    outcomes = rng.random((600, 32)) < (chance if failing else 1 - chance)

    def play(requests: list[Request]) -> list[tuple[float, bool]]:
        return [(float(outcomes[request]), bool(outcomes[request])) for request in requests]

    values = estimate_values(range(600), ReferencePlayer(play, batch_size=4096), accuracy_of(std_error=0.15))
    lost = 1 - len(values.trainable) / 600
    of_32 = float(np.mean(outcomes.all(axis=1) | ~outcomes.any(axis=1)))
    assert lost == pytest.approx(of_32)  # exactly those that 32 samples of each would lose
    expected = (1 - chance) ** 32 + chance**32
    assert lost == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 600) + 1 / 600)
    assert all(start.samples == 32 for start in values.starts.values() if start.zero_variance)
    assert values.episodes / 600 < {0.05: 24, 0.1: 20, 0.2: 17}[chance]
