"""A server with pages only is played like the store in this process in parity mode, step for step."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from flask import Flask, request

from ragen_envs.oracles import best_action
from ragen_envs.turns import AgentTurns
from ragen_envs.webshop import WebShop
from ragen_envs.webshop.classic import ClassicSession
from ragen_envs.webshop.client import ShopServerError
from ragen_envs.webshop.pages import ShopPage
from ragen_envs.webshop.policies import random_shop_action
from ragen_envs.webshop.reading import BUTTONS
from tests.support.ragen_envs.shop_http import connected, without_api
from webshop_server import create_app

MODES = ("text", "text_rich", "url")
GOALS = 8


@pytest.fixture(scope="module")
def app() -> Flask:
    return without_api(reveal_goals=True)


def remote(app: Any, **arguments: Any) -> WebShop:
    return connected(WebShop(base_url="http://shop.test", **arguments), app)


def same(left: tuple[Any, ...], right: tuple[Any, ...], *, but: tuple[str, ...] = ("reward_parts", "faults")) -> None:
    """Compares two steps; a page does not tell the parts of a score."""
    assert left[:-1] == right[:-1]
    assert {name: value for name, value in left[-1].items() if name not in but} == {
        name: value for name, value in right[-1].items() if name not in but
    }


@pytest.mark.parametrize("mode", MODES)
def test_random_walks_are_the_same_step_for_step(app: Flask, mode: str) -> None:
    ours = WebShop(parity=True, reward="webshop", observation_mode=mode, max_steps=25)
    theirs = remote(app, parity=True, reward="webshop", observation_mode=mode, max_steps=25)
    rng = np.random.default_rng(0)
    bought = 0
    for goal in range(GOALS):
        same(theirs.reset(options={"goal": goal}), ours.reset(options={"goal": goal}))
        assert theirs.session.instruction == ours.session.instruction
        for _ in range(25):
            action = random_shop_action(ours, rng)
            if action == "click[buy now]" and rng.random() < 0.7:
                action = "click[< prev]"
            if rng.random() < 0.05:
                action = str(rng.choice(["buy[now]", "filter[price<50]", "click[search]", "click[no]", "nonsense"]))
            step = ours.step(action)
            same(theirs.step(action), step)
            if step[2] or step[3]:
                bought += step[2]
                break
    assert bought >= 1
    assert isinstance(theirs.session, ClassicSession)


def test_the_oracles_walks_are_the_same_and_end_with_the_same_score(app: Flask) -> None:
    ours, theirs = WebShop(parity=True, reward="webshop"), remote(app, parity=True, reward="webshop")
    scores = []
    for goal in range(0, 300, 20):
        same(theirs.reset(options={"goal": goal}), ours.reset(options={"goal": goal}))
        done = False
        while not done:
            action = best_action(ours, 15)
            step = ours.step(action)
            same(theirs.step(action), step)
            done = step[2]
        scores.append(step[1])
        assert step[-1]["reward_parts"][0] == theirs.session.answer.reward_parts[0] == ("total", step[1])
    assert np.mean(np.array(scores) == 1) > 0.8


def test_the_last_page_has_a_next_one_that_is_empty(app: Flask) -> None:
    ours, theirs = WebShop(parity=True, reward="webshop"), remote(app, parity=True, reward="webshop")
    for env in (ours, theirs):
        env.reset(options={"goal": 1})
    shown = []
    for action in ("search[backpack]", *["click[next >]"] * 6, *["click[< prev]"] * 3, "click[back to search]"):
        step = ours.step(action)
        same(theirs.step(action), step)
        shown.append([label for label in step[-1]["available_actions"].clickables if label not in BUTTONS])
    assert any(shown) and shown[6] == []


def test_pages_are_found_out_and_the_defaults_play_by_the_originals_rules(app: Flask) -> None:
    env = AgentTurns(remote(app))
    message, _ = env.reset(seed=3)
    shop = env.unwrapped
    assert isinstance(shop, WebShop) and isinstance(shop.session, ClassicSession)
    assert "filter[" not in message and "buy[id]" not in message
    assert not shop.step("filter[price<50]")[-1]["action_is_valid"]
    assert remote(app).reset(seed=3)[0] == shop.reset(seed=3)[0] != shop.reset(seed=4)[0]
    api = connected(WebShop(base_url="http://shop.test"), create_app("toy"))
    api.reset(seed=0)
    assert not isinstance(api.session, ClassicSession)


def test_goals_are_counted_once_in_a_process() -> None:
    """Regression: each environment counted with a dozen requests and more, and as many sessions in the server."""
    app, asked = without_api("toy"), []
    app.before_request(lambda: asked.append(request.path))
    requests = []
    for _ in range(3):
        asked.clear()
        env = remote(app)
        env._connection.address = "http://counted.test"
        assert env.count() == env.count() == 96
        requests.append(len(asked))
    assert requests[0] > 10
    assert requests[1:] == [3, 3]  # that there are pages, goal 95 and no goal 96
    again = remote(without_api("toy", human_goals=True))  # the server was started again with other goals
    again._connection.address = "http://counted.test"
    assert again.count() == 384


def test_goals_are_counted_and_drawn_from_the_published_splits() -> None:
    app = without_api("toy")
    assert remote(app).count() == 96
    assert remote(app).about()["splits"] == {"all": 96, "test": 96, "eval": 0, "train": 0}
    assert remote(app, split="test").reset(options={"index": 95})[1]["goal_id"] == 95
    env = remote(app)
    drawn = {env.reset(seed=seed)[1]["goal_id"] for seed in range(40)}
    assert len(drawn) > 25 and drawn <= set(range(96))
    with pytest.raises(ValueError, match="index=96 does not exist; split 'test' of this server has 96 goals"):
        remote(app, split="test").reset(options={"index": 96})
    with pytest.raises(ValueError, match="split='test_by_product' is not known on pages; use one of all, test"):
        remote(app, split="test_by_product").reset(seed=0)
    for reward in ("tiered", "success"):
        with pytest.raises(ValueError, match=f"reward='{reward}' needs the JSON API, and http://shop.test has pages"):
            remote(app, reward=reward).reset(seed=0)
    with pytest.raises(ValueError, match="observation_mode='short' needs the JSON API, and http://shop.test has pages"):
        remote(app, observation_mode="short").reset(seed=0)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_buys_for_itself(app: Flask, duplicate: Any) -> None:
    """And so does a session that the server has lost: the same is pressed again in a new one."""
    env = remote(app)
    env._connection._connect = Connect()
    env.reset(options={"goal": 2})
    for action in ("search[backpack]", "click[next >]"):
        env.step(action)
    asin = env.session.answer.available_actions.clickables[-1]
    env.step(f"click[{asin}]")
    twin = duplicate(env.session)
    assert twin.answer == env.session.answer
    own = env.session.step("click[buy now]")
    assert own.done and twin.step("click[buy now]") == own
    assert not twin.step("click[buy now]").valid


class Connect:
    """Connects to one application; it can be pickled."""

    app: Any = None

    def __call__(self) -> httpx.Client:
        return httpx.Client(transport=httpx.WSGITransport(app=Connect.app), base_url="http://shop.test")


@pytest.fixture(autouse=True)
def _served(app: Flask) -> Iterator[None]:
    Connect.app = app
    yield


def test_a_server_that_is_no_webshop_is_an_error() -> None:
    for app in (Flask("nothing"), Flask("text")):
        if app.name == "text":
            app.add_url_rule("/<path:any>", view_func=lambda any: "hello", methods=("GET", "POST"))
        with pytest.raises(ShopServerError, match="status 404|is it a webshop-server"):
            remote(app).reset(seed=0)


ORIGINAL_ITEM = """<html><head><title>x</title></head><body><div id="instruction-text" class="text-center">
<h4>Instruction:<br>find a mug</h4></div>
<form method="post" action="/fixed_1"><button type="submit" class="btn btn-success">Back to Search</button></form>
<h4>color</h4><div class="radio-toolbar">
<input type="radio" id="radio_color0" name="color" value="red"
 data-url="/item_page/fixed_1/B01/['mug']/1/{'color': 'red'}">
<label for="radio_color0">red</label></div>
<form method="post" action="/done/fixed_1/B01/{}"><button type="submit" class="btn btn-lg purchase">Buy Now</button>
</form></body></html>"""


def test_a_page_of_the_original_by_hand() -> None:
    page = ShopPage(ORIGINAL_ITEM)
    assert page.instruction == "find a mug"
    assert page.text() == "Instruction: [SEP] find a mug [SEP] Back to Search [SEP] color [SEP] red [SEP] Buy Now"
    assert {label: (one.kind, one.address) for label, one in page.targets().items()} == {
        "back to search": ("button", "/fixed_1"),
        "buy now": ("button", "/done/fixed_1/B01/{}"),
        "red": ("option", "/item_page/fixed_1/B01/['mug']/1/{'color': 'red'}"),
    }
    assert (page.has_search_bar, page.reward) == (False, None)
    assert ShopPage('<h3 id="reward">Your score<pre>0.75</pre></h3>').reward == 0.75
