"""The JSON API over the toy store."""

import threading
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.support.webshop_server.goals import values_of
from webshop_server.server.app import open_shop


def made(client: FlaskClient, **fields: Any) -> dict[str, Any]:
    response = client.post("/api/sessions", json=fields)
    assert response.status_code == 201
    answer: dict[str, Any] = response.get_json()
    return answer


def step(client: FlaskClient, token: str, action: str) -> TestResponse:
    return client.post(f"/api/sessions/{token}/step", json={"action": action})


def refusal(response: TestResponse) -> tuple[int, str]:
    body = response.get_json()
    assert body.keys() == {"error", "message"}
    return response.status_code, body["error"]


def test_a_whole_episode(client: FlaskClient) -> None:
    goal = open_shop("toy").goal(5)
    first = made(client, goal=5)
    assert (first["goal"], first["instruction"]) == (5, goal.instruction)
    assert first["observation"] == f"WebShop [SEP] Instruction: [SEP] {goal.instruction} [SEP] Search"
    offered = {"has_search_bar": True, "clickables": [], "has_filters": False, "buyable": []}
    assert first["available_actions"] == offered
    token = first["session"]
    found = step(client, token, f"search[{goal.instruction}]").get_json()
    assert goal.asin.lower() in found["available_actions"]["clickables"]
    assert (found["valid"], found["effective"], found["done"], found["reward"]) == (True, True, False, 0)
    step(client, token, f"click[{goal.asin}]")
    for value in values_of(goal):
        assert step(client, token, f"click[{value}]").get_json()["valid"]
    bought = step(client, token, "click[Buy Now]").get_json()
    assert (bought["done"], bought["reward"], bought["task_score"], bought["success"]) == (True, 1, 1, True)
    assert client.get(f"/api/sessions/{token}").get_json() == {
        **bought,
        **{name: first[name] for name in ("session", "goal", "instruction")},
    }
    assert refusal(step(client, token, "click[Buy Now]")) == (409, "done")
    assert client.delete(f"/api/sessions/{token}").status_code == 204
    assert refusal(client.get(f"/api/sessions/{token}")) == (410, "session_gone")
    assert refusal(step(client, token, "x")) == (410, "session_gone")


@pytest.mark.parametrize("parity", [False, True])
def test_a_search_that_the_pages_would_refuse_is_invalid(client: FlaskClient, parity: bool) -> None:
    """It was carried out: only the form looked at length and control characters."""
    first = made(client, goal=0, parity=parity, reward="tiered")
    for action in (f"search[{'x' * 1001}]", f"search[{'x' * 3900}]", "search[shoe\x00]"):
        response = step(client, first["session"], action)
        answer = response.get_json()
        assert (response.status_code, answer["valid"], answer["effective"], answer["reward"]) == (200, False, False, 0)
        assert answer["observation"] == first["observation"]
    assert step(client, first["session"], f"search[{'x' * 1000}]").get_json()["valid"]


def test_goals_are_chosen_by_number_position_seed_or_chance(client: FlaskClient) -> None:
    shop = open_shop("toy")
    assert made(client, split="eval", index=3)["goal"] == shop.goals.split("eval")[3]
    drawn = [made(client, split="test", seed=seed)["goal"] for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1
    assert set(drawn) <= set(shop.goals.split("test"))
    assert len({made(client)["goal"] for _ in range(20)}) > 1
    for fields in ({"goal": 10**6}, {"split": "test", "index": len(shop.goals.split("test"))}):
        assert refusal(client.post("/api/sessions", json=fields)) == (404, "unknown_goal")


def test_unknown_sessions_and_methods_are_refused_in_json(client: FlaskClient) -> None:
    assert refusal(client.get("/api/sessions/x")) == (404, "unknown_session")
    assert refusal(client.delete("/api/sessions/x")) == (404, "unknown_session")
    assert refusal(step(client, "fixed_1", "x")) == (404, "unknown_session")
    assert refusal(client.get("/api/sessions")) == (405, "method_not_allowed")
    assert refusal(client.get("/api/nothing")) == (404, "not_found")
    assert refusal(client.post("/api/sessions", data=b"[]")) == (400, "bad_json")
    assert refusal(client.post("/api/sessions", data=b" " * 70_000)) == (413, "request_entity_too_large")


def test_a_picture_shows_as_many_hits_as_are_asked_for(client: FlaskClient) -> None:
    token = made(client, goal=0)["session"]
    step(client, token, "search[shoe]")
    pictures = [client.get(f"/api/sessions/{token}/picture?hits={hits}") for hits in (1, 9, 10)]
    assert [picture.status_code for picture in pictures] == [200] * 3
    assert len({picture.data for picture in pictures}) == 3
    for hits in ("0", "11", "-1", "x", ""):
        assert refusal(client.get(f"/api/sessions/{token}/picture?hits={hits}")) == (400, "bad_hits")


def test_two_purchases_at_once_are_one(app: Flask) -> None:
    token = made(app.test_client(), goal=1)["session"]
    for action in ("search[a]", "search[shoe shirt mug blue]"):
        found = step(app.test_client(), token, action).get_json()
    step(app.test_client(), token, f"click[{found['available_actions']['clickables'][-1]}]")
    statuses = []
    threads = [
        threading.Thread(target=lambda: statuses.append(step(app.test_client(), token, "click[buy now]").status_code))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, *[409] * 7]
