"""Faults of episodes in the shops: each by a purchase that has it, and the same through a server."""

from dataclasses import replace

import gymnasium
import pytest

from ragen_envs.webshop import ToyShop, WebShop
from ragen_envs.webshop.faults import faults
from ragen_envs.webshop.local_store import local_store
from ragen_envs.webshop.session import Answer
from tests.support.ragen_envs.shop_http import connected
from webshop_server import create_app
from webshop_server.goals.faults import purchase_faults


def buy(env: ToyShop, goal: int, looks: str) -> tuple[str, ...]:
    """The faults of buying the first product that looks so."""
    env.reset(options={"goal": goal})
    env.step(f"search:{looks}")
    hit = next(hit for hit in env.hits if set(looks.split()) <= set(hit.title.lower().split()))
    return tuple(env.step(f"buy:{hit.asin}")[-1]["faults"])


def test_a_toy_purchase_lacks_what_it_lacks() -> None:
    env = ToyShop(split="all", max_steps=None)
    goal = local_store(env.settings).shop().goal(57)
    assert goal.attributes == ("blue", "medium size", "button front") and goal.query == "clothing"
    assert buy(env, 57, "medium blue clothing") == ()
    assert buy(env, 57, "medium red clothing")[0] == "wrong color"
    assert buy(env, 57, "small blue clothing")[0] == "wrong size"
    assert buy(env, 57, "small red shoe")[:3] == ("wrong kind", "wrong color", "wrong size")
    found = buy(env, 57, "medium red clothing")
    assert set(found) <= {"wrong color", "wrong attribute", "too dear"}
    cheap = next(goal for goal in local_store(env.settings).shop().goals if goal.price_upper < 60)
    size, color, *_, kind = next(
        product.title.lower().split()
        for product in local_store(env.settings).shop().catalog.products()
        if product.price > 100 and product.query == cheap.query
    )
    assert buy(env, cheap.id, f"{size} {color} {kind}")[-1] == "too dear"


def test_an_attribute_with_the_word_small_is_no_size() -> None:
    """Regression: a purchase that was not of a small batch had the wrong size."""
    shop = local_store(WebShop().settings).shop()
    goal = next(goal for goal in shop.goals if "small batch" in goal.attributes and "size" not in goal.options)
    bought = next(
        product
        for product in shop.catalog.products()
        if product.query == goal.query and "small batch" not in product.attributes and not product.options
    )
    parts = shop.buy(goal, bought, {}, "fixed")
    assert not parts.attributes_met[goal.attributes.index("small batch")]
    assert "wrong attribute" in purchase_faults(parts, goal) and "wrong size" not in purchase_faults(parts, goal)
    for attribute, named in (
        ("green tea", "wrong attribute"),
        ("blue", "wrong color"),
        ("small", "wrong size"),
        ("Medium Size", "wrong size"),
        ("hair color", "wrong color"),
    ):
        asked = replace(goal, attributes=(attribute,), options={})
        assert purchase_faults(replace(parts, attributes_met=(False,), options_met=()), asked)[0] == named


def test_options_that_were_not_chosen_are_named_by_their_kind() -> None:
    env = WebShop(max_steps=None)
    shop = local_store(env.settings).shop()
    goals = [goal for goal in shop.goals if {"color", "size"} <= set(goal.options)]
    goal = goals[0]
    env.reset(options={"goal": goal.id})
    env.step(f"search[{goal.name}]")
    env.step(f"click[{goal.asin}]")
    assert env.step(f"click[{goal.options['size']}]")[-1]["faults"] == ("no purchase",)
    assert env.step("click[buy now]")[-1]["faults"] == ("wrong color",)


def test_nothing_bought_and_searches_that_go_nowhere() -> None:
    offered = {"has_search_bar": True, "clickables": []}
    answer = Answer.read({"observation": "", "url": "", "available_actions": offered})
    for played, loop in (
        (["search[a]", "search[b]", "click[x]", "search[c]"], False),
        (["search[a]", "search[b]", "search[c]"], True),
        (["search[a]", "click[x]", "click[< prev]", "search[a]"], True),
        (["search[a]", "filter[price<5]", "search[b]", "filter[price<5]"], False),
    ):
        assert faults(answer, played) == ("no purchase",) + ("search loop",) * loop
    env = gymnasium.make("ragen/ToyShop-v0")
    assert env.reset(seed=0)[1]["faults"] == ("no purchase",)


@pytest.mark.parametrize("goal", [0, 3])
def test_a_server_says_the_same(goal: int) -> None:
    here = WebShop(catalog="toy", max_steps=None)
    there = connected(WebShop(base_url="http://shop.test", max_steps=None), create_app("toy"))
    for env in (here, there):
        env.reset(options={"goal": goal})
        env.step("search[large red shoe]")
    first = here.session.answer.available_actions.buyable[0]
    mine, theirs = (env.step(f"buy[{first}]")[-1]["faults"] for env in (here, there))
    assert mine == theirs != ()
