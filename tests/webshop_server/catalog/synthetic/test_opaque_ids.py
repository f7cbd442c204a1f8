"""Identifiers: one for each number, none that tells."""

import re

import pytest

from webshop_server.catalog.synthetic.opaque_ids import opaque_id


def test_identifiers_look_like_asins_and_never_repeat() -> None:
    made = [opaque_id("toy/0", number) for number in range(20_000)]
    assert len(set(made)) == 20_000
    assert all(re.fullmatch("B0[0-9A-Z]{8}", asin) for asin in made)


def test_identifiers_do_not_follow_their_numbers() -> None:
    made = [opaque_id("toy/0", number) for number in range(2000)]
    rising = sum(first < second for first, second in zip(made, made[1:], strict=False))
    assert 900 < rising < 1100
    assert len({asin[:4] for asin in made}) > 800
    assert opaque_id("toy/0", 0) != opaque_id("toy/1", 0)


def test_numbers_without_an_identifier_are_refused() -> None:
    assert len(opaque_id("x", 2**40 - 1)) == 10
    for number in (-1, 2**40):
        with pytest.raises(ValueError, match="there are no more identifiers"):
            opaque_id("x", number)
