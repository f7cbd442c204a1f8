"""The JSON API over the toy store."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.support.webshop_server.goals import values_of
from webshop_server import create_app
from webshop_server.server.app import open_shop
from webshop_server.server.metrics import Metrics
from webshop_server.server.sessions import Sessions


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


def test_the_store_says_what_it_has(client: FlaskClient) -> None:
    about = client.get("/api/store").get_json()
    assert (about["catalog"], about["products"]) == ("toy", 96)
    assert about["splits"]["all"] == about["goals"]
    assert about["reward_modes"] == ["webshop", "fixed", "tiered", "success"]
    assert (about["nouns"], len(about["catalog_hash"])) == ("precomputed", 64)


def test_a_session_has_a_picture_of_what_its_page_sells(client: FlaskClient) -> None:
    token = made(client, goal=5)["session"]
    address = f"/api/sessions/{token}/picture"
    start = client.get(address)
    assert (start.status_code, start.data) == (204, b"")
    step(client, token, "search[red shoe]")
    shown = [client.get(address), client.get(address, query_string={"hits": 5})]
    assert [(one.status_code, one.mimetype) for one in shown] == [(200, "image/svg+xml")] * 2
    assert [one.get_data(as_text=True).count("<g ") for one in shown] == [10, 5]
    for hits in ("0", "11", "-1", "x", "", "9" * 30, "٣"):
        assert refusal(client.get(address, query_string={"hits": hits})) == (400, "bad_hits")
    assert refusal(client.get("/api/sessions/x/picture")) == (404, "unknown_session")
    assert client.delete(f"/api/sessions/{token}").status_code == 204
    assert refusal(client.get(address)) == (410, "session_gone")


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


def test_an_invalid_action_is_an_answer_and_no_error(client: FlaskClient) -> None:
    first = made(client, goal=0)
    answer = step(client, first["session"], "dance").get_json()
    assert (answer["valid"], answer["effective"], answer["reward"]) == (False, False, 0)
    assert answer["observation"] == first["observation"]


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
    for fields in ({"goal": 10**6}, {"split": "test", "index": 10**6}):
        assert refusal(client.post("/api/sessions", json=fields)) == (404, "unknown_goal")


def test_modes_and_parity_are_kept(client: FlaskClient) -> None:
    assert made(client, goal=4, mode="url")["observation"] == "http://127.0.0.1:3000/4"
    assert made(client, mode="html")["observation"].startswith("<!DOCTYPE html>")
    parity = made(client, parity=True)
    assert parity["available_actions"]["clickables"] == ["search"]
    answer = step(client, parity["session"], "search[zzz]").get_json()
    assert answer["available_actions"]["clickables"] == ["back to search", "next >"]
    assert not step(client, parity["session"], "filter[price<50]").get_json()["valid"]
    assert step(client, made(client)["session"], "search[shoe]\n").get_json()["valid"]


def test_sessions_do_not_mix(client: FlaskClient) -> None:
    tokens = [made(client, goal=goal)["session"] for goal in range(8)]
    instructions = [client.get(f"/api/sessions/{token}").get_json()["instruction"] for token in tokens]
    for token, instruction in zip(tokens, instructions, strict=True):
        assert instruction in step(client, token, "search[shirt]").get_json()["observation"]


def test_unknown_sessions_and_methods_are_refused_in_json(client: FlaskClient) -> None:
    assert refusal(client.get("/api/sessions/x")) == (404, "unknown_session")
    assert refusal(client.delete("/api/sessions/x")) == (404, "unknown_session")
    assert refusal(step(client, "fixed_1", "x")) == (404, "unknown_session")
    assert refusal(client.get("/api/sessions")) == (405, "method_not_allowed")
    assert refusal(client.get("/api/nothing")) == (404, "not_found")
    assert refusal(client.post("/api/sessions", data=b"[]")) == (400, "bad_json")
    assert refusal(client.post("/api/sessions", data=b" " * 70_000)) == (413, "request_entity_too_large")


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


def test_an_old_session_makes_room() -> None:
    small = create_app("toy", sessions=Sessions(max_sessions=2)).test_client()
    tokens = [made(small)["session"] for _ in range(3)]
    statuses = [small.get(f"/api/sessions/{token}").status_code for token in tokens]
    assert statuses == [410, 200, 200]


def test_answers_are_the_same_from_a_store_elsewhere(client: FlaskClient) -> None:
    other = create_app("toy", sessions=Sessions()).test_client()
    actions = ("search[shoe]", "filter[price<90]", "click[back to search]")
    answers = []
    for each in (client, other):
        token = made(each, goal=2)["session"]
        answers.append([step(each, token, action).get_json() for action in actions])
    assert answers[0] == answers[1]


def test_steps_are_written_down_where_wanted(tmp_path: Path) -> None:
    client = create_app("toy", log=tmp_path).test_client()
    token = made(client, goal=3)["session"]
    step(client, token, "search[shoe]")
    (path,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["action"], line["goal"]) for line in lines] == [(None, 3), ("search[shoe]", 3)]
    assert token not in path.read_text(encoding="utf-8")


def test_health_and_numbers(app: Flask) -> None:
    client = app.test_client()
    assert client.get("/healthz").get_json() == {"ready": True}
    before = client.get("/metrics").get_data(as_text=True)
    token = made(client)["session"]
    step(client, token, "x")
    after = client.get("/metrics").get_data(as_text=True)

    def number(text: str, name: str) -> float:
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))

    for name in ("webshop_steps_total", "webshop_sessions_created_total"):
        assert number(after, name) == number(before, name) + 1


def test_a_server_that_stops_takes_no_more_requests() -> None:
    metrics = Metrics()
    client = create_app("toy", metrics=metrics).test_client()
    assert client.get("/healthz").status_code == 200
    metrics.stopping = True
    for response in (client.get("/healthz"), client.post("/api/sessions", json={}), client.get("/fixed_0")):
        assert (response.status_code, response.headers["Retry-After"]) == (503, "2")
        assert response.get_json()["ready"] is False


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="reward_mode='best' is unknown; use one of webshop, fixed"):
        create_app("toy", reward_mode="best")  # type: ignore[arg-type]
