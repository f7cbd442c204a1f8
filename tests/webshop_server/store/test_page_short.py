"""Short pages: what they say, and that their numbers mean the products beside them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from webshop_server.catalog.catalog import MemoryCatalog
from webshop_server.catalog.product import Product
from webshop_server.server.app import create_app
from webshop_server.server.validation import RequestError, read_session_request
from webshop_server.store.filters import Filter
from webshop_server.store.page_short import (
    LONGEST_TITLE,
    short_actions,
    short_buyable,
    short_clickables,
    short_page,
    with_identifier,
)
from webshop_server.store.page_text import PageText
from webshop_server.store.shop import MODES, Episode, Rules
from webshop_server.store.state import START, PageState, Store

SHIRT = Product(
    asin="B000SHIRT1",
    title="Linen  shirt\nwith a | bar",
    category="fashion",
    query="shirts",
    product_category="Clothing › Shirts",
    description="Soft.\n  Two lines. ",
    bullet_points=("Cool", "", " padded "),
    options={"color": ("red", "crème"), "size": ("small, long", "2", "2")},
    option_prices={"crème": 31.5},
    pricing=(20.0, 30.0),
    price_text="$20.0 to $30.0",
    price=22.5,
)
LONG = Product("B00000LONG", "word " * 40, "garden", "things", "Home", pricing=(1.0,), price_text="$1.0", price=1.0)
PLAIN = [
    Product(f"B00PLAIN{i:02}", f"Thing {i}", "garden", "things", "Home", pricing=(2.0,), price_text="$2.0")
    for i in range(10)
]
PRODUCTS = {product.asin: product for product in (SHIRT, LONG, *PLAIN)}
PAGE = PageText("i want a\nred shirt", score=0.5)


class Index:
    def search(self, keywords: Sequence[str], limit: int = 50) -> list[str]:
        return [] if keywords == ("nothing",) else list(PRODUCTS)[:limit]


class OneFound:
    def search(self, keywords: Sequence[str], limit: int = 50) -> list[str]:
        return [SHIRT.asin]


STORE = Store(MemoryCatalog("few", list(PRODUCTS.values()), 0, None), Index())
FIRST, SECOND = PageState("results", ("red",), 1), PageState("results", ("red",), 2)
ITEM = PageState("item", ("red",), 1, SHIRT.asin)


def test_every_kind_of_page() -> None:
    cut = "word " * 15 + "word…"
    pages = {
        START: "Wanted: i want a red shirt\nSearch for a product",
        PageState("results", ("nothing",), 1): "Page 1 of 1, 0 results",
        FIRST: "\n".join(
            [
                "Page 1 of 2, 12 results",
                "1. Linen shirt with a | bar | from $20.00",
                f"2. {cut} | $1.00",
                *(f"{number}. Thing {number - 3} | $2.00" for number in range(3, 11)),
            ]
        ),
        SECOND: "Page 2 of 2, 12 results\n11. Thing 8 | $2.00\n12. Thing 9 | $2.00",
        ITEM: "Linen shirt with a | bar\n$20.00 to $30.00\ncolor: red, crème\nsize: small, long, 2",
        PageState("item", ("red",), 1, SHIRT.asin, (("color", "crème"), ("size", "2"))): (
            "Linen shirt with a | bar\n$31.50\ncolor: red, crème (chosen: crème)\nsize: small, long, 2 (chosen: 2)"
        ),
        PageState("sub_page", ("red",), 1, SHIRT.asin, sub_page="Features"): (
            "Linen shirt with a | bar\nFeatures: Cool; padded"
        ),
        PageState("sub_page", ("red",), 1, LONG.asin, sub_page="Description"): f"{cut}\nDescription: none",
        PageState("done", ("red",), 1, SHIRT.asin): "Bought: Linen shirt with a | bar\nScore: 0.50",
    }
    assert {state: short_page(STORE, state, PAGE) for state in pages} == pages
    assert len(cut) <= LONGEST_TITLE
    filtered = PageState("results", ("red",), 1, filters=(Filter("price", "<", "1.5"),))
    assert short_page(STORE, filtered, PAGE) == f"Page 1 of 1, 1 results\nFilters: price<1.5\n1. {cut} | $1.00"


def test_the_lower_end_of_a_range_is_shown_in_whatever_order_it_is_written() -> None:
    """Regression: "$30 - $20", of which the public data has some, was "from $30.00"."""
    store = Store(MemoryCatalog("one", [replace(SHIRT, pricing=(30.0, 20.0))], 0, None), OneFound())
    page = short_page(store, PageState("results", ("red",), 1), PAGE)
    assert page.endswith("\n1. Linen shirt with a | bar | from $20.00")


def test_what_is_offered_has_the_numbers_of_the_page() -> None:
    assert short_clickables(STORE, FIRST) == ["back to search", "next >", *map(str, range(1, 11))]
    assert short_buyable(STORE, SECOND) == ["11", "12"]
    assert short_clickables(STORE, SECOND) == ["back to search", "< prev", "11", "12"]
    assert short_clickables(STORE, ITEM) == STORE.clickables(ITEM)
    assert short_buyable(STORE, ITEM) == ["now"] and short_buyable(STORE, START) == []
    assert short_buyable(STORE, PageState("done", ("red",), 1, SHIRT.asin)) == []


def test_a_number_is_the_product_beside_it_and_on_other_pages_a_text() -> None:
    assert with_identifier(STORE, SECOND, "click[ 12 ]") == "click[b00plain09]"
    assert with_identifier(STORE, FIRST, "buy[1]") == "buy[b000shirt1]"
    for action in ("click[12]", "click[01]", "click[0]", "search[1]", "click[next >]", "1", "click[]"):
        assert with_identifier(STORE, FIRST, action) == action
    assert with_identifier(STORE, ITEM, "click[2]") == "click[2]"  # a size


def test_the_line_of_actions_names_all_hits_and_all_options_in_a_word() -> None:
    assert short_actions(STORE, SECOND) == (
        "\nActions: click[number], buy[number], click[back to search], click[< prev], filter[condition], search[words]"
    )
    assert short_actions(STORE, ITEM) == (
        "\nActions: click[option], click[back to search], click[< prev], click[description], click[features], "
        "click[reviews], click[buy now], search[words]"
    )
    assert short_actions(STORE, PageState("results", ("nothing",), 1)) == (
        "\nActions: click[back to search], filter[condition], search[words]"
    )
    assert short_actions(STORE, PageState("done", ("red",), 1, SHIRT.asin)) == ""


def test_the_api_knows_the_mode_and_refuses_it_in_parity() -> None:
    choices = {"mode": MODES}
    assert read_session_request(b'{"mode": "short"}', choices).mode == "short"
    with pytest.raises(RequestError, match="mode 'short' is not the original's; leave parity out, or take 'text'"):
        read_session_request(b'{"mode": "short", "parity": true}', choices)


def test_an_episode_by_numbers_is_the_one_by_identifiers() -> None:
    """Scores, tiers and addresses do not depend on what is shown."""
    shop = create_app("synthetic:200").extensions["webshop"]
    asins = shop.store.results(PageState("results", tuple("soft cotton".split()), 1))
    by_number = Episode(5, Rules("short", "tiered"))
    by_name = Episode(5, Rules("text", "tiered"))
    for number, name in (
        ("search[soft cotton]", "search[soft cotton]"),
        ("click[3]", f"click[{asins[2]}]"),
        ("click[< prev]", "click[< prev]"),
        ("click[next >]", "click[next >]"),
        ("click[3]", "click[unknown]"),  # not on this page
        ("click[12]", f"click[{asins[11]}]"),
        ("buy[now]", f"buy[{asins[11]}]"),
    ):
        by_number, by_name = shop.step(by_number, number), shop.step(by_name, name)
        one, other = shop.answer(by_number), shop.answer(by_name)
        assert {**one, "observation": "", "available_actions": ""} == {
            **other,
            "observation": "",
            "available_actions": "",
        }
    assert by_number.done
    assert shop.answer(by_number)["observation"].startswith("Bought: ")
