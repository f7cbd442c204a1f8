"""Programs: sessions with rules of their own, whose pages carry the store's answer."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bs4 import BeautifulSoup
from bs4.element import Tag
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from webshop_server.server.sessions import Sessions
from webshop_server.store.shop import open_shop


def carried(response: TestResponse) -> dict[str, Any]:
    assert (response.status_code, response.mimetype) == (200, "text/html")
    element = BeautifulSoup(response.text, "html.parser").find(id="webshop")
    assert isinstance(element, Tag) and element["type"] == "application/json"
    answer: dict[str, Any] = json.loads(element.get_text())
    return answer


def act(client: FlaskClient, name: str, action: str) -> TestResponse:
    return client.post(f"/{name}", data={"action": action})


def test_an_episode_buys_once_and_its_start_page_begins_another(client: FlaskClient) -> None:
    shop = open_shop("toy")
    goal = shop.goal(5)
    first = carried(client.get("/me?goal=5&reward=tiered"))
    assert (first["goal"], first["instruction"], first["store"]) == (5, goal.instruction, shop.about())
    found = carried(act(client, "me", f"search[{goal.instruction}]"))
    assert (found["valid"], found["effective"], found["done"], found["reward"]) == (True, True, False, 0.3)
    assert "store" not in found and not carried(act(client, "me", "rubbish"))["valid"]
    for label in (goal.asin, *(value for _, value in goal.asked), "Buy Now"):
        bought = carried(act(client, "me", f"click[{label}]"))
    assert (bought["done"], bought["task_score"], bought["success"], bought["faults"]) == (True, 1, True, [])
    again = carried(act(client, "me", "click[Buy Now]"))
    assert (again["done"], again["valid"], again["reward"], again["task_score"]) == (True, False, 0, 1)
    assert client.get(f"/done/me/{goal.asin}/{{}}").status_code == 409
    assert carried(client.get("/me?goal=5"))["done"] is False


def test_nothing_of_the_goal_is_carried_before_the_purchase(client: FlaskClient) -> None:
    goal = open_shop("toy").goal(7)
    for page in (client.get("/secret?goal=7"), act(client, "secret", "search[zzz]")):
        told = json.dumps(carried(page))
        assert goal.asin not in told and str(goal.price_upper) not in told.replace(goal.instruction, "")
    plain = client.get("/fixed_7").text
    assert 'id="webshop"' not in plain and act(client, "fixed_7", "search[shoe]").status_code == 400


@pytest.mark.parametrize(
    ("query", "status"),
    [
        *(("goal=x", 400), ("goal=-1", 400), ("goal=1&seed=1", 400), ("goal=500", 404), ("seed=1e3", 400)),
        *(("split=dev", 400), ("split=test&index=16", 404), ("mode=raw", 400), ("reward=all", 400), ("parity=2", 400)),
        *(("mode=short&parity=1", 400), ("observation_mode=text", 400), ("split=test&index=15", 200), ("seed=3", 200)),
    ],
)
def test_rules_are_read_from_the_query_of_the_start_page(client: FlaskClient, query: str, status: int) -> None:
    assert client.get(f"/rules?{query}").status_code == status


def test_an_action_needs_a_session_and_has_a_bound(client: FlaskClient) -> None:
    assert act(client, "nobody", "search[shoe]").status_code == 404
    client.get("/long?goal=1")
    assert act(client, "long", f"search[{'x' * 3900}]").status_code == 200
    assert act(client, "long", "x" * 4001).status_code == 400
    assert act(client, "long", "x" * 70_000).status_code == 413


def test_two_purchases_at_once_are_one(app: Flask) -> None:
    client = app.test_client()
    client.get("/twice?goal=1")
    act(client, "twice", "search[shoe shirt mug blue]")
    asin = carried(act(client, "twice", "search[shoe]"))["available_actions"][1][-1]
    act(client, "twice", f"click[{asin}]")
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: carried(act(app.test_client(), "twice", "click[buy now]")), range(8)))
    assert [answer["done"] for answer in answers] == [True] * 8
    assert sorted(answer["valid"] for answer in answers) == [*[False] * 7, True]


def test_a_full_disk_is_503_and_not_ready(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was 500, and /healthz went on saying "ready"."""
    client.get("/full?goal=1")
    assert client.get("/healthz").get_json() == {"ready": True}

    def full(*arguments: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Sessions, "put", full)
    monkeypatch.setattr(Sessions, "update", full)
    for path in ("/new?goal=1", "/fixed_3", "/search_results/full/shoe/1", "/healthz"):
        response = client.get(path)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "2"), path
    assert act(client, "full", "search[shoe]").status_code == 503
