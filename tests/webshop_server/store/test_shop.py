"""Episodes: what a step pays in each reward mode, and what the client is told."""

import json
from dataclasses import replace

import pytest

from tests.support.webshop_server import products
from webshop_server.catalog import Catalog
from webshop_server.goals.goals import UnknownGoalError, make_goals
from webshop_server.goals.nouns import noun_tagger
from webshop_server.search.index import SearchIndex
from webshop_server.store.answer import REWARDS, Answer
from webshop_server.store.shop import Episode, Rules, Shop

SHIRT = replace(products.SHIRT, options={"color": ("red", "blue")})
MUG = replace(products.MUG, options={})


@pytest.fixture(scope="module")
def shop() -> Shop:
    catalog = Catalog("sample", [SHIRT, MUG], seed=0)
    return Shop(catalog, SearchIndex.open(catalog), make_goals(catalog, human=False), noun_tagger("every_word"))


def goal_for(shop: Shop, words: str) -> int:
    return next(goal.id for goal in shop.goals if words in goal.instruction)


def play(shop: Shop, words: str, reward: str, *actions: str) -> tuple[Episode, list[float]]:
    episode = shop.start(goal_for(shop, words), Rules(reward=reward))
    paid = []
    for action in actions:
        episode = shop.step(episode, action)
        paid.append(round(episode.reward, 3))
    return episode, paid


BUY_RED = ("search[linen shirt]", "click[b000shirt1]", "click[red]", "click[buy now]")


def test_the_right_purchase_pays_1_at_its_end(shop: Shop) -> None:
    for reward in ("webshop", "fixed"):
        episode, paid = play(shop, "color: red", reward, *BUY_RED)
        assert paid == [0, 0, 0, 1]
        answer = shop.answer(episode)
        assert (answer.done, answer.task_score, answer.success) == (True, 1.0, True)
        parts = dict(answer.reward_parts)
        assert (parts["mode"], parts["price"]) == (reward, 20.0)


def test_tiers_pay_progress_once_and_add_up_to_the_best(shop: Shop) -> None:
    actions = ("search[shirt]", *BUY_RED[:3], "click[red]", "foo", "click[buy now]")
    episode, paid = play(shop, "color: red", "tiered", *actions)
    assert paid == [0.3, 0, 0.1, 0.1, 0, 0, 0.5]
    assert shop.answer(episode).task_score == 1.0
    # Another colour: 0.5 + 0.3 * 2/3, and the task's score stays what it is.
    episode, paid = play(shop, "color: blue", "tiered", *BUY_RED)
    assert paid == [0.3, 0.1, 0, 0.3]
    assert shop.answer(episode).task_score == 2 / 3
    # Success alone pays for the right purchase only.
    for wanted, pay, score in (("color: red", 1, 1.0), ("color: blue", 0, 2 / 3)):
        episode, paid = play(shop, wanted, "success", *BUY_RED)
        assert paid == [0, 0, 0, pay] and shop.answer(episode).task_score == score


@pytest.mark.parametrize("query", ["<r>", "<c> fashion", "<q> shirts", "<a> linen"])
def test_lists_and_samples_earn_no_credit_for_finding(shop: Shop, query: str) -> None:
    """Regression: twelve random samples and a blind purchase were paid more than an honest search."""
    listed = f"search[{query}]"
    _, paid = play(shop, "color: red", "tiered", listed, listed, "click[b000shirt1]")
    assert paid == [0.1, 0, 0.3]  # opening the page of the right kind is worth its tier, however it was found


def test_a_step_after_the_end_is_invalid_and_pays_nothing(shop: Shop) -> None:
    for reward in REWARDS:
        done, _ = play(shop, "color: red", reward, *BUY_RED)
        after = shop.step(done, "click[buy now]")
        assert (after.reward, after.valid, after.done, after.state) == (0, False, True, done.state)
    # Nothing of the score is told before the purchase.
    answer = shop.answer(play(shop, "color: red", "fixed", *BUY_RED[:3])[0])
    assert (answer.reward, answer.task_score, answer.success) == (0, 0, False)
    assert (answer.reward_parts, answer.faults) == ((), ())
    assert answer.available_actions.clickables[-3:] == ("buy now", "red", "blue")


def test_an_answer_comes_back_from_json_and_cannot_end_its_element(shop: Shop) -> None:
    episode, _ = play(shop, "color: red", "fixed", *BUY_RED)
    hostile = replace(shop.answer(episode), observation="</script><!-- & \u2028 √")
    text = hostile.as_json(goal=3)
    assert not set("<>&") & set(text)
    assert Answer.read(text) == hostile
    fields = json.loads(text)
    for name, wrong in (("reward", "1"), ("observation", None), ("faults", "x"), ("available_actions", [True, "ab"])):
        with pytest.raises((TypeError, ValueError)):
            Answer.read(json.dumps({**fields, name: wrong}))


@pytest.mark.parametrize("parity", [False, True])
def test_a_search_that_a_page_would_refuse_is_invalid(shop: Shop, parity: bool) -> None:
    """It was carried out: only the form looked at length and control characters."""
    start = shop.start(0, Rules(parity=parity, reward="tiered"))
    for action in (f"search[{'x' * 1001}]", f"search[{'x' * 3900}]", "search[shoe\x00]"):
        after = shop.step(start, action)
        assert (after.valid, after.effective, after.reward, after.state) == (False, False, 0, start.state)
    assert shop.step(start, f"search[{'x' * 1000}]").valid


def test_goals_are_found_by_number_position_seed_or_chance(shop: Shop) -> None:
    goals = shop.goals
    assert shop.find_goal("train", index=0) == goals.split("train")[0]
    assert shop.find_goal(seed=4) == shop.find_goal(seed=4)
    assert len({shop.find_goal() for _ in range(40)}) > 1
    for wrong in ({"goal": 99}, {"index": len(goals)}):
        with pytest.raises(UnknownGoalError):
            shop.find_goal(**wrong)
