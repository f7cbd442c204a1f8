"""What an agent reads, and that the HTML pages say exactly the same."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from bs4 import BeautifulSoup
from bs4.element import Comment

from webshop_server.catalog.product import Product
from webshop_server.goals.goals import Goal
from webshop_server.store.filters import Filter
from webshop_server.store.page_html import HtmlPages, full_receipt
from webshop_server.store.page_text import PageText, observation, pieces, url
from webshop_server.store.state import START, PageState, Store

SHIRT = Product(
    asin="B000SHIRT1",
    title="Linen <Shirt> & more",
    category="fashion",
    query="shirts",
    product_category="Clothing › Shirts",
    description="Soft.\n  Two lines & a 'quote'. ",
    bullet_points=("Cool", "", " padded "),
    attributes=("linen", "slim fit"),
    options={"color": ("red", "crème"), "size": ('28" wide', "small", "small")},
    option_prices={"crème": 31.5, "small": 12.0},
    pricing=(20.0, 30.0),
    price_text="$20.0 to $30.0",
    price=22.5,
)
BARE = Product("B00000BARE", "Bare", "garden", "things", "Home", pricing=(1.0,), price_text="$1.0", price=1.0)
PLAIN = [
    Product(f"B00PLAIN{i:02}", f"Thing {i}", "garden", "things", "Home", pricing=(2.0,), price_text="$2.0")
    for i in range(12)
]
PRODUCTS = {product.asin: product for product in (SHIRT, BARE, *PLAIN)}
TASK = "i want a <b>red</b> shirt, and price lower than 40.00 dollars"


class Catalog:
    def product(self, asin: str) -> Product:
        return PRODUCTS[asin]


class Index:
    def search(self, keywords: Sequence[str], limit: int = 50) -> list[str]:
        return [] if keywords == ("nothing",) else list(PRODUCTS)[:limit]


STORE = Store(Catalog(), Index(), show_attributes=True)
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
    **{name: replace(ITEM, kind="sub_page", sub_page=name) for name in STORE.sub_pages},
    **{f"no {name}": replace(ITEM, kind="sub_page", sub_page=name, asin=BARE.asin) for name in STORE.sub_pages},
    "done": replace(ITEM, kind="done", options=(("size", '28" wide'), ("color", "crème"))),
}


def page_of(state: PageState, parity: bool) -> PageText:
    return PageText(TASK, "7", 0.5 if state.kind == "done" else None, parity)


def as_the_original_reads(html: str, state: PageState, mode: str, address: str) -> str:
    """The visible text of a page by the rules of the original's text environment."""
    hidden = {"style", "script", "head", "title", "meta", "[document]"}
    strings = BeautifulSoup(html, "html.parser").find_all(string=True)
    visible = [one for one in strings if one.parent.name not in hidden and not isinstance(one, Comment) and one != "\n"]
    if mode == "text":
        return " [SEP] ".join(one.strip() for one in visible)
    text = ""
    for one in visible:
        if one.parent.name == "button":
            line = f"[button] {one} [button_]"
        elif one.parent.name == "label":
            line = f"  [button] {one} [button_]"
            if f'"{one}"' in address:
                line = f"  [clicked button] {one} [clicked button_]"
                text = f"You have clicked {one}.\n{text}"
        elif one.parent.get("class") == ["product-link"]:
            name = "clicked button" if str(one) in state.seen else "button"
            line = f"\n[{name}] {one} [{name}_]"
        else:
            line = str(one)
        text += f"{line}\n"
    return text


@pytest.mark.parametrize("parity", [False, True])
@pytest.mark.parametrize("mode", ["text", "text_rich"])
@pytest.mark.parametrize("name", STATES)
def test_pages_say_in_html_what_they_say_in_text(name: str, mode: str, parity: bool) -> None:
    state, page = STATES[name], page_of(STATES[name], parity)
    for people in (False, True):
        html = HTML.render(state, replace(page, people=people))
        assert as_the_original_reads(html, state, mode, url(state, "7")) == observation(STORE, state, page, mode)


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
    assert (page.find(id="search_input") is not None) is STORE.has_search_bar(state)


def test_text_is_joined_by_the_original_mark() -> None:
    start = observation(STORE, START, PageText("find a mug"), "text")
    assert start == "WebShop [SEP] Instruction: [SEP] find a mug [SEP] Search"
    results = observation(STORE, STATES["last results"], PageText("t"), "text")
    assert results == (
        "Instruction: [SEP] t [SEP] Back to Search [SEP] Page 2 (Total results: 14) [SEP] < Prev [SEP] B00PLAIN08 "
        "[SEP] Thing 8 [SEP] $2.00 [SEP] B00PLAIN09 [SEP] Thing 9 [SEP] $2.00 [SEP] B00PLAIN10 [SEP] Thing 10 "
        "[SEP] $2.00 [SEP] B00PLAIN11 [SEP] Thing 11 [SEP] $2.00"
    )


def test_a_blank_bullet_point_is_an_empty_piece_and_an_empty_description_is_none() -> None:
    features = observation(STORE, STATES["Features"], PageText("t"), "text")
    assert features.endswith("< Prev [SEP] Cool [SEP]  [SEP] padded")
    assert observation(STORE, STATES["no Description"], PageText("t"), "text").endswith("[SEP] < Prev")


def test_rich_text_marks_what_was_clicked_and_says_so_first() -> None:
    text = observation(STORE, STATES["item with options"], PageText("t"), "text_rich")
    assert text.startswith("You have clicked small.\nYou have clicked small.\nYou have clicked red.\nInstruction:\nt\n")
    assert "color\n  [clicked button] red [clicked button_]\n  [button] crème [button_]\nsize\n" in text
    first = observation(STORE, STATES["first results"], PageText("t"), "text_rich")
    assert "\n[button] B000SHIRT1 [button_]\nLinen <Shirt> & more\n" in first
    assert "\n[clicked button] B00000BARE [clicked button_]\nBare\n$1.00\n" in first


def test_values_that_json_escapes_never_count_as_clicked() -> None:
    state = replace(ITEM, options=(("color", "crème"), ("size", '28" wide')))
    assert "[clicked" not in observation(STORE, state, PageText("t"), "text_rich")


def test_a_price_is_that_of_the_chosen_options_beyond_parity() -> None:
    state = replace(ITEM, options=(("size", "small"), ("color", "crème")))
    assert ("text", "Price: $31.50") in list(pieces(STORE, state, PageText("t")))
    assert ("text", "Price: $20.0 to $30.0") in list(pieces(STORE, state, PageText("t", parity=True)))
    assert ("text", "Price: $20.00 to $30.00") in list(pieces(STORE, ITEM, PageText("t")))


def test_addresses_are_those_of_the_original() -> None:
    base = "http://127.0.0.1:3000"
    state = replace(ITEM, options=(("fit type", "men"), ("size", '28" wide')))
    assert url(START, "7") == f"{base}/7"
    assert url(replace(state, kind="results"), "7") == f"{base}/search_results/7/red+shirt/1"
    assert url(state, "7") == (f'{base}/item_page/7/B000SHIRT1/red+shirt/1/{{"fit type": "men", "size": "28\\" wide"}}')
    sub_page = replace(state, kind="sub_page", sub_page="Features")
    options = "{'fit type': 'men', 'size': '28\" wide'}"
    assert url(sub_page, "7") == f"{base}/item_sub_page/7/B000SHIRT1/red+shirt/1/Features/{options}"
    assert observation(STORE, replace(state, kind="done"), PageText("t"), "url") == (
        f"{base}/done/0/B000SHIRT1/{options}"
    )
    assert url(STATES["filtered"], "7").endswith("/red/1?filter=price%3C30&filter=size%3Dsmall")


def test_the_receipt_sorts_and_escapes_options_as_flask_does() -> None:
    text = observation(STORE, STATES["done"], page_of(STATES["done"], False), "text")
    assert 'options [SEP] {"color": "cr\\u00e8me", "size": "28\\" wide"} [SEP] attrs [SEP] None' in text
    assert text.endswith("Your score (min 0.0, max 1.0) [SEP] 0.5 [SEP] Reward Details [SEP] None")


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="'pixels' is unknown here; use text, text_rich or url"):
        observation(STORE, START, PageText("t"), "pixels")


def test_nothing_on_a_page_is_loaded_from_elsewhere_and_nothing_is_unescaped() -> None:
    product = replace(SHIRT, image="https://elsewhere.example/x.jpg")
    PRODUCTS[SHIRT.asin] = product
    try:
        for state in STATES.values():
            html = HTML.render(state, page_of(state, False))
            page = BeautifulSoup(html, "html.parser")
            for tag, name in (("img", "src"), ("script", "src"), ("link", "href"), ("form", "action"), ("a", "href")):
                assert all(one[name].startswith("/") for one in page.find_all(tag)), (tag, state)
            assert "<b>" not in html and "<Shirt>" not in html
            assert not page.find_all(style=True) and not page.find_all("style")
    finally:
        PRODUCTS[SHIRT.asin] = SHIRT


def test_the_classic_receipt_tells_everything_it_is_given() -> None:
    goal = Goal(
        id=3,
        asin="B0GOAL",
        category="fashion",
        query="shirts",
        name="A shirt",
        product_category="Clothing",
        instruction="find it",
        attributes=("linen",),
        price_upper=40.0,
        options={"color": "red"},
        weight=1.0,
    )
    receipt = full_receipt(SHIRT, {"color": "red"}, 0.75, "CODE", goal, {"r_type": 1.0})
    html = HTML.render(STATES["done"], page_of(STATES["done"], False), receipt, again="/7")
    page = BeautifulSoup(html, "html.parser")
    texts = {one: page.find(id=one).pre.text for one in ("asin", "options", "goal-asin", "goal-options", "goal-price")}
    assert texts == {
        "asin": "B000SHIRT1",
        "options": '{"color": "red"}',
        "goal-asin": "B0GOAL",
        "goal-options": "{'color': 'red'}",
        "goal-price": "40.0",
    }
    assert float(page.find(id="reward").pre.text) == 0.75
    assert page.find(class_="again")["href"] == "/7"
