"""The WebShop environment: observations, rewards, options, limits, threads and processes."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import httpx
import numpy as np
import pytest

from ragen_envs.any_text import AnyText
from ragen_envs.webshop.client import ShopRequestError
from ragen_envs.webshop.env import SPLITS, WebShop, search_for
from ragen_envs.webshop.local_store import StoreSettings, _LocalClient, local_store
from ragen_envs.webshop.policies import random_shop_action, scripted_shop_action
from ragen_envs.webshop.session import AvailableActions

TOY = StoreSettings("toy", False, None)


@pytest.fixture
def env() -> Iterator[WebShop]:
    """A toy store, at the start of goal 0."""
    made = WebShop(catalog="toy")
    made.reset(options={"goal": 0})
    yield made
    made.close()


def opened(env: WebShop) -> str:
    """Opens the first hit for "shoe" and returns its id."""
    asin = env.step("search[shoe]")[-1]["available_actions"].clickables[2]
    env.step(f"click[{asin}]")
    return str(asin).upper()


def test_pages_are_the_originals(env: WebShop) -> None:
    task = env.session.instruction
    observation, info = env.reset(options={"goal": 0})
    assert observation == f"WebShop [SEP] Instruction: [SEP] {task} [SEP] Search"
    assert info["available_actions"] == AvailableActions(True, ())
    assert (info["goal_id"], info["url"]) == (0, "http://127.0.0.1:3000/0")
    observation, reward, terminated, truncated, info = env.step("search[shoe]")
    assert observation.startswith(f"Instruction: [SEP] {task} [SEP] Back to Search [SEP] Page 1 (Total results: ")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, True)
    assert info["available_actions"].clickables[:2] == ("back to search", "next >")
    assert len(info["available_actions"].clickables) == 12
    assert info["url"] == "http://127.0.0.1:3000/search_results/0/shoe/1"


def test_a_purchase_is_scored_and_ends_the_episode(env: WebShop) -> None:
    """By hand: the kind is right, none of the attributes, the price is: 1 · (0 + 1) / (attributes + 1)."""
    shop = local_store(TOY).shop()
    goal = shop.goal(0)
    wrong = next(
        product
        for product in shop.catalog.products()
        if product.query == goal.query
        and product.price < goal.price_upper
        and not set(product.attributes) & set(goal.attributes)
    )
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


REQUESTS: list[tuple[str, str, bytes | None]] = [
    ("GET", "/api/store", None),
    ("GET", "/api/nothing", None),
    ("PUT", "/api/store", None),
    ("POST", "/api/sessions", b"{"),
    ("POST", "/api/sessions/none/step", b'{"action": "' + b"x" * 3_000_000 + b'"}'),
    ("GET", "/api/sessions/caf\u00e9%20%2F/picture?hits=\u4e2d", None),
    ("GET", "/api/sessions/caf%C3%A9%20%2F/picture?hits=2", None),
]


@pytest.mark.parametrize(("method", "path", "content"), REQUESTS)
@pytest.mark.parametrize("headers", [{"Content-Type": "application/json"}, {"Accept": "text/html"}])
def test_a_store_in_this_process_answers_like_one_behind_httpx(
    method: str, path: str, content: bytes | None, headers: dict[str, str]
) -> None:
    app = local_store(TOY).app()
    with httpx.Client(transport=httpx.WSGITransport(app=app), base_url="http://localhost") as client:
        there = client.request(method, path, content=content, headers=headers)
    here = _LocalClient(app).request(method, path, content=content, headers=headers)
    assert (here.status_code, here.content) == (there.status_code, there.content)


def test_success_is_a_score_of_one_whatever_is_paid() -> None:
    goal = local_store(TOY).shop().goal(3)
    for reward in ("fixed", "webshop", "tiered", "success"):
        env = WebShop(catalog="toy", reward=reward)
        env.reset(options={"goal": 3})
        total = 0.0
        for action in (
            search_for(goal.name),
            f"click[{goal.asin}]",
            "click[features]",
            "click[< prev]",
            "click[Buy Now]",
        ):
            _, paid, terminated, _, info = env.step(action)
            total += paid
        assert (terminated, info["success"], info["task_score"]) == (True, True, 1.0)
        assert total == pytest.approx(1.0)
        assert (paid == 1.0) == (reward != "tiered")  # credit on the way


@pytest.mark.parametrize(
    "action",
    [
        "",
        "shoe",
        "search[]",
        "find[shoe]",
        "buy[x]",
        "click[buy now]",
        "click[search]",
        "click[]",
        "filter[price<50]",
    ],
)
def test_what_the_first_page_does_not_offer_changes_nothing(env: WebShop, action: str) -> None:
    start, _ = env.reset(options={"goal": 1})
    observation, reward, terminated, truncated, info = env.step(action)
    assert (observation, reward, terminated, truncated) == (start, 0.0, False, False)
    assert (info["action_is_valid"], info["action_is_effective"]) == (False, False)


@pytest.mark.parametrize("action", ["filter[]", "filter[cheap]", "filter[price<much]", "click[nothing]", "click[b000]"])
def test_the_store_decides_what_is_an_action(env: WebShop, action: str) -> None:
    before = env.step("search[shoe]")[0]
    observation, reward, _, _, info = env.step(action)
    assert (observation, reward, info["action_is_valid"]) == (before, 0.0, False)
    assert env.session.played == ("search[shoe]",)


def test_filters_narrow_the_results_and_parity_has_none(env: WebShop) -> None:
    env.step("search[shoe]")
    observation, _, _, _, info = env.step("filter[price<50]")
    prices = [float(price) for price in re.findall(r"\[SEP\] \$([\d.]+)", observation)]
    assert info["action_is_valid"] and 0 < len(prices) <= 10 and max(prices) < 50
    original = WebShop(catalog="toy", parity=True)
    _, info = original.reset(options={"goal": 0})
    assert info["available_actions"] == AvailableActions(True, ("search",))
    original.step("search[shoe]")
    assert not original.step("filter[price<50]")[-1]["action_is_valid"]
    assert "filter" in env.instruction and "filter" not in original.instruction


def test_a_product_is_bought_from_the_results_or_from_its_page(env: WebShop) -> None:
    """Regression: `buy[…]` was no action."""
    assert not env.step("buy[now]")[-1]["action_is_valid"]
    asins = env.step("search[shoe]")[-1]["available_actions"].buyable
    assert len(asins) == 10 and set(asins) < set(env.session.answer.available_actions.clickables)
    assert not env.step("buy[b000000000]")[-1]["action_is_valid"]
    assert not env.step("buy[now]")[-1]["action_is_valid"]
    clicked = [env.step(f"click[{asins[1]}]"), env.step("click[buy now]")][-1]
    for actions in (
        (f"buy[{asins[1].upper()}]",),
        (f"click[{asins[1]}]", f"buy[ {asins[1]} ]"),
        (f"click[{asins[1]}]", "click[features]", f"buy[{asins[1]}]"),
        (f"click[{asins[1]}]", "buy[now]"),
    ):
        env.reset(options={"goal": 0})
        env.step("search[shoe]")
        assert [env.step(action) for action in actions][-1] == clicked
    assert clicked[-1]["purchased"] and clicked[-1]["available_actions"] == AvailableActions(False, ())
    assert not env.step(f"buy[{asins[1]}]")[-1]["action_is_valid"]  # bought once


def test_options_chosen_before_count_in_a_purchase_by_id() -> None:
    env = WebShop()
    shop = local_store(env.settings).shop()
    goal = next(goal for goal in shop.goals if len(goal.options) == 1)
    for verb in (f"buy[{goal.asin}]", "click[buy now]"):
        env.reset(options={"goal": goal.id})
        env.step(f"search[{goal.name}]")
        env.step(f"click[{goal.asin}]")
        env.step(f"click[{next(iter(dict(goal.options).values()))}]")
        assert env.step(verb)[-1]["success"]
    env.reset(options={"goal": goal.id})
    env.step(f"search[{goal.name}]")
    assert not env.step(f"buy[{goal.asin}]")[-1]["success"]  # from the results, without the option


def test_parity_has_no_purchase_by_id() -> None:
    original = WebShop(catalog="toy", parity=True)
    original.reset(options={"goal": 0})
    info = original.step("search[shoe]")[-1]
    assert (info["available_actions"].has_filters, info["available_actions"].buyable) == (False, ())
    assert not original.step(f"buy[{info['available_actions'].clickables[-1]}]")[-1]["action_is_valid"]
    assert "buy[" not in original.instruction


@pytest.mark.parametrize("mode", ["text", "short"])
def test_case_and_surrounding_blanks_do_not_matter(mode: str) -> None:
    """Regression: `Search[shoe]` and `click[ next > ]` were invalid, and a blank search was one."""
    pages = []
    for actions in (
        ("search[shoe]", "click[next >]", "click[< prev]", "filter[price<100]", "buy[1]"),
        (" Search [ shoe ]", "Click[ Next > ]", "CLICK[< prev]", "filter[ PRICE<100 ]\n", "Buy[ 1 ]"),
    ):
        env = WebShop(catalog="toy", observation_mode=mode)
        env.reset(options={"goal": 0})
        assert not any(env.step(blank)[-1]["action_is_valid"] for blank in ("search[ ]", "Search[]", "click[  ]"))
        steps = [env.step(action) for action in actions]
        pages.append([(step[0], step[-1]["action_is_valid"], step[-1]["url"]) for step in steps])
        played = env.session.played
    assert pages[0] == pages[1] and [valid for _, valid, _ in pages[0]] == [True] * 4 + [mode == "short"]
    assert played[:4] == ("search[shoe]", "click[Next >]", "click[< prev]", "filter[PRICE<100]")


@pytest.mark.parametrize(("action", "valid"), [("  search[a b]", False), ("search[a b]x", True), ("search[a b]", True)])
def test_in_parity_the_store_gets_actions_as_they_are_written(env: WebShop, action: str, valid: bool) -> None:
    """The original has no action "  search"; blanks used to be removed before it saw the action."""
    original = WebShop(catalog="toy", parity=True)
    original.reset(options={"goal": 0})
    assert original.step(action)[-1]["action_is_valid"] is valid
    assert env.step(action)[-1]["action_is_valid"]


@pytest.mark.parametrize("parity", [False, True])
def test_what_cannot_be_sent_or_is_too_long_is_no_action(parity: bool) -> None:
    original = WebShop(catalog="toy", parity=parity)
    original.reset(options={"goal": 0})
    asked = original.session.answer
    for action in ("search[\ud800]", f"search[{'x' * 993}]", " " * 1001):
        assert not original.step(action)[-1]["action_is_valid"]
    assert original.session.answer is asked  # the store was not asked


def test_the_store_says_what_it_is(env: WebShop) -> None:
    about = env.about()
    assert (about["catalog"], about["products"], about["nouns"]) == ("toy", 96, "precomputed")
    assert env.count() == about["goals"] == 96 and tuple(about["splits"]) == SPLITS
    assert WebShop(catalog="toy", nouns="every_word").about()["nouns"] == "every_word"


def test_garbage_never_raises(env: WebShop) -> None:
    rng = np.random.default_rng(0)
    alphabet = [
        *("buy[", "search[", "click[", "filter[", "]", "["),
        *("price", "<", "=", "5", "x", " ", "\x00", "\ud800", "é", "\n"),
    ]
    valid = 0
    for _ in range(400):
        text = "".join(alphabet[at] for at in rng.integers(len(alphabet), size=rng.integers(1, 9)))
        valid += env.step(text + rng.choice(["", "]", "]" * 900, "y" * 2000]))[-1]["action_is_valid"]
        if env.session.answer.done:
            env.reset(options={"goal": 0})
    assert valid > 0
    env.reset()
    assert not env.step(f"search[{'x' * 1000}]")[-1]["action_is_valid"]
    assert env.step(f"search[{'x' * 992}]")[-1]["action_is_valid"]


def test_valid_actions_are_counted_up_to_the_limit() -> None:
    env = WebShop(catalog="toy", max_steps=3)
    for _ in range(2):
        env.reset(seed=1)
        env.step("no action")
        # "click[nothing]" looks like an action and is refused by the store; it is not counted either.
        truncated = [env.step(action)[3] for action in ("search[shoe]", "junk", "click[nothing]", "click[next >]")]
        assert truncated == [False] * 4
        assert env.step("click[back to search]")[2:4] == (False, True)
        assert env.step("search[shoe]")[3]
    env.reset(seed=1)
    opened(env)
    assert env.step("click[buy now]")[2:4] == (True, False)  # done is not cut short as well
    endless = WebShop(catalog="toy", max_steps=None)
    endless.reset(seed=1)
    assert not any(endless.step(f"search[{number}]")[3] for number in range(50))


@pytest.mark.parametrize("split", ["test", "eval_by_product"])
def test_held_out_goals_are_played_in_their_order_each_once(split: str) -> None:
    goals = (env := WebShop(split=split)).count()
    played = [env.reset(seed=seed)[1]["goal_id"] for seed in range(goals)]
    assert len(set(played)) == goals
    assert played[:9] == [env.reset(options={"index": index})[1]["goal_id"] for index in range(9)]
    assert env.reset(seed=goals + 3)[1]["goal_id"] == played[3]
    assert {env.reset()[1]["goal_id"] for _ in range(20)} <= set(played)  # without a seed they are drawn


def test_goals_are_drawn_from_the_split_and_the_seed() -> None:
    goals = local_store(TOY).shop().goals
    env, twin = WebShop(catalog="toy", split="test"), WebShop(catalog="toy", split="test")
    drawn = [env.reset(seed=seed)[1]["goal_id"] for seed in range(20)]
    assert set(drawn) <= set(goals.split("test")) and len(set(drawn)) > 5
    assert [twin.reset(seed=seed)[1]["goal_id"] for seed in range(20)] == drawn
    env.reset(seed=3)
    twin.reset(seed=3, options={"goal": 0})
    assert env.reset()[1] == twin.reset()[1]  # the option does not shift later starts


def test_options_name_a_goal_of_all_or_of_the_split() -> None:
    numbers = local_store(TOY).shop().goals.split("train")
    env = WebShop(catalog="toy", split="train")
    assert env.reset(options={"goal": np.int64(2)})[1]["goal_id"] == 2
    assert env.reset(options={"index": 2})[1]["goal_id"] == numbers[2]
    with pytest.raises(ValueError, match=r"goal=-1 must be an integer >= 0"):
        env.reset(options={"goal": -1})
    with pytest.raises(ValueError, match="name two goals"):
        env.reset(options={"goal": 1, "index": 1})
    with pytest.raises(ShopRequestError, match="status 404.*5000"):
        env.reset(options={"goal": 5000})


def test_wrong_arguments_are_named() -> None:
    for wrong, message in (
        ({"observation_mode": "image"}, "observation_mode='image' is unknown; use one of text, text_rich, html, url"),
        ({"split": "foo"}, "split='foo' is unknown; use one of all, test, eval, train, test_by_product, eval_by"),
        ({"reward": "dense"}, "reward='dense' is unknown; use one of webshop, fixed, tiered, success"),
        ({"max_steps": 0}, "max_steps=0 leaves nothing to play"),
        ({"base_url": "http://x", "catalog": "toy"}, "are set by the server at base_url="),
        ({"base_url": "localhost"}, "base_url='localhost' is not a URL"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            WebShop(**wrong)  # type: ignore[arg-type]


def test_observation_modes_are_the_stores() -> None:
    seen = {}
    for mode in ("text", "text_rich", "html", "url"):
        env = WebShop(catalog="toy", observation_mode=mode)
        env.reset(options={"goal": 0})
        seen[mode] = env.step("search[shoe]")[0]
    assert seen["url"] == "http://127.0.0.1:3000/search_results/0/shoe/1"
    assert "[button] Back to Search [button_]\n" in seen["text_rich"]
    assert "<html" in seen["html"] and " [SEP] Back to Search [SEP] " in seen["text"]


def test_possible_actions_stand_in_the_text_if_asked_for() -> None:
    env = WebShop(catalog="toy", show_actions=True)
    assert env.reset(seed=0)[0].endswith("\nAvailable actions: search[<words>]")
    opened(env)
    assert "\nAvailable actions: search[<words>], click[" in env.step("click[features]")[0]


def test_environments_with_the_same_settings_share_a_store(env: WebShop) -> None:
    same = local_store(StoreSettings("toy", False, None))
    assert same is local_store(env.settings) and same.app() is local_store(env.settings).app()
    assert same is not local_store(StoreSettings("toy", True, None))


def test_the_server_forgets_episodes_that_are_over(env: WebShop) -> None:
    client = local_store(env.settings).app().test_client()

    def sessions() -> int:
        found = re.search(r"^\w*sessions (\d+)$", client.get("/metrics").text, re.MULTILINE)
        assert found
        return int(found[1])

    before = sessions()
    for seed in range(20):
        env.reset(seed=seed)
    assert sessions() == before
    env.close()
    assert sessions() == before - 1
    assert env.reset(seed=0)[1]["available_actions"].has_search_bar  # it opens again


def episode(seed: int) -> list[Any]:
    """All results of an episode of the scripted policy and of one with random actions."""
    env = WebShop(catalog="toy")
    rng = np.random.default_rng(seed)
    seen: list[Any] = []
    for policy in (scripted_shop_action, lambda env: random_shop_action(env, rng)):
        seen.append(env.reset(seed=seed))
        for _ in range(12):
            seen.append(env.step(policy(env)))
    return seen


def test_threads_do_not_disturb_each_other() -> None:
    alone = [episode(seed) for seed in range(16)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(episode, range(16))) == alone


def test_any_text_asks_for_the_length_alone() -> None:
    space = AnyText(4, min_length=1, charset="ab")
    assert "naïf" in space and "日本" in space
    assert "" not in space and "abcde" not in space and 3 not in space
    assert set(space.sample()) <= {"a", "b"}
    assert space == AnyText(4, min_length=1, charset="ab") != AnyText(5, min_length=1, charset="ab")
    assert space != gymnasium.spaces.Text(4, min_length=1, charset="ab")
    assert repr(space) == "AnyText(1, 4)"
