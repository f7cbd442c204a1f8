"""Prices as the public data write them, as the store shows them, and as they are drawn."""

import hashlib

import pytest

from webshop_server.catalog.pricing import checked, drawn_price, price_text, read_pricing


@pytest.mark.parametrize(
    ("text", "prices", "shown"),
    [
        ("", (100.0,), "$100.0"),
        ("$877.80", (877.8,), "$877.8"),
        ("$19.99 - $27.99", (19.99, 27.99), "$19.99 to $27.99"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$5.99 ($0.50 / Ounce)", (5.99, 0.5), "$5.99 to $0.5"),
        ("from $3 to $4 or $5", (3.0, 4.0), "$3.0 to $4.0"),
    ],
)
def test_a_written_price_is_read_and_shown(text: str, prices: tuple[float, ...], shown: str) -> None:
    assert read_pricing(text) == prices
    assert price_text(prices) == shown


@pytest.mark.parametrize("text", ["19.99", "free", "$", "$1.2.3", "$19.99 - $soon", "$" + "9" * 400])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        read_pricing(text)


@pytest.mark.parametrize("price", ["1", True, None, -0.01, float("nan"), float("inf"), 10**400])
def test_what_is_no_number_of_dollars_is_refused(price: object) -> None:
    with pytest.raises(ValueError, match="is not a price"):
        checked([1.0, price])


def test_numbers_are_taken_as_dollars() -> None:
    assert checked([]) == (100.0,)
    assert checked([3]) == (3.0,)
    assert checked([1, 2.5, "ignored"]) == (1.0, 2.5)


def test_a_drawn_price_follows_its_formula() -> None:
    share = int(hashlib.sha256(b"abc/7/B01").hexdigest()[:14], 16) / 16**14
    assert drawn_price("abc", 7, "B01", (10.0, 20.0)) == round(10 + 10 * share, 2)
    # Written the other way around, as in the public data now and then.
    assert drawn_price("abc", 7, "B01", (20.0, 10.0)) == round(10 + 10 * share, 2)
    assert drawn_price("abc", 7, "B01", (12.345,)) == 12.345


def test_drawn_prices_fill_their_range_and_stay_in_it() -> None:
    prices = [drawn_price("abc", 0, f"B{n}", (10.0, 11.0)) for n in range(2000)]
    assert 10.0 <= min(prices) < 10.01 < 10.99 < max(prices) <= 11.0
    assert abs(sum(prices) / 2000 - 10.5) < 0.03
    assert all(round(price * 100) == pytest.approx(price * 100) for price in prices)
    assert drawn_price("abc", 0, "B1", (0.001, 0.002)) in (0.001, 0.002)


def test_a_drawn_price_depends_on_catalogue_seed_and_product() -> None:
    args = [("abc", 0, "B1"), ("abd", 0, "B1"), ("abc", 1, "B1"), ("abc", 0, "B2")]
    assert len({drawn_price(*arg, (0.0, 1000.0)) for arg in args}) == 4
