"""Reading filters and applying them to products."""

from dataclasses import replace

import pytest

from webshop_server.catalog.product import Product
from webshop_server.store.filters import MAX_FILTERS, Filter, parse_filter, with_filter

SHIRT = Product(
    asin="B1",
    title="Shirt",
    category="Fashion",
    query="",
    product_category="Clothing › Men's Shirts",
    options={"color": ("wine red", "navy"), "fit type": ("men",)},
    price=19.99,
)

SOCKS = replace(
    SHIRT,
    options={"size": ("small", "large")},
    option_prices={"small": 10.0, "large": 30.0},
    pricing=(10.0, 30.0),
    price=17.0,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price<50", Filter("price", "<", "50")),
        (" Price >= $49.50 ", Filter("price", ">=", "49.5")),
        ("price=0", Filter("price", "=", "0")),
        ("color = Dark Red", Filter("color", "=", "dark red")),
        ("fit type=men", Filter("fit type", "=", "men")),
        ("color=a=b", Filter("color", "=", "a=b")),
        ("category<garden", None),
        ("price<cheap", None),
        ("price<-1", None),
        ("price<1e3", None),
        ("price<٣", None),
        ("color=", None),
        ("=red", None),
        (" =red", None),
        ("color=!!", None),
        ("color", None),
        ("color=" + "x" * 100, None),
        ("\x00" * 50 + "=" + " " * 49, None),
    ],
)
def test_filters_are_read(text: str, expected: Filter | None) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("price<12", True),  # the small one
        ("price<10", False),
        ("price<=10", True),
        ("price>29", True),  # the large one
        ("price>=30", True),
        ("price>30", False),
        ("price=10", True),
        ("price=17", False),  # drawn from the range, for the original's purchases
    ],
)
def test_prices_of_options_are_what_filters_compare(text: str, passes: bool) -> None:
    """Regression: a number that is on no page was compared, and what could be had for less was hidden."""
    one = parse_filter(text)
    assert one is not None
    assert one.accepts(SOCKS) is passes


def test_of_a_range_without_priced_options_filters_compare_what_a_purchase_costs() -> None:
    plain = replace(SOCKS, option_prices={})
    filters = map(parse_filter, ("price<11", "price=10", "price>10", "price=17"))
    assert [one is not None and one.accepts(plain) for one in filters] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("price<20", True),
        ("price<=19.99", True),
        ("price>19.99", False),
        ("price>=19.99", True),
        ("price=19.99", True),
        ("category=fashion", True),
        ("category=men's shirts", True),
        ("category=shirts", False),
        ("color=red", True),
        ("color=red wine", True),
        ("color=ed", False),
        ("color=red navy", False),
        ("size=large", False),
    ],
)
def test_filters_pass_what_fits(text: str, passes: bool) -> None:
    one = parse_filter(text)
    assert one is not None
    assert one.accepts(SHIRT) is passes


def test_a_price_without_an_option_that_has_one_is_a_price_too() -> None:
    """Regression: what costs $19.99 in navy was hidden by `price<=20`, as wine red costs $60."""
    mixed = replace(SHIRT, option_prices={"wine red": 60.0}, pricing=(19.99,))
    filters = map(parse_filter, ("price<=20", "price>50", "price<19"))
    assert [one is not None and one.accepts(mixed) for one in filters] == [True, True, False]


@pytest.mark.parametrize("option", ["color", "colour"])
@pytest.mark.parametrize("name", ["color", "colour"])
def test_both_spellings_find_an_option_of_either(option: str, name: str) -> None:
    """Regression: the filter was called "color", and an option called "colour" never found."""
    mug = replace(SHIRT, title="Green mug", options={option: ("red", "navy")})
    filters = map(parse_filter, (f"{name}=navy", f"{name}=green"))
    assert [one is not None and one.accepts(mug) for one in filters] == [True, False]


def test_what_is_written_is_read_again() -> None:
    for text in ("price<50", "price>=0.5", "color=wine red", "category=men's shirts"):
        one = parse_filter(text)
        assert str(one) == text


def test_a_filter_replaces_its_like_and_old_ones_go() -> None:
    filters: tuple[Filter, ...] = ()
    for text in ("price<50", "color=red", "price>10", "price<=40", "color=blue"):
        one = parse_filter(text)
        assert one is not None
        filters = with_filter(filters, one)
    assert [str(one) for one in filters] == ["price>10", "price<=40", "color=blue"]
    for number in range(20):
        filters = with_filter(filters, Filter(f"option {number}", "=", "x"))
    assert len(filters) == MAX_FILTERS


def test_what_has_no_such_option_is_judged_by_its_title() -> None:
    """Regression: `filter[color=purple]` found nothing where colours stand in the titles."""
    lamp = Product("L1", "Small Purple Steel Lamp", "garden", "lamps", "Home › Lamps")
    for text, passes in (("color=purple", True), ("colour=Purple steel", True), ("color=red", False)):
        condition = parse_filter(text)
        assert condition is not None and condition.accepts(lamp) is passes
    red = parse_filter("color=shirt")
    assert red is not None and not red.accepts(SHIRT)  # it has colours; its title is not asked
