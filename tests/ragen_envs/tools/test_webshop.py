"""The store by calls: the same goals, pages and rewards as WebShop, and errors for what a page does not offer."""

import copy
import threading
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import (
    ToolTurns,
    WebShop,
    WebShopTools,
    best_action,
    demonstration,
    difficulty,
    explain,
    random_action,
)
from ragen_envs.calling.tool import Call, read_action, write_answer, write_call
from ragen_envs.tools.webshop import as_call
from ragen_envs.webshop.env import SPLITS
from tests.support.ragen_envs.toys import calls


@pytest.mark.parametrize("split", SPLITS)
def test_a_seed_has_the_goal_and_the_page_that_it_has_in_the_shop(split: str) -> None:
    """Regression: a seed of a held-out split drew a goal. The fourth reset, without a seed, goes on from the third."""
    shop, env = WebShop(catalog="toy", split=split), WebShopTools(catalog="toy", split=split)
    for seed in (0, 1, 2, None):
        page, info = shop.reset(seed=seed)
        assert env.reset(seed=seed) == (page, {**info, "tool": "", "tool_failed": False})
    env.close()
    shop.close()


def test_the_oracle_buys_what_is_wanted_and_earns_what_it_earns_in_the_shop() -> None:
    shop, env = WebShop(catalog="toy"), WebShopTools(catalog="toy")
    for seed in range(6):
        shop.reset(seed=seed)
        env.reset(seed=seed)
        for left in range(10, 0, -1):
            ours, theirs = env.step(best_action(env, left)), shop.step(best_action(shop, left))
            assert ours[:4] == theirs[:4]
            assert {key: ours[4][key] for key in theirs[4]} == theirs[4]
            if ours[2]:
                break
        assert ours[4]["success"] and ours[1] == 1.0 and ours[4]["tool"] in ("click", "buy")
    env.close()
    shop.close()


def test_demonstrations_and_their_thoughts_are_those_of_the_shop() -> None:
    """Regression: noise made calls that are random as a whole, and nothing explained a call."""
    shop, env = WebShop(catalog="toy"), WebShopTools(catalog="toy")
    for seed in range(8):
        shop.reset(seed=seed)
        env.reset(seed=seed)
        assert difficulty(env) == difficulty(shop) >= 1
        ours, theirs, over = np.random.default_rng(seed), np.random.default_rng(seed), False
        for left in range(15, 0, -1):
            (call,), (action,) = demonstration(env, left, 1, ours, 0.3), demonstration(shop, left, 1, theirs, 0.3)
            assert call == as_call(action)
            said, meant = (
                explain(of, [what], np.random.default_rng(left)) for of, what in ((env, call), (shop, action))
            )
            made = read_action(call)
            assert isinstance(made, Call) and said.endswith(f" {made.name}.") and "[" not in said
            assert meant in (said, f"{said.removesuffix(f'{made.name}.')}{action}.")
            over = env.step(call)[2]
            shop.step(action)
            if over:
                break
        assert over
    assert explain(env, [write_answer("No.")], ours).endswith("answer.")
    for strange, name in (('{"name": "fly", "arguments": {}}', "fly"), ('{"name": "click", "arguments": {}}', "click")):
        assert explain(env, [strange]) in (f"I try {name}.", f"Let me try {name}.")
    env.close()
    shop.close()


def test_random_play_is_that_of_the_shop() -> None:
    """With the oracle's above: the rows of random play and of the oracle are those of `WebShop`."""
    shop, env = WebShop(catalog="toy"), WebShopTools(catalog="toy")
    for seed in range(12):
        shop.reset(seed=seed)
        env.reset(seed=seed)
        ours, theirs, over = np.random.default_rng(seed), np.random.default_rng(seed), False
        while not over:
            result, expected = env.step(random_action(env, ours)), shop.step(random_action(shop, theirs))
            assert result[:4] == expected[:4]
            over = expected[2] or expected[3]
    env.close()
    shop.close()


def test_a_model_shops_by_calls_in_its_templates_form() -> None:
    env = ToolTurns(WebShopTools(catalog="toy"))
    message, _ = env.reset(seed=0)
    assert message.startswith("Buy the product that is asked for") and env.game.shop.session.instruction in message
    assert [each["function"]["name"] for each in env.tools] == ["search", "click", "filter_results", "buy"]
    words = env.game.shop.session.instruction
    page, reward, _, _, info = env.step(calls(("search", {"query": words}), ("click", {"target": "no such button"})))
    assert info["tool_results"][1] == "Error: the page does not offer that" and info["tool_failed"]
    assert "Page 1" in info["tool_results"][0] and page.startswith(info["tool_results"][0]) and reward == 0.0
    assert env.step(calls(("search", {"query": "[]"})))[0] == "Error: the query has no words"
    env.close()


def test_a_wrong_purchase_ends_the_episode_without_success() -> None:
    env = WebShopTools(catalog="toy")
    found = set()
    for seed in range(12):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(15):
            _, _, terminated, truncated, info = env.step(random_action(env, rng))
            if terminated or truncated:
                break
        assert terminated == info["purchased"] and truncated == (not terminated)
        found.add((terminated, info["success"]))
    assert (True, False) in found
    env.reset(seed=0)
    assert env.step('{"answer": "I found nothing."}')[:4] == ("The episode is over.", 0.0, True, False)
    env.close()


def test_a_purchase_that_comes_after_its_time_limit_ends_the_episode() -> None:
    env = WebShopTools(catalog="toy")
    env.reset(seed=0)
    while not env._done[1]:
        made = read_action(best_action(env, 9))
        assert isinstance(made, Call)
        getattr(env, made.name)(**made.arguments)
    text, reward, terminated, *_, info = env.step(write_call("search", {"query": "mug"}))
    assert (text, reward, terminated, info["tool_failed"]) == ("Error: the page does not offer that", 0.0, True, True)
    env.close()


def test_calls_may_have_a_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    free, limited = WebShopTools(catalog="toy"), WebShopTools(catalog="toy", call_timeout=20.0)
    assert free.reset(seed=0) == limited.reset(seed=0)
    assert limited.step(best_action(limited, 9)) == free.step(best_action(free, 9))
    gate = threading.Event()
    monkeypatch.setattr(limited.shop, "step", lambda action: gate.wait(20))
    monkeypatch.setattr(limited, "call_timeout", 0.05)
    text, *_, info = limited.step(write_call("search", {"query": "mug"}))
    assert text == "Error: no result within 0.05 seconds" and info["tool_failed"]
    gate.set()
    for env in (free, limited):
        env.close()


def test_it_is_a_plain_environment() -> None:
    env = WebShopTools(catalog="toy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*spec")
        check_env(env, skip_render_check=True)
    env.reset(seed=1)
    env.step(best_action(env, 9))
    twin = copy.deepcopy(env)
    action = best_action(env, 8)
    assert twin.step(action) == env.step(action)
    assert not env.step(write_call("click", {"button": "x"}))[4]["action_is_valid"]
    env.close()
