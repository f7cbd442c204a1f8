"""Reading filters and applying them to products."""


import pytest

from webshop_server.catalog.product import Product
from webshop_server.store.state import MAX_FILTERS, Filter, parse_filter, with_filter

SHIRT = Product(
    asin="B1",
    title="Shirt",
    category="Fashion",
    query="",
    product_category="Clothing › Men's Shirts",
    options={"color": ("wine red", "navy"), "fit type": ("men",)},
    price=19.99,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price<50", Filter("price", "<", "50")),
        (" Price >= $49.50 ", Filter("price", ">=", "49.5")),
        ("price=0", Filter("price", "=", "0")),
        ("color = Dark Red", Filter("color", "=", "dark red")),
        ("fit type=men", Filter("fit type", "=", "men")),
        ("category<garden", None),
        ("price<cheap", None),
        ("price<-1", None),
        ("price<1e3", None),
        ("color=", None),
        ("=red", None),
        ("color", None),
        ("color=" + "x" * 100, None),
    ],
)
def test_filters_are_read(text: str, expected: Filter | None) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("price<20", True),
        ("price<=19.99", True),
        ("price>19.99", False),
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
