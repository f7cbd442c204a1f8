"""A store elsewhere: our server and the original's pages, step for step like the object; what fails; forks."""

import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from flask import Flask

from ragen_envs import best_action
from ragen_envs.webshop import WebShop
from ragen_envs.webshop.remote import PagesSession, ShopPage, ShopServerError
from ragen_envs.webshop.shoppers import random_shop_action
from tests.support.ragen_envs import shop_http
from tests.support.ragen_envs.shop_http import Faulty, connected
from webshop_server import create_app


def page(text: str) -> dict[str, Any]:
    """What a server answers with status 200."""
    return {"status_code": 200, "text": text}


NOISE = ["buy[now]", "filter[price<50]", "filter[color=red]", "buy[2]", "click[search]", "click[no]", "nonsense"]


@pytest.fixture(scope="module")
def toy() -> Flask:
    return create_app("toy")


@pytest.fixture(scope="module")
def pages() -> Any:
    return shop_http.original()


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client waited, which takes no time here. What is known of a server's goals is forgotten."""
    waited: list[float] = []
    monkeypatch.setattr("ragen_envs.webshop.remote.WAITS", (0.1, 0.2, 0.4))
    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setattr("ragen_envs.webshop.remote._COUNTED", {})
    return waited


def remote(app: Any, **arguments: Any) -> WebShop:
    return connected(WebShop(base_url=shop_http.ADDRESS, **arguments), app)


def walk(left: WebShop, right: WebShop, seed: int, policy: Callable[[WebShop], str], *but: str, **start: Any) -> float:
    """Plays both by the policy for the left one, compares every step, and returns the last reward."""

    def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
        assert one[:-1] == other[:-1]
        infos = ({name: value for name, value in each[-1].items() if name not in but} for each in (one, other))
        assert next(infos) == next(infos)

    start = start or {"seed": seed}
    same(left.reset(**start), right.reset(**start))
    rng = np.random.default_rng(seed)
    while True:
        action = str(rng.choice(NOISE)) if rng.random() < 0.1 else policy(left)
        step = left.step(action)
        same(step, right.step(action))
        if step[2] or step[3]:
            return float(step[1])


def at_random(seed: int) -> Callable[[WebShop], str]:
    rng = np.random.default_rng(seed)
    return lambda env: random_shop_action(env, rng)


def oracle(env: WebShop) -> str:
    return best_action(env, 15)


RULES = [
    {"observation_mode": "text", "reward": "tiered", "split": "train", "show_actions": True},
    {"observation_mode": "text_rich", "reward": "webshop", "split": "test", "parity": True},
    {"observation_mode": "html", "reward": "fixed", "split": "eval_by_product"},
    {"observation_mode": "url", "reward": "success", "split": "all", "parity": True, "show_actions": True},
    {"observation_mode": "short", "reward": "tiered", "split": "test_by_product", "show_actions": True},
]


@pytest.mark.parametrize("rules", RULES)
def test_our_server_is_the_object_step_for_step(toy: Flask, rules: dict[str, Any]) -> None:
    drawn: dict[str, Any] = {**rules, "render_mode": "rgb_array"}
    ours, theirs = WebShop(catalog="toy", **drawn), remote(toy, **drawn)
    for seed in range(4):
        walk(ours, theirs, seed, at_random(seed))
        walk(ours, theirs, seed, oracle)
    for env in (ours, theirs):
        env.reset(seed=0)
        env.step("search[shoe]")
    assert len({ours.session.picture(hits) for hits in (1, 9, 10)}) == 3
    assert (ours.render() == theirs.render()).all()
    assert not theirs.store.has_only_pages
    assert theirs.about() == ours.about() and theirs.count() == ours.count()


@pytest.mark.parametrize("mode", ["text", "text_rich", "url"])
def test_pages_of_the_original_are_the_same_step_for_step(pages: Any, mode: str) -> None:
    """A page does not tell the parts of a score."""
    rules: dict[str, Any] = {"parity": True, "reward": "webshop", "observation_mode": mode, "max_steps": 25}
    ours, theirs = WebShop(**rules), remote(pages, **rules)
    scores = []
    for goal in (0, 50, 100):
        start = {"options": {"goal": goal}}
        walk(ours, theirs, goal, at_random(goal), "reward_parts", "faults", **start)
        scores.append(walk(ours, theirs, goal, oracle, "reward_parts", "faults", **start))
        assert theirs.session.answer.reward_parts[0] == ours.session.answer.reward_parts[0] == ("total", scores[-1])
    assert np.mean(scores) > 0.7
    assert isinstance(theirs.session, PagesSession) and theirs.store.has_only_pages


def test_faults_before_a_request_arrives_are_tried_again_with_growing_waits(toy: Flask, waits: list[float]) -> None:
    faulty = Faulty(toy, "refuse", "busy")
    env = remote(faulty)
    env.reset(seed=1)
    assert waits == [0.1, 0.2]
    faulty.faults[:] = ["refuse"] * 4
    with pytest.raises(ShopServerError, match=r"does not answer .*4 attempts in 0.7 s.*start `webshop"):
        env.step("search[shoe]")
    assert env.step("search[shoe]")[-1]["action_is_valid"]


@pytest.mark.parametrize("app", ["toy", "pages"])
def test_an_action_whose_answer_was_lost_is_not_carried_out_twice(request: Any, app: str) -> None:
    """It is unknown whether it was carried out. Ours plays all in a new session; of pages the address tells all."""
    faulty = Faulty(request.getfixturevalue(app))
    rules: dict[str, Any] = {"parity": True, "reward": "webshop"}
    env, twin = remote(faulty, **rules), remote(request.getfixturevalue(app), **rules)
    for one in (env, twin):
        one.reset(options={"goal": 5})
    for fault in ("lose", "", "lose"):
        faulty.faults[:] = [fault]
        assert env.step("search[blue shoe]") == twin.step("search[blue shoe]")
    assert not env.step("click[nothing]")[-1]["action_is_valid"]
    assert env.session.played == ("search[blue shoe]",) * 3  # what is played again
    faulty.faults[:] = ["lose", "lose"]
    assert env.step("click[next >]") == twin.step("click[next >]")
    assert app == "pages" or len({one for one in faulty.requests if one.startswith("GET")}) >= 4
    for action in (f"click[{env.session.answer.available_actions.clickables[-1]}]", "click[buy now]"):
        faulty.faults[:] = ["lose"]
        assert env.step(action) == twin.step(action)


@pytest.mark.parametrize("app", ["toy", "pages"])
@pytest.mark.parametrize(
    "answer",
    [
        page("<html><body><form><input name=password></form>Please log in</body></html>"),
        page(""),
        page('{"reward": 1.0, "done": true}'),
        page('<script type="application/json" id="webshop">{"goal": 5, "reward": 1}</script>'),
        page('<div id="instruction-text"><h4>Instruction:<br>buy a mug</h4></div>'),
        page('<h3 id="reward">Your score<pre>nan</pre></h3>'),
        {"status_code": 302, "headers": {"Location": "/again"}},
        httpx.DecodingError("no gzip"),
    ],
)
def test_what_is_no_page_of_the_shop_is_an_error_and_never_a_reward(request: Any, app: str, answer: Any) -> None:
    """Regression: a login page with status 200 ended the episode with 0, and some errors of httpx ended the run."""
    faulty = Faulty(request.getfixturevalue(app))
    env = remote(faulty, parity=True, reward="webshop")
    env.reset(options={"goal": 5})
    for last in ("search[shoe]", "click[buy now]"):
        if last == "click[buy now]":
            env.step(f"click[{env.session.answer.available_actions.clickables[-1]}]")
        faulty.faults[:] = [answer] * 100
        with pytest.raises(ShopServerError):
            env.step(last)
        with pytest.raises(ShopServerError):
            remote(faulty).reset(options={"goal": 5})
        faulty.faults.clear()
        env.step(last)  # and it goes on once the server is back
    assert env.session.answer.done


def test_a_store_that_changed_in_the_middle_is_an_error(toy: Flask) -> None:
    env = remote(toy)
    env.reset(options={"goal": 5})
    env.step("search[shoe]")
    env = connected(env, create_app("synthetic"))
    env.session.store = env.store
    with pytest.raises(ShopServerError, match="http://shop.test shows another page.*reset"):
        env.step("search[shirt]")


def forked(work: Callable[[], Any]) -> Any:
    """What `work` returns in a child of this process."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(work()))
    child.start()
    assert here.poll(60)
    child.join()
    return here.recv()


def test_a_child_plays_in_a_session_of_its_own_and_leaves_the_parents_alone(toy: Flask) -> None:
    """It used to step the parent's session."""
    env, twin = remote(Faulty(toy)), remote(toy)
    for one in (env, twin):
        one.reset(options={"goal": 5})
        one.step("search[shoe]")
    there = forked(lambda: [env.step("click[next >]"), env.step("search[shirt]")])
    assert there == [twin.step("click[next >]"), twin.step("search[shirt]")]
    assert env.step("click[next >]") == there[0]  # still on the first page of shoes


def test_a_store_in_this_process_is_pickled_and_forked_by_its_settings() -> None:
    env = WebShop(catalog="toy", split="train")
    env.reset(seed=3)
    env.step("search[shoe]")
    copied = pickle.loads(pickle.dumps(env))
    assert len(pickle.dumps(env)) < 500_000
    steps = [env.step("click[next >]"), env.step("click[< prev]")]
    assert [copied.step("click[next >]"), copied.step("click[< prev]")] == steps
    assert copied.store.shop is env.store.shop
    shop = id(env.store.shop)
    assert forked(lambda: (id(env.store.shop) != shop, env.step("click[next >]"))) == (True, steps[0])


def test_goals_are_counted_and_drawn_from_the_published_splits() -> None:
    app = shop_http.original("toy")
    assert remote(app).count() == 96
    assert remote(app).about()["splits"] == {"all": 96, "test": 96, "eval": 0, "train": 0}
    assert remote(app, split="test").reset(options={"index": 95})[1]["goal_id"] == 95
    env = remote(app)
    drawn = {env.reset(seed=seed)[1]["goal_id"] for seed in range(40)}
    assert len(drawn) > 25 and drawn <= set(range(96))
    with pytest.raises(ValueError, match="needs a webshop-server"):
        remote(app, reward="tiered").reset(seed=0)


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
    assert page.pieces == [
        *(("text", "Instruction:"), ("text", "find a mug"), ("button", "Back to Search"), ("text", "color")),
        *(("option", "red"), ("button", "Buy Now")),
    ]
    assert page.targets == {
        "back to search": ("POST", "/fixed_1"),
        "buy now": ("POST", "/done/fixed_1/B01/{}"),
        "red": ("GET", "/item_page/fixed_1/B01/['mug']/1/{'color': 'red'}"),
    }
    assert (page.is_start, page.reward) == (False, None)
    assert ShopPage('<h3 id="reward">Your score<pre>0.75</pre></h3>').reward == 0.75
