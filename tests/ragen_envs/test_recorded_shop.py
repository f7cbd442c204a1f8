"""Episodes of people, played back: a file in WebShop's form, written here."""

import json
import re
from pathlib import Path

import pytest

from ragen_envs import best_action
from ragen_envs.webshop import RecordedShop, WebShop
from ragen_envs.webshop.env import ShopError
from ragen_envs.webshop.recorded import requests_of
from ragen_envs.webshop.shoppers import scripted_shop_action


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Episodes of the scripted rule on the original's pages, as the published file has those of people."""
    env = WebShop(catalog="toy", parity=True, observation_mode="text_rich")
    lines = []
    for goal in range(3):
        page, _ = env.reset(options={"goal": goal})
        states, actions, over = [], [], False
        while not over:
            states.append(page)
            actions.append(scripted_shop_action(env))
            page, _, over, _, _ = env.step(actions[-1])
        states[0] = states[0].replace("WebShop\n", "Amazon Shopping Game\n", 1)
        others = {"available_actions": [[]] * len(actions), "action_idxs": [-1] * len(actions), "images": [0]}
        lines.append(json.dumps({"states": states, "actions": actions, **others}))
    path = tmp_path / "il_trajs.jsonl"
    path.write_text("\n".join(lines) + "\n\n")
    return path


def test_an_episode_is_the_one_that_was_played_on_pages_as_they_are_today(path: Path) -> None:
    env, shop = RecordedShop(path), WebShop(catalog="toy", parity=True, observation_mode="text_rich")
    assert env.instruction == shop.instruction
    for goal in range(3):
        page, info = env.reset(seed=goal)
        assert page == shop.reset(options={"goal": goal})[0]
        over = False
        while not over:
            action = best_action(env, 9)
            assert action == scripted_shop_action(shop)
            page, reward, over, truncated, info = env.step(action)
            shown, *_ = shop.step(action)
            assert (reward, truncated, info["action_is_valid"]) == (0.0, False, True)
            assert page == ("The recording ends here." if over else shown)
        assert info["success"] and best_action(env, 9) == "click[buy now]"


def test_seeds_are_numbers_of_episodes_and_other_actions_change_nothing(path: Path) -> None:
    env = RecordedShop(path)
    pages = [env.reset(seed=seed)[0] for seed in (0, 1, 2, 1_000_000_001)]
    assert len(set(pages[:3])) == 3 and pages[3] == pages[1_000_000_001 % 3]
    page, _ = env.reset(seed=0)
    again, reward, over, _, info = env.step("click[buy now]")
    assert (again, reward, over, info["action_is_valid"]) == (page, 0.0, False, False)
    assert env.step(best_action(env, 9).upper())[0] != page
    assert env.reset()[0] in pages


def test_requests_of_a_split_are_left_out_whatever_their_price_bound(path: Path) -> None:
    goals = RecordedShop(path).episodes
    asked = requests_of(WebShop(catalog="toy", parity=True, split="all"))
    assert [goal.request for goal in goals] == asked[:3] and len(asked) == len(set(asked)) > 3
    dearer = re.sub(r"[\d.]+ dollars", "999.00 dollars", goals[1].request.upper(), flags=re.IGNORECASE)
    assert dearer != goals[1].request.upper()
    assert RecordedShop(path, leave_out=[dearer, "something else"]).episodes == (goals[0], goals[2])
    with pytest.raises(ShopError, match="all of 3 episodes in .* are left out; leave out fewer"):
        RecordedShop(path, leave_out=asked)
