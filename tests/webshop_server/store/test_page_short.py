"""Short pages: what they say, and that their numbers mean the products beside them."""

from collections.abc import Sequence
from dataclasses import replace

from webshop_server.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.store.page_text import LONGEST_TITLE, PageText, observation
from webshop_server.store.shop import Episode, Rules, open_shop
from webshop_server.store.state import START, Filter, PageState, Store

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


STORE = Store(Catalog("few", list(PRODUCTS.values()), 0, None), Index())
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
    assert {state: observation(STORE, state, PAGE, "short") for state in pages} == pages
    assert len(cut) <= LONGEST_TITLE
    filtered = PageState("results", ("red",), 1, filters=(Filter("price", "<", "1.5"),))
    told = f"Page 1 of 1, 1 results\nFilters: price<1.5\n1. {cut} | $1.00"
    assert observation(STORE, filtered, PAGE, "short") == told


def test_an_episode_by_numbers_is_the_one_by_identifiers() -> None:
    """Scores, tiers and addresses do not depend on what is shown."""
    shop = open_shop("synthetic:200")
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
        assert replace(one, observation="", available_actions=()) == replace(
            other, observation="", available_actions=()
        )
    assert by_number.done
    assert shop.answer(by_number).observation.startswith("Bought: ")
