"""Addresses of pages: whatever is searched for and however options are called, a link leads where it says."""

from typing import Any
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from flask.testing import FlaskClient

from webshop_server import create_app
from webshop_server.catalog import MemoryCatalog
from webshop_server.catalog.product import Product
from webshop_server.store.links import Links
from webshop_server.store.state import PageState

JEANS = Product(
    asin="B000JEANS1",
    title="Blue Jeans",
    category="fashion",
    query="jeans",
    product_category="Clothing › Jeans",
    bullet_points=("Warm",),
    attributes=("blue",),
    options={"waist/length": ("32/34", "../x", "a\\/b"), "wash": ("dark",)},
    pricing=(20.0,),
    price_text="$20.0",
    instruction="Find me jeans",
    instruction_attributes=("blue",),
)


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    client = create_app(MemoryCatalog("sample", [JEANS], seed=0)).test_client()
    client.get("/known")
    return client


def page(client: FlaskClient, path: str) -> BeautifulSoup:
    response = client.get(path, follow_redirects=True)
    assert response.status_code == 200, path
    return BeautifulSoup(response.get_data(as_text=True), "html.parser")


def keywords(*words: str) -> str:
    return unquote(Links("s", PageState("results", words, 1)).results()).removeprefix("/search_results/s/")


def test_keywords_are_plain_text_only_where_that_is_safe() -> None:
    assert keywords("jeans") == "jeans/1"
    assert keywords("3/4") == "3/4/1"
    assert keywords("red", "jeans") == "['red', 'jeans']/1"
    assert keywords("", "red", "", "jeans", "") == "['red', 'jeans']/1"
    for word in ("/jeans", "..", ".", "[jeans", "//"):
        assert keywords(word) == f"['{word}']/1"
    assert keywords("a", "\U000e0001") == '["a", "\U000e0001"]/1'


@pytest.mark.parametrize(
    "query",
    [
        *("/", "//", "/jeans", "jeans/", "..", ".", "../jeans", "/./", "jeans /", "[", "]", "{}", "%2f", "?a=b#c"),
        *("jeans" + " " * 900 + "blue", "  jeans", "a " * 499, "\\" * 1000, "'" * 1000, "'\"" * 500),
        *("\U000e0001" * 1000, "\U000e0001 " * 499, "\u2028 \u202e", "\U0001f600" * 1000),
    ],
)
def test_every_query_of_the_form_comes_to_its_results(client: FlaskClient, query: str) -> None:
    """Those that begin with "/" led to 404, and many blanks to 400."""
    moved = client.post("/known", data={"search_query": query})
    assert moved.status_code == 302
    results = page(client, moved.headers["Location"])
    assert "Total results: " in results.get_text()
    # Browsers take "." and ".." out of a path; a link must not have them as parts.
    assert not {".", "..", ""} & set(moved.headers["Location"].split("/")[1:])


def test_options_with_slashes_can_be_chosen_read_about_and_bought(client: FlaskClient) -> None:
    """A click on one was answered with 400."""
    path = Links("known", PageState("item", ("jeans",), 1, JEANS.asin)).item()
    for number, value in enumerate(JEANS.options["waist/length"]):
        item = page(client, path)
        radios: list[Any] = item.select("input[type=radio]")
        checked = tuple(radio["value"] for radio in radios if radio.has_attr("checked"))
        assert checked == JEANS.options["waist/length"][max(number - 1, 0) : number]
        path = next(radio["data-url"] for radio in radios if radio["value"] == value)
    chosen = page(client, path)
    features = chosen.find("button", string="Features")
    buy = chosen.find("button", string="Buy Now")
    assert features is not None and buy is not None
    assert page(client, str(features["formaction"])).find(class_="product-info") is not None
    bought = page(client, str(buy["formaction"])).select_one("#options pre")
    assert bought is not None and bought.get_text() == '{"waist/length": "a\\\\/b"}'
