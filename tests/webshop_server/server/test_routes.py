"""The classic pages: old clients work unchanged, people can shop without a script, and each session buys once."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from bs4 import BeautifulSoup
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.support.webshop_server import products
from webshop_server import create_app
from webshop_server.catalog import Catalog
from webshop_server.catalog.product import Product
from webshop_server.server.sessions import Sessions

SHIRT = replace(products.SHIRT, options={"color": ("red", "men's blue"), "fit type": ("men",)})
SHIRTS = [Product(f"B00SHIRT{i:02}", f"Shirt {i}", "fashion", "shirts", "Clothing › Shirts") for i in range(11)]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Flask:
    file = tmp_path_factory.mktemp("sessions") / "sample.sqlite"
    return create_app(Catalog("sample", [SHIRT, *SHIRTS], seed=0), sessions=file)


def page(response: TestResponse) -> BeautifulSoup:
    assert response.status_code == 200
    return BeautifulSoup(response.get_data(as_text=True), "html.parser")


def started(client: FlaskClient, name: str) -> str:
    assert client.get(f"/{name}").status_code == 200
    return name


def test_goals_follow_from_names_and_from_the_catalogue(file: Path, tmp_path: Path) -> None:
    """Else a name known from one catalogue would tell the goal in another."""

    def goals(app: Flask, sessions: Path, *more: str) -> list[int]:
        names = [started(app.test_client(), name) for name in (*more, *(f"name{number}" for number in range(12)))]
        return [Sessions(sessions).update(name).goal for name in names]

    shirts = [create_app(Catalog("sample", [SHIRT], seed=0), sessions=tmp_path / name) for name in "ab"]
    drawn = goals(shirts[0], tmp_path / "a", "fixed_0", "other_fixed_0", "fixed_1")
    assert drawn[:3] == [0, 0, 1]
    assert goals(shirts[1], tmp_path / "b") == drawn[3:]
    other = create_app(Catalog("sample", [replace(SHIRT, description="Softer.")], seed=0), sessions=file)
    assert goals(other, file) != drawn[3:]


def test_a_search_goes_to_the_results_as_in_the_original(client: FlaskClient) -> None:
    name = started(client, "search")
    response = client.post(f"/{name}", data={"search_query": "Linen SHIRT"})
    assert response.status_code == 302
    assert unquote(response.headers["Location"]) == f"/search_results/{name}/['linen', 'shirt']/1"
    results = page(client.get(response.headers["Location"]))
    links = [link.get_text() for link in results.select("a.product-link")]
    assert (links[0], len(links)) == (SHIRT.asin, 10)
    assert [tag.get_text() for tag in results.find_all("h3")] == ["Page 1 (Total results: 12)"]
    # Nothing to look for: the start page again.
    assert page(client.post(f"/{name}", data={"search_query": " "})).find(id="search_input") is not None


def test_an_old_client_shops_with_get_alone(client: FlaskClient) -> None:
    """As ReAct's client does: it builds addresses itself, and sends options as Python writes them."""
    name = started(client, "fixed_0")
    client.get(f"/search_results/{name}/linen shirt/1")
    item = page(client.get(f"/item_page/{name}/{SHIRT.asin}/linen shirt/1/{{}}"))
    assert [label.get_text() for label in item.find_all("label")] == ["red", "men's blue", "men"]
    options = {"color": "men's blue", "fit type": "men"}
    features = page(client.get(f"/item_sub_page/{name}/{SHIRT.asin}/linen shirt/1/Features/{options}"))
    assert [text.get_text() for text in features.select("p.product-info")] == [" Cool"]
    done = page(client.get(f"/done/{name}/{SHIRT.asin}/{options}"))
    texts = [str(text) for text in done.find_all(string=True)]
    at = texts.index("Your score (min 0.0, max 1.0)")
    assert 0 < float(texts[at + 1]) <= 1


def test_a_session_buys_once_and_its_start_page_begins_again(client: FlaskClient) -> None:
    name = started(client, "once")
    url = f"/done/{name}/{SHIRT.asin}/{{}}"
    assert client.head(url).status_code == 405
    assert client.post(url).status_code == 200
    assert [client.get(url).status_code, client.post(url).status_code] == [409, 409]
    assert client.get(f"/item_page/{name}/{SHIRT.asin}/['shirt']/1/{{}}").status_code == 200
    assert client.post(url).status_code == 409
    started(client, name)
    assert client.post(url).status_code == 200


def test_the_goal_is_told_not_even_after_a_purchase(client: FlaskClient) -> None:
    """Anybody may buy as /fixed_1 while others still shop for goal 1 by a program, which is told their numbers."""
    secret = ("goal", "Target", "reward_info", "r_type", "price_upper")
    bought = client.get(f"/done/{started(client, 'secret_fixed_1')}/{SHIRT.asin}/{{}}").get_data(as_text=True)
    assert [word for word in secret if word in bought] == []
    reward = BeautifulSoup(bought, "html.parser").select_one("#reward pre")
    assert reward is not None and 0 <= float(reward.get_text()) <= 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/" + "x" * 129, 404),
        ("/two words", 404),
        ("/search_results/known/shirt/0", 404),
        ("/search_results/known/ /1", 400),
        ("/search_results/known/" + "x" * 1001 + "/1", 400),
        ("/fixed_999", 404),
        ("/search_results/nobody/shirt/1", 404),
        ("/item_page/nobody/B000SHIRT1/shirt/1/{}", 404),
        ("/search_results/known/[1]/1", 400),
        ("/item_page/known/B0/shirt/1/{}", 404),
        ("/item_page/known/B000SHIRT1/shirt/1/{'color': 'green'}", 400),
        ("/item_page/known/B000SHIRT1/shirt/1/__import__('os')", 400),
        ("/item_sub_page/known/B000SHIRT1/shirt/1/features/{}", 404),
        ("/done/known/B000SHIRT1/{'x': 'y'}", 400),
        ("/picture/B0.svg", 404),
        ("/no/such/page", 404),
    ],
)
def test_what_does_not_exist_is_refused_with_a_page(client: FlaskClient, path: str, status: int) -> None:
    started(client, "known")
    response = client.get(quote(path, safe="/?=&%"))
    assert response.status_code == status
    assert response.mimetype == "text/html"
    assert "Traceback" not in response.get_data(as_text=True)
