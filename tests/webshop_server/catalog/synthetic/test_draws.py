"""Draws: the same on every Python, fair, and different where the key differs."""

from collections import Counter

from webshop_server.catalog.synthetic.draws import Draws


def test_draws_are_what_they_were() -> None:
    draws = Draws("key")
    assert [draws.below(1000) for _ in range(5)] == [865, 902, 930, 485, 390]
    assert [Draws("key").below(10**6)] != [Draws("yek").below(10**6)]


def test_draws_are_fair() -> None:
    draws = Draws("fair")
    picked = Counter(draws.pick("abcd") for _ in range(8000))
    assert all(1850 < count < 2150 for count in picked.values())
    assert 2250 < sum(draws.chance(0.3) for _ in range(8000)) < 2550
    pairs = Counter(tuple(draws.some("abcd", 2)) for _ in range(12_000))
    assert len(pairs) == 12
    assert all(850 < count < 1150 for count in pairs.values())
    numbers = [draws.between(2.0, 3.0) for _ in range(4000)]
    assert 2.0 <= min(numbers) < 2.01 < 2.99 < max(numbers) < 3.0


def test_some_are_different_ones_and_at_most_all() -> None:
    draws = Draws("some")
    things = ("a", "b", "c")
    assert sorted(draws.some(things, 9)) == ["a", "b", "c"]
    assert draws.some(things, 0) == []
    assert things == ("a", "b", "c")
