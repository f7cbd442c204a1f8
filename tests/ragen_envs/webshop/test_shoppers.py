"""The shopper of demonstrations: what it types, where it succeeds without mistakes, and what its mistakes are."""

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ragen_envs import demonstration
from ragen_envs.webshop import WebShop
from ragen_envs.webshop.local_store import HiddenGoalError, store_behind
from ragen_envs.webshop.shoppers import careless_shop_action, query_of

ACTIONS = 12


def shop(env: WebShop, index: int, noise: float) -> tuple[list[str], dict[str, Any]]:
    """The actions of an episode and its last info."""
    rng, actions = np.random.default_rng(index), list[str]()
    env.reset(options={"index": index})
    for left in range(ACTIONS, 0, -1):
        actions.append(careless_shop_action(env, left, rng, noise))
        _, _, over, _, info = env.step(actions[-1])
        assert info["action_is_valid"], actions
        if over:
            break
    return actions, info


def test_a_query_has_the_words_that_say_something() -> None:
    request = (
        "Find me hand wash men's sleep & lounge with long sleeve, elastic waistband for daily wear with color: multi "
        "10, and size: xx-large, and price lower than 80.00 dollars"
    )
    words = "hand wash men's sleep & lounge long sleeve elastic waistband daily wear multi 10 xx-large"
    assert query_of(request) == words.split()
    assert query_of("i want it") == []


@pytest.mark.parametrize("mode", ["text", "short"])
def test_without_mistakes_nearly_every_goal_is_bought_by_words_of_the_request(mode: str) -> None:
    env = WebShop(split="train_by_product", observation_mode=mode, max_steps=None)
    bought = 0
    for index in range(60):
        actions, info = shop(env, index, 0.0)
        bought += info["success"]
        for action in actions:
            if action.startswith("search["):
                asked = env.session.instruction.split()
                assert set(action[7:-1].split()) <= {*asked, *(word.strip(".,;:!?") for word in asked)}
    assert bought >= 56


HARD = (10060, 10090, 10121, 10127, 10156)
"""Seeds of the store whose first search, and then the whole request, do not find the product."""


def test_after_failures_one_more_word_is_left_out_until_the_product_is_found() -> None:
    """Regression: the shopper went to and fro between the whole request and one without a word, till the end."""
    env = WebShop(max_steps=None)
    for seed in HARD:
        env.reset(seed=seed)
        words, searches = query_of(env.session.instruction), list[str]()
        for left in range(15, 0, -1):
            action = careless_shop_action(env, left, np.random.default_rng(seed), 0.0)
            searches += [action] * action.startswith("search[")
            over, _, info = env.step(action)[2:]
            if over:
                break
        assert info["success"], (seed, searches)
        assert searches[:2] == [f"search[{' '.join(words)}]", f"search[{env.session.instruction}]"]
        lengths = [len(search.split()) for search in searches[2:]]
        assert lengths == list(range(len(words) - 1, len(words) - 1 - len(lengths), -1)) != []


def test_a_product_that_no_words_of_the_request_find_is_looked_for_to_the_end() -> None:
    env = WebShop(max_steps=None)
    env.reset(seed=10129)
    local = store_behind(None, env.settings)
    words, asin = query_of(env.session.instruction), local.shop().goal(env.session.goal).asin
    assert len(words) == 5
    for count in range(1, 6):
        for some in combinations(words, count):
            assert asin not in local.shop().store.results(local.page([f"search[{' '.join(some)}]"], False))
    searches = []
    for left in range(15, 0, -1):
        searches.append(careless_shop_action(env, left, np.random.default_rng(left), 0.0))
        env.step(searches[-1])
    assert [len(search.split()) for search in searches[2:8]] == [4, 3, 2, 1, 4, 3]
    assert sum(search == searches[1] for search in searches) == 1


def test_mistakes_are_those_of_people_and_only_a_forgotten_option_costs_the_goal() -> None:
    env = WebShop(split="train_by_product", observation_mode="short", max_steps=None)
    local = store_behind(None, env.settings)
    seen: Counter[str] = Counter()
    for index in range(120):
        actions, info = shop(env, index, 0.4)
        goal = local.shop().goal(env.session.goal)
        state = local.page(env.session.played, parity=False)
        first = actions[0][7:-1].split()
        seen["word left out"] += len(first) < len(query_of(env.session.instruction))
        assert len(first) >= len(query_of(env.session.instruction)) - 1
        seen["left again"] += goal.asin in state.seen and len(state.seen) > 1
        if info["purchased"]:
            assert state.asin == goal.asin  # another product is opened, and never bought
            forgotten = set(local.options_for(goal).items()) - set(state.options)
            seen["forgotten"] += bool(forgotten)
            assert info["success"] == (not forgotten)
    assert min(seen[kind] for kind in ("word left out", "left again", "forgotten")) >= 10, seen


def test_mistakes_that_cost_actions_are_not_made_at_the_end() -> None:
    env = WebShop(catalog="toy", observation_mode="short")
    env.reset(options={"goal": 0})
    env.step(f"search[{env.session.instruction}]")
    local = store_behind(None, env.settings)
    goal = local.shop().goal(0)
    results = list(local.shop().store.results(local.page(env.session.played, False)))
    needed = 2 + len(local.options_for(goal))
    opened = {
        left: {careless_shop_action(env, left, np.random.default_rng(seed), 1.0) for seed in range(5)}
        for left in (needed + 2, needed + 3)
    }
    right = f"click[{results.index(goal.asin) + 1}]"
    assert opened[needed + 2] == {right} and right not in opened[needed + 3]


def test_demonstrations_of_the_store_are_its_shoppers_and_need_it_in_this_process() -> None:
    env = WebShop(catalog="toy", observation_mode="short")
    env.reset(options={"goal": 0})
    [action] = demonstration(env, 9, 1, np.random.default_rng(0))
    assert action == f"search[{' '.join(query_of(env.session.instruction))}]"
    with pytest.raises(HiddenGoalError, match="only the server at http://shop.test knows the goal"):
        careless_shop_action(WebShop(base_url="http://shop.test"), 9, np.random.default_rng(0), 0.0)
