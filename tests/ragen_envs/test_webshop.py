"""The WebShop environment: observations, rewards, options, limits, bounds, faults, threads."""

from collections.abc import Iterator

import pytest

from ragen_envs.webshop import ToyShop, WebShop
from ragen_envs.webshop.env import LocalStore
from ragen_envs.webshop.shoppers import search_for
from webshop_server.store.answer import AvailableActions

TOY = LocalStore("toy")


@pytest.fixture
def env() -> Iterator[WebShop]:
    """A toy store, at the start of goal 0."""
    made = WebShop(catalog="toy")
    made.reset(options={"goal": 0})
    yield made
    made.close()


def test_a_purchase_is_scored_and_ends_the_episode(env: WebShop) -> None:
    """By hand: the kind is right, none of the attributes, the price is: 1 · (0 + 1) / (attributes + 1)."""
    shop = TOY.shop
    goal = shop.goal(0)
    alike = (one for one in shop.catalog.products() if one.query == goal.query and one.price < goal.price_upper)
    wrong = next(one for one in alike if not set(one.attributes) & set(goal.attributes))
    env.step(search_for(wrong.title))
    env.step(f"click[{wrong.asin.lower()}]")
    observation, reward, terminated, truncated, info = env.step("click[buy now]")
    assert reward == info["task_score"] == pytest.approx(1 / (len(goal.attributes) + 1))
    assert (terminated, truncated, info["success"], info["purchased"]) == (True, False, False, True)
    assert dict(info["reward_parts"])["r_att"] == 0.0
    assert observation.startswith("Thank you for shopping with us!")
    after = env.step("search[clothing]")
    assert after[:4] == (observation, 0.0, True, False)
    assert after[-1]["task_score"] == info["task_score"]


def test_a_product_is_bought_from_the_results_or_from_its_page(env: WebShop) -> None:
    """Regression: `buy[…]` was no action."""
    assert not env.step("buy[now]")[-1]["action_is_valid"]
    asins = env.step("search[shoe]")[-1]["available_actions"].buyable
    assert len(asins) == 10 and not env.step("buy[now]")[-1]["action_is_valid"]
    clicked = [env.step(f"click[{asins[1]}]"), env.step("click[buy now]")][-1]
    opened = f"click[{asins[1]}]"
    later = [opened, "click[features]", f"buy[ {asins[1]} ]"]
    for actions in ([f"buy[{asins[1].upper()}]"], later, [opened, "buy[now]"]):
        env.reset(options={"goal": 0})
        env.step("search[shoe]")
        assert [env.step(action) for action in actions][-1] == clicked
    assert clicked[-1]["purchased"] and clicked[-1]["available_actions"] == AvailableActions(False, ())


def test_only_valid_actions_count_towards_the_limit() -> None:
    env = WebShop(catalog="toy", max_steps=2)
    env.reset(options={"goal": 0})
    told = []
    for action in ("click[nothing]", "search[shoe]", "buy[now]", "search[mug]", "search[shirt]"):
        told.append((*env.step(action)[2:4], env.steps_left))
    assert told == [(False, False, 2), (False, False, 1), (False, False, 1), (False, True, 0), (False, True, 0)]


@pytest.mark.parametrize("split", ["test", "eval_by_product"])
def test_held_out_goals_are_played_in_their_order_each_once(split: str) -> None:
    goals = (env := WebShop(catalog="synthetic:300", split=split)).count()
    played = [env.reset(seed=seed)[1]["goal_id"] for seed in range(goals)]
    assert len(set(played)) == goals
    assert played[:9] == [env.reset(options={"index": index})[1]["goal_id"] for index in range(9)]
    assert env.reset(seed=goals + 3)[1]["goal_id"] == played[3]
    assert {env.reset()[1]["goal_id"] for _ in range(20)} <= set(played)  # without a seed they are drawn


def test_goals_are_drawn_from_the_split_and_the_seed() -> None:
    env, twin = WebShop(catalog="toy", split="train"), WebShop(catalog="toy", split="train")
    drawn = {env.reset(seed=seed)[1]["goal_id"] for seed in range(20)}
    assert drawn <= set(TOY.shop.goals.split("train")) and len(drawn) > 5
    env.reset(seed=3)
    twin.reset(seed=3, options={"goal": 0})
    assert env.reset()[1] == twin.reset()[1]  # the option does not shift later starts


def test_searches_in_a_row_are_a_loop(env: WebShop) -> None:
    told = [env.step(f"search[{words}]")[-1]["faults"] for words in ("a", "b")]
    assert (told, env.step("search[c]")[-1]["faults"]) == ([("no purchase",)] * 2, ("no purchase", "search loop"))
    env.reset(options={"goal": 0})
    for action in ("search[shoe]", "click[next >]"):
        assert env.step(action)[-1]["faults"] == ("no purchase",)
    assert env.step("search[shoe]")[-1]["faults"] == ("no purchase", "search loop")


def buy(env: ToyShop, goal: int, looks: str) -> tuple[str, ...]:
    """The faults of buying the first product that looks so."""
    env.reset(options={"goal": goal})
    env.step(f"search:{looks}")
    hit = next(hit for hit in env.hits if set(looks.split()) <= set(hit.title.lower().split()))
    return tuple(env.step(f"buy:{hit.asin}")[-1]["faults"])


def test_a_toy_purchase_lacks_what_it_lacks() -> None:
    env = ToyShop(split="all", max_steps=None)
    goal = env.store.shop.goal(57)
    assert goal.attributes == ("blue", "medium size", "button front") and goal.query == "clothing"
    assert buy(env, 57, "medium blue clothing") == ()
    assert buy(env, 57, "medium red clothing")[0] == "wrong color"
    assert buy(env, 57, "small blue clothing")[0] == "wrong size"
    assert buy(env, 57, "small red shoe")[:3] == ("wrong kind", "wrong color", "wrong size")
    cheap = next(goal for goal in env.store.shop.goals if goal.price_upper < 60)
    titles = (one.title for one in env.store.shop.catalog.products() if one.price > 100 and one.query == cheap.query)
    size, color, *_, kind = next(titles).lower().split()
    assert buy(env, cheap.id, f"{size} {color} {kind}")[-1] == "too dear"
