"""What an agent reads, that the HTML pages say exactly the same, and what short pages say and mean."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup

from ragen_envs.webshop.remote import ShopPage
from tests.support.webshop_server import products
from webshop_server.catalog.product import Product
from webshop_server.store.page_html import HtmlPages
from webshop_server.store.page_text import LONGEST_TITLE, PageText, observation, pieces, url, written
from webshop_server.store.shop import Episode, Rules, open_shop
from webshop_server.store.state import START, SUB_PAGES, Filter, PageState, Store

SHIRT = replace(
    products.SHIRT,
    title="Linen  <Shirt>\n& more",
    description="Soft.\n  Two lines & a 'quote'. ",
    bullet_points=("Cool", "", " padded "),
    attributes=("linen", "slim fit"),
    options={"color": ("red", "crème"), "size": ('28" wide', "small", "small")},
    option_prices={"crème": 31.5, "small": 12.0},
    pricing=(20.0, 30.0),
    price_text="$20.0 to $30.0",
    price=22.5,
)
BARE = Product("B00000BARE", "word " * 40, "garden", "things", "Home", pricing=(1.0,), price_text="$1.0", price=1.0)
PLAIN = [
    Product(f"B00PLAIN{i:02}", f"Thing {i}", "garden", "things", "Home", pricing=(2.0,), price_text="$2.0")
    for i in range(12)
]
PRODUCTS = {product.asin: product for product in (SHIRT, BARE, *PLAIN)}
TASK = "i want a <b>red</b> shirt, and price lower than 40.00 dollars"


def search(keywords: Sequence[str], limit: int = 50) -> list[str]:
    return [] if keywords == ("nothing",) else list(PRODUCTS)[:limit]


CATALOG: Any = SimpleNamespace(product=PRODUCTS.get)
INDEX: Any = SimpleNamespace(search=search)
STORE = Store(CATALOG, INDEX)
HTML = HtmlPages(STORE)
ITEM = PageState("item", ("red", "shirt"), 1, SHIRT.asin)
STATES = {
    "start": START,
    "no results": PageState("results", ("nothing",), 1),
    "first results": PageState("results", ("red",), 1, seen=(BARE.asin,)),
    "last results": PageState("results", ("red",), 2),
    "filtered": PageState("results", ("red",), 1, filters=(Filter("price", "<", "30"), Filter("size", "=", "small"))),
    "item": ITEM,
    "item with options": replace(ITEM, options=(("size", "small"), ("color", "red"))),
    "item with another price": replace(ITEM, options=(("color", "crème"),)),
    "item without options": replace(ITEM, asin=BARE.asin),
    **{name: replace(ITEM, kind="sub_page", sub_page=name) for name in SUB_PAGES},
    **{f"no {name}": replace(ITEM, kind="sub_page", sub_page=name, asin=BARE.asin) for name in SUB_PAGES},
    "done": replace(ITEM, kind="done", options=(("size", '28" wide'), ("color", "crème"))),
}


def page_of(state: PageState, parity: bool) -> PageText:
    return PageText(TASK, "7", 0.5 if state.kind == "done" else None, parity)


@pytest.mark.parametrize("parity", [False, True])
@pytest.mark.parametrize("mode", ["text", "text_rich"])
@pytest.mark.parametrize("name", STATES)
def test_pages_say_in_html_what_they_say_in_text(name: str, mode: str, parity: bool) -> None:
    state, page = STATES[name], page_of(STATES[name], parity)
    html = HTML.render(state, page)
    read = written(ShopPage(html).pieces, mode, url(state, "7"), state.seen)  # as a client of the original reads it
    assert read == observation(STORE, state, page, mode)


@pytest.mark.parametrize("parity", [False, True])
@pytest.mark.parametrize("name", STATES)
def test_what_can_be_clicked_stands_in_the_html_as_the_original_looks_for_it(name: str, parity: bool) -> None:
    state = STATES[name]
    page = BeautifulSoup(HTML.render(state, page_of(state, parity)), "html.parser")
    buttons = [one.get_text().lower() for one in page.find_all(class_="btn") + page.find_all(class_="product-link")]
    options = [one.get("value") for one in page.select('input[type="radio"]')]
    found = list(dict.fromkeys(buttons + options))
    if state.kind == "start" and not parity:
        found.remove("search")
    assert found == STORE.clickables(state, parity=parity)
    assert (page.find(id="search_input") is not None) is (state.kind == "start")


def test_a_price_is_that_of_the_chosen_options_beyond_parity() -> None:
    state = replace(ITEM, options=(("size", "small"), ("color", "crème")))
    assert ("text", "Price: $31.50") in list(pieces(STORE, state, PageText("t")))
    assert ("text", "Price: $20.0 to $30.0") in list(pieces(STORE, state, PageText("t", parity=True)))
    assert ("text", "Price: $20.00 to $30.00") in list(pieces(STORE, ITEM, PageText("t")))


def test_short_pages() -> None:
    def things(first: int, stop: int) -> str:
        return "".join(f"\n{number}. Thing {number - 3} | $2.00" for number in range(first, stop))

    title, cut = "Linen <Shirt> & more", "word " * 15 + "word…"
    assert len(cut) <= LONGEST_TITLE
    texts = {
        "start": f"Wanted: {TASK}\nSearch for a product",
        "no results": "Page 1 of 1, 0 results",
        "first results": f"Page 1 of 2, 14 results\n1. {title} | from $20.00\n2. {cut} | $1.00" + things(3, 11),
        "last results": "Page 2 of 2, 14 results" + things(11, 15),
        "filtered": f"Page 1 of 1, 1 results\nFilters: price<30, size=small\n1. {title} | from $20.00",
        "item": f'{title}\n$20.00 to $30.00\ncolor: red, crème\nsize: 28" wide, small',
        "item with options": f'{title}\n$12.00\ncolor: red, crème (chosen: red)\nsize: 28" wide, small (chosen: small)',
        "Features": f"{title}\nFeatures: Cool; padded",
        "no Description": f"{cut}\nDescription: none",
        "done": f"Bought: {title}\nScore: 0.50",
    }
    assert {name: observation(STORE, STATES[name], page_of(STATES[name], False), "short") for name in texts} == texts


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_unescaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRODUCTS, SHIRT.asin, replace(SHIRT, image="https://elsewhere.example/x.jpg"))
    for state in STATES.values():
        html = HTML.render(state, page_of(state, False))
        page = BeautifulSoup(html, "html.parser")
        for tag, name in (("img", "src"), ("script", "src"), ("link", "href"), ("form", "action"), ("a", "href")):
            assert all(one[name].startswith("/") for one in page.find_all(tag)), (tag, state)
        assert "<b>" not in html and "<Shirt>" not in html
        assert not page.find_all(style=True) and not page.find_all("style")


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
