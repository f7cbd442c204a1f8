"""The observation mode `short` in the environment: its rules, its task, and the policies that play it."""

import numpy as np
import pytest
from flask import Flask

from ragen_envs import AgentTurns, best_action, random_action
from ragen_envs.webshop import WebShop
from ragen_envs.webshop.policies import scripted_shop_action
from ragen_envs.webshop.reading import chosen_values, option_groups, products
from tests.support.ragen_envs.shop_http import connected
from webshop_server import create_app


def test_parity_has_no_short_pages() -> None:
    with pytest.raises(ValueError, match="observation_mode='short' is not the original's; leave parity=True out"):
        WebShop(observation_mode="short", parity=True)


def test_the_task_is_said_once_and_again_where_a_context_begins_later() -> None:
    turns = AgentTurns(WebShop(catalog="toy", observation_mode="short"), max_actions_per_turn=1)
    first, _ = turns.reset(seed=1)
    shop = turns.unwrapped
    assert isinstance(shop, WebShop)
    wanted = f"Wanted: {shop.session.instruction}"
    assert first == turns.opening and first.count(wanted) == 1 and shop.task == wanted
    message, *_ = turns.step(turns.format_reply(["search[shoe]"], "I look."))
    assert wanted not in message
    rules, _, latest = turns.opening.partition("\n\n")
    assert latest == message and rules.endswith(f"\n{wanted}") and turns.opening.count(wanted) == 1


@pytest.mark.parametrize("mode", ["text", "text_rich"])
def test_other_modes_say_the_task_on_every_page(mode: str) -> None:
    turns = AgentTurns(WebShop(catalog="toy", observation_mode=mode), max_actions_per_turn=1)
    turns.reset(seed=1)
    turns.step(turns.format_reply(["search[shoe]"], "I look."))
    shop = turns.unwrapped
    assert isinstance(shop, WebShop)
    assert shop.task == "" and turns.opening.count(shop.session.instruction) == 1


@pytest.mark.parametrize("name", ["oracle", "scripted"])
def test_policies_play_the_same_episodes_as_on_long_pages(name: str) -> None:
    short, text = (WebShop(observation_mode=mode, max_steps=None) for mode in ("short", "text"))
    for goal in range(0, 400, 20):
        ends = []
        for env in (short, text):
            env.reset(options={"goal": goal})
            over = False
            while not over:
                action = best_action(env, 9) if name == "oracle" else scripted_shop_action(env)
                _, _, over, _, info = env.step(action)
                assert info["action_is_valid"], (action, env.render())
            ends.append((info["url"], info["task_score"]))
        assert ends[0] == ends[1]


def test_the_rule_ends_where_one_value_names_another() -> None:
    """Regression: "size: 9.5" names the size 9 as well, and the rule chose one after the other for ever."""
    short, text = (WebShop(observation_mode=mode, split="test_by_product") for mode in ("short", "text"))
    twice = 0
    for seed in range(short.count()):
        ends, clicks = [], []
        for env in (short, text):
            env.reset(seed=seed)
            over = truncated = False
            while not (over or truncated):
                _, _, over, truncated, info = env.step(scripted_shop_action(env))
            ends.append((info["purchased"], info["url"], info["task_score"]))
            clicks.append(sum(action.startswith("click[") for action in env.session.played))
        assert ends[0] == ends[1]
        twice += clicks[1] > clicks[0]
    assert twice >= 19  # long pages do not show what is chosen: there both values are clicked, and the last one counts


def test_random_play_does_what_is_offered() -> None:
    env, rng = WebShop(observation_mode="short", max_steps=None), np.random.default_rng(0)
    env.reset(seed=0)
    seen = set()
    for _ in range(300):
        action = random_action(env, rng)
        _, _, over, _, info = env.step(action)
        assert info["action_is_valid"], action
        seen.add(action)
        if over:
            env.reset()
    assert any(action[6:-1].isdecimal() for action in seen)


def test_pages_are_read_alike_in_both_modes() -> None:
    short, text = (WebShop(observation_mode=mode) for mode in ("short", "text"))
    for env in (short, text):
        env.reset(options={"goal": 7})
        env.step("search[cotton shirt size]")
    hits = [products(env) for env in (short, text)]
    lowest = [hit.price.split(" to ")[0] for hit in hits[1]]
    assert [hit.price.removeprefix("from ") for hit in hits[0]] == lowest and len(lowest) == 10
    assert [hit.price.startswith("from") for hit in hits[0]] == [" to " in hit.price for hit in hits[1]]
    for one, other in zip(*hits, strict=True):
        assert other.title.startswith(one.title.removesuffix("…"))
    number = next(n for n, hit in enumerate(hits[1]) if text.step(f"click[{hit.label}]") and option_groups(text))
    text.reset(options={"goal": 7})
    for env, hit in zip((short, text), (hits[0][number], hits[1][number]), strict=True):
        if env is text:
            env.step("search[cotton shirt size]")
        env.step(f"click[{hit.label}]")
    groups = option_groups(text)
    assert option_groups(short) == groups
    last: dict[str, str] = {}
    for value, name in groups.items():
        last[name] = value
        for env in (short, text):
            env.step(f"click[{value}]")
        assert set(chosen_values(short)) == set(chosen_values(text)) == set(last.values())


@pytest.fixture(scope="module")
def app() -> Flask:
    return create_app("toy")


def test_a_server_shows_short_pages_too(app: Flask) -> None:
    here = WebShop(catalog="toy", observation_mode="short", show_actions=True)
    there = connected(WebShop(base_url="http://shop.test", observation_mode="short", show_actions=True), app)
    assert here.reset(seed=3)[0] == there.reset(seed=3)[0]
    for action in ("search[shoe]", "click[2]", "click[features]", "buy[now]"):
        assert here.step(action)[0] == there.step(action)[0]
    assert here.session.answer.done
