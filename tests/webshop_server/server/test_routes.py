"""The classic pages: old clients work unchanged, people can shop without a script, and each session buys once."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from bs4 import BeautifulSoup
from bs4.element import Tag
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from webshop_server import create_app
from webshop_server.catalog import MemoryCatalog
from webshop_server.catalog.product import Product

SHIRT = Product(
    asin="B000SHIRT1",
    title="Linen Shirt",
    category="fashion",
    query="shirts",
    product_category="Clothing › Shirts",
    description="Soft.",
    bullet_points=("Cool",),
    attributes=("linen",),
    options={"color": ("red", "men's blue"), "fit type": ("men",)},
    pricing=(20.0,),
    price_text="$20.0",
    instruction="Find me a linen shirt",
    instruction_attributes=("linen",),
)
SHIRTS = [Product(f"B00SHIRT{i:02}", f"Shirt {i}", "fashion", "shirts", "Clothing › Shirts") for i in range(11)]


@pytest.fixture(scope="module")
def app() -> Flask:
    return create_app(MemoryCatalog("sample", [SHIRT, *SHIRTS], seed=0))


def page(response: TestResponse) -> BeautifulSoup:
    assert response.status_code == 200
    return BeautifulSoup(response.get_data(as_text=True), "html.parser")


def started(client: FlaskClient, name: str) -> str:
    assert client.get(f"/{name}").status_code == 200
    return name


def item_url(name: str, options: str = "{}", page: str = "item_page") -> str:
    return f"/{page}/{name}/{SHIRT.asin}/['shirt']/1/{options}"


def test_home_gives_everybody_a_session_of_their_own(client: FlaskClient) -> None:
    places = {client.get("/").headers["Location"] for _ in range(3)}
    assert len(places) == 3
    assert all(len(place) == 37 for place in places)


def test_goals_follow_from_names(app: Flask) -> None:
    def instruction(name: str) -> str:
        found = page(app.test_client().get(f"/{name}")).find(id="instruction-text")
        assert isinstance(found, Tag)
        return found.get_text("|", strip=True)

    assert instruction("fixed_0").startswith("Instruction:|Find me a linen shirt with color: ")
    assert instruction("fixed_0") == instruction("other_fixed_0") != instruction("fixed_1")
    again = create_app(MemoryCatalog("sample", [SHIRT, *SHIRTS], seed=0)).test_client()
    found = page(again.get("/abc")).find(id="instruction-text")
    assert isinstance(found, Tag) and found.get_text("|", strip=True) == instruction("abc")


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


def test_queries_with_slashes_and_brackets_arrive(client: FlaskClient) -> None:
    name = started(client, "slashes")
    for query in ("shirt 3/4 sleeve", "a//b shirt", "shirt [x]", "[shirt", "shirt?", "#shirt 100%"):
        place = client.post(f"/{name}", data={"search_query": query}).headers["Location"]
        assert "Total results: 12" in client.get(place).get_data(as_text=True), query
        button = page(client.get(place)).find("button", string="Next >")
        assert isinstance(button, Tag) and button.parent is not None
        assert "Page 2 " in client.post(str(button.parent["action"])).get_data(as_text=True), query


def test_next_leads_to_an_empty_page_as_in_the_original_but_people_do_not_see_it(client: FlaskClient) -> None:
    """Regression: programs that pressed "Next >" on the last page found no such button, and got 404 without it."""
    name = started(client, "last")
    for number, hidden in ((1, False), (2, True), (3, True)):
        results = page(client.get(f"/search_results/{name}/shirt/{number}"))
        button = results.find("button", string="Next >")
        assert isinstance(button, Tag) and isinstance(button.parent, Tag)
        assert button.parent.has_attr("hidden") is hidden
        assert len(results.select("a.product-link")) == {1: 10, 2: 2, 3: 0}[number]


def test_people_read_prices_with_cents_and_programs_the_original_text(client: FlaskClient) -> None:
    """Regression: people read "$20.0"."""
    name = started(client, "cents")
    listed = page(client.get(f"/search_results/{name}/linen shirt/1")).select("h5.product-price")
    assert {(price.get_text(), price["data-price"]) for price in listed} == {("$20.0", "$20.00"), ("$100.0", "$100.00")}
    item = page(client.get(item_url(name))).select_one("h4.price")
    assert isinstance(item, Tag)
    assert (item.get_text(), item["data-price"]) == ("Price: $20.0", "Price: $20.00")


def test_text_instead_of_a_list_is_one_keyword(client: FlaskClient) -> None:
    name = started(client, "text")
    assert "Total results: 12" in client.get(f"/search_results/{name}/linen shirt/1").get_data(as_text=True)
    assert "Total results: 12" in client.get(f"/search_results/{name}/linen+shirt/1").get_data(as_text=True)


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


def test_a_person_shops_with_forms_alone(client: FlaskClient) -> None:
    name = started(client, "person")
    url = item_url(name)
    item = page(client.get(url))
    form = item.find("form", id="options")
    assert isinstance(form, Tag)
    moved = client.post(str(form["action"]), data={"color": "men's blue"})
    assert moved.status_code == 303
    chosen = page(client.get(moved.headers["Location"]))
    checked = [radio["value"] for radio in chosen.select("input[type=radio]") if radio.has_attr("checked")]
    assert checked == ["men's blue"]
    # A button of the page sends what was chosen since: nothing is lost on the way to the features or the till.
    button = chosen.find("button", string="Features")
    assert isinstance(button, Tag) and button["form"] == "options"
    features = client.post(str(button["formaction"]), data={"color": "red", "fit type": "men"})
    assert unquote(features.headers["Location"]).endswith("/Features/{'color': 'red', 'fit type': 'men'}")
    buy = chosen.find("button", string="Buy Now")
    assert isinstance(buy, Tag) and buy.parent is not None and buy["formaction"] == buy.parent["action"]
    bought = page(client.post(str(buy["formaction"]), data={"color": "red", "fit type": "men"}))
    options = bought.find(id="options")
    assert isinstance(options, Tag) and options.pre is not None
    assert json.loads(options.pre.get_text()) == {"color": "red", "fit type": "men"}


def test_a_script_goes_to_the_address_of_each_choice(client: FlaskClient) -> None:
    name = started(client, "script")
    radio = page(client.get(item_url(name, "{'color': 'red'}"))).find("input", value="men")
    assert isinstance(radio, Tag)
    assert unquote(str(radio["data-url"])) == item_url(name, "{'color': 'red', 'fit type': 'men'}").replace(
        "['shirt']", "shirt"
    )


def test_a_session_buys_once_and_its_start_page_begins_again(client: FlaskClient) -> None:
    name = started(client, "once")
    url = f"/done/{name}/{SHIRT.asin}/{{}}"
    assert client.head(url).status_code == 405
    assert client.post(url).status_code == 200
    assert [client.get(url).status_code, client.post(url).status_code] == [409, 409]
    assert client.get(item_url(name)).status_code == 200
    assert client.post(url).status_code == 409
    started(client, name)
    assert client.post(url).status_code == 200


def test_nothing_of_the_goal_is_shown_before_the_purchase(client: FlaskClient) -> None:
    name = started(client, "fixed_1")
    for url in (f"/{name}", f"/search_results/{name}/shirt/1", item_url(name)):
        html = client.get(url).get_data(as_text=True)
        assert "goal" not in html and "eward" not in html and "price_upper" not in html


def test_the_goal_is_told_after_a_purchase_only_where_that_is_wanted(client: FlaskClient) -> None:
    """Anybody may buy as /fixed_1 while others still shop for goal 1 through the API, which names its goals."""
    secret = ("goal", "Target", "reward_info", "r_type", "price_upper")
    bought = client.get(f"/done/{started(client, 'secret_fixed_1')}/{SHIRT.asin}/{{}}").get_data(as_text=True)
    assert [word for word in secret if word in bought] == []
    reward = BeautifulSoup(bought, "html.parser").select_one("#reward pre")
    assert reward is not None and 0 <= float(reward.get_text()) <= 1
    open_one = create_app(MemoryCatalog("sample", [SHIRT, *SHIRTS], seed=0), reveal_goals=True).test_client()
    told = open_one.get(f"/done/{started(open_one, 'secret_fixed_1')}/{SHIRT.asin}/{{}}").get_data(as_text=True)
    assert [word for word in secret if word in told] == list(secret)


def test_asking_for_the_head_of_a_start_page_begins_nothing(client: FlaskClient) -> None:
    name = started(client, "head")
    url = f"/done/{name}/{SHIRT.asin}/{{}}"
    assert client.get(url).status_code == 200
    assert (client.head(f"/{name}").status_code, client.get(url).status_code) == (200, 409)
    assert (client.head("/nobody_yet").status_code, client.get(item_url("nobody_yet")).status_code) == (200, 404)
    assert client.head("/fixed_999").status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/fixed_x", 404),
        ("/fixed_999", 404),
        ("/a b", 404),
        ("/search_results/nobody/shirt/1", 404),
        ("/item_page/nobody/B000SHIRT1/shirt/1/{}", 404),
        ("/done/nobody/B000SHIRT1/{}", 404),
        ("/search_results/known/shirt/0", 400),
        ("/search_results/known/shirt/-1", 400),
        ("/search_results/known/shirt/one", 400),
        ("/search_results/known/[1]/1", 400),
        ("/search_results/known/" + "x" * 1001 + "/1", 400),
        ("/search_results/known/shirt/1?filter=cheap", 400),
        ("/search_results/known/shirt/1?price_max=cheap", 400),
        ("/item_page/known/B0/shirt/1/{}", 404),
        ("/item_page/known/B000SHIRT1/shirt/1/{'color': 'green'}", 400),
        ("/item_page/known/B000SHIRT1/shirt/1/__import__('os')", 400),
        ("/item_sub_page/known/B000SHIRT1/shirt/1/features/{}", 404),
        ("/item_sub_page/known/B000SHIRT1/shirt/1/Attributes/{}", 404),
        ("/done/known/B0/{}", 404),
        ("/done/known/B000SHIRT1/{'x': 'y'}", 400),
        ("/picture/B0.svg", 404),
        ("/static/../app.py", 404),
        ("/no/such/page", 404),
    ],
)
def test_what_does_not_exist_is_refused_with_a_page(client: FlaskClient, path: str, status: int) -> None:
    started(client, "known")
    response = client.get(quote(path, safe="/?=&%"))
    assert response.status_code == status
    assert response.mimetype == "text/html"
    assert "Traceback" not in response.get_data(as_text=True)


def test_filters_come_from_the_form_and_stay_in_the_links(client: FlaskClient) -> None:
    name = started(client, "filters")
    url = f"/search_results/{name}/shirt/1?price_max=50&category=fashion&color=&filter=fit+type%3Dmen"
    results = page(client.get(url))
    assert [tag.get_text() for tag in results.find_all("h3")] == ["Page 1 (Total results: 1)"]
    line = results.find(class_="filters")
    assert isinstance(line, Tag)
    assert line.get_text() == "Filters: fit type=men, price<=50, category=fashion"
    field = results.find("input", attrs={"name": "price_max"})
    assert isinstance(field, Tag) and field["value"] == "50"
    link = results.find("a", class_="product-link")
    assert isinstance(link, Tag)
    item = page(client.get(str(link["href"])))
    back = item.find("button", string="< Prev")
    assert isinstance(back, Tag) and back.parent is not None
    assert "Total results: 1)" in client.post(str(back.parent["action"])).get_data(as_text=True)


def test_visits_are_written_down_where_wanted(tmp_path: Path) -> None:
    client = create_app(MemoryCatalog("sample", [SHIRT], seed=0), log=tmp_path).test_client()
    name = started(client, "fixed_1")
    client.get(f"/search_results/{name}/shirt/1")
    client.get(item_url(name, "{'color': 'red'}"))
    client.get(f"/done/{name}/{SHIRT.asin}/{{'color': 'red'}}")
    (path,) = tmp_path.iterdir()
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["page"] for line in lines] == ["index", "search_results", "item_page", "done"]
    assert lines[1]["content"]["search_result_asins"] == [SHIRT.asin]
    assert lines[2]["content"]["options"] == {"color": "red"}
    assert {line["goal"] for line in lines} == {1}
    assert lines[3]["price"] == 20.0 and 0 < lines[3]["reward"] <= 1
