"""A store elsewhere: faults of a connection, forks, pages of the original; played like the store in this process."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flask import Flask

from ragen_envs.oracles import best_action
from ragen_envs.webshop import WebShop, classic
from ragen_envs.webshop.classic import ClassicSession
from ragen_envs.webshop.client import ShopServerError
from ragen_envs.webshop.pages import ShopPage
from ragen_envs.webshop.policies import random_shop_action
from ragen_envs.webshop.session import Answer, AvailableActions
from tests.support.ragen_envs.shop_fakes import FakeStore
from tests.support.ragen_envs.shop_http import connected, httpd, without_api


def test_a_session_tells_what_the_store_says() -> None:
    session = FakeStore().session()
    assert (session.goal, session.instruction, session.answer.observation) == (7, "buy", "shop 7")
    assert session.step("search[x]").valid
    assert not session.step("bad").valid
    bought = session.step("buy")
    assert bought == session.answer
    assert bought == Answer(
        observation="shop 7 search[x] buy",
        url="http://shop.test/7",
        reward=0.5,
        done=True,
        valid=True,
        effective=True,
        task_score=0.5,
        success=False,
        available_actions=AvailableActions(True, ("buy",)),
        reward_parts=(("total", 0.5), ("options", (1, 0)), ("mode", "fixed")),
    )
    hash(bought)
    assert session.played == ("search[x]", "buy")


def test_faults_before_a_request_arrives_are_tried_again_with_growing_waits() -> None:
    store = FakeStore("refuse", "busy")
    session = store.session()
    assert store.waits == [0.1, 0.2]
    assert list(store.sessions) == ["t1"]
    store.faults[:] = ["refuse"]
    assert session.step("a").observation == "shop 7 a"


def test_an_action_whose_answer_was_lost_is_not_carried_out_twice() -> None:
    """It is unknown whether it was carried out: a new session plays the same actions, this one once."""
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.faults[:] = ["lose"]
    assert session.step("b").observation == "shop 7 a b"
    assert store.sessions["t1"] == (7, ["a", "b"])  # it was carried out there, and is left to itself
    assert store.sessions["t2"] == (7, ["a", "b"])
    assert session.step("c").observation == "shop 7 a b c"


def test_a_store_that_changed_in_the_middle_is_an_error() -> None:
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.sessions.clear()
    store.wares = "other"
    for _ in range(2):
        with pytest.raises(ShopServerError, match=r"http://shop.test shows another page.*reset"):
            session.step("b")


def play(env: WebShop) -> list[Any]:
    """What an episode returns."""
    seen: list[Any] = [env.reset(seed=4)]
    for action in ("search[shoe]", "no action", "click[next >]", "search[blue clothing]"):
        seen.append(env.step(action))
    seen.append(env.step(f"click[{seen[-1][-1]['available_actions'].clickables[-1]}]"))
    seen.append(env.step("click[buy now]"))
    return seen


def test_over_http_everything_is_as_in_the_process() -> None:
    with httpd() as url:
        env = WebShop(base_url=url)
        assert play(env) == play(WebShop(catalog="toy"))
        env.close()


def forked(work: Callable[[], Any]) -> Any:
    """What `work` returns in a child of this process."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: there.send(work()))
    child.start()
    assert here.poll(60)
    child.join()
    return here.recv()


def test_a_child_plays_in_a_session_of_its_own_and_leaves_the_parents_alone() -> None:
    """It used to step the parent's session, and to delete it on closing."""
    store = FakeStore()
    session = store.session()
    session.step("a")
    store.requests.clear()

    def child() -> tuple[str, list[str]]:
        shown = session.step("b").observation
        session.close()
        return shown, store.requests

    shown, requests = forked(child)
    assert shown == "shop 7 a b"
    assert requests == [
        "POST /api/sessions",
        "POST /api/sessions/t2/step",
        "POST /api/sessions/t2/step",
        "DELETE /api/sessions/t2",
    ]
    assert session.step("c").observation == "shop 7 a c"
    assert store.requests == ["POST /api/sessions/t1/step"]


MODES = ("text_rich", "url")
GOALS = 4


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
    for goal in range(0, 300, 30):
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


def test_goals_are_counted_and_drawn_from_the_published_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(classic, "_has_goal", lambda goals, goal: goal < goals)
        assert [classic._count_goals(goals) for goals in range(1, 40)] == [*range(1, 40)]  # type: ignore[arg-type]
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
